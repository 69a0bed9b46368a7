"""Memory and streams of a card, shared with CuPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxplug

from .. import networks

X = np.random.default_rng(3).standard_normal((5, 32)).astype(np.float32)


def test_arrays_of_cupy_come_and_go_without_a_copy(alone: Any, card: Any) -> None:
    given = card.asarray(X)
    value = onnxplug.OrtValue.from_dlpack(given)
    assert value.device_name() == "cuda"
    assert value.data_ptr() == given.data.ptr
    taken = card.from_dlpack(value)
    assert taken.data.ptr == given.data.ptr
    session = alone(networks.mlp(), use_tf32=0)
    wanted = session.run(None, {"x": X})
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output(session.get_outputs()[0].name, "cuda")
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    np.testing.assert_allclose(card.asnumpy(card.from_dlpack(found)), wanted[0])


def test_tensors_of_torch_come_and_go_without_a_copy(alone: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this build of PyTorch has no CUDA")
    session = alone(networks.mlp(), use_tf32=0)
    wanted = session.run(None, {"x": X})
    given = torch.from_numpy(X).to("cuda")
    value = onnxplug.OrtValue.from_dlpack(given)
    assert value.data_ptr() == given.data_ptr()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output(session.get_outputs()[0].name, "cuda")
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    tensor = torch.from_dlpack(found)
    assert tensor.device.type == "cuda" and tensor.data_ptr() == found.data_ptr()
    np.testing.assert_allclose(tensor.cpu().numpy(), wanted[0])


def test_runs_are_queued_on_the_stream_that_is_given(alone: Any) -> None:
    """What PyTorch queued there before comes first, and what it queues then, after."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this build of PyTorch has no CUDA")
    stream = torch.cuda.Stream()
    session = alone(
        networks.mlp(), use_tf32=0, user_compute_stream=str(stream.cuda_stream)
    )
    wanted = alone(networks.mlp(), use_tf32=0).run(None, {"x": X})[0]
    x = torch.zeros(5, 32, device="cuda")
    y = torch.zeros(5, 10, device="cuda")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxplug.OrtValue.from_dlpack(x))
    binding.bind_ortvalue_output(
        session.get_outputs()[0].name, onnxplug.OrtValue.from_dlpack(y)
    )
    content = torch.from_numpy(X).pin_memory()
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(stream):
            y.zero_()
            torch.cuda._sleep(2_000_000)
            x.copy_(content, non_blocking=True)
        session.run_with_iobinding(binding)
        with torch.cuda.stream(stream):
            found = (y * 2).cpu()
            x.zero_()
        np.testing.assert_allclose(found.numpy(), 2 * wanted, rtol=1e-6)


def test_a_limit_of_memory_is_kept(alone: Any, card: Any) -> None:
    model = networks.bert()
    with pytest.raises(onnxplug.errors.OutOfMemory, match="gpu_mem_limit"):
        alone(model, gpu_mem_limit=4096).run(None, {"x": np.ones((64, 20), np.int64)})
    before = card.cuda.runtime.memGetInfo()[0]
    session = alone(model)
    session.run(None, {"x": np.ones((64, 20), np.int64)})
    assert card.cuda.runtime.memGetInfo()[0] < before


def test_more_than_the_card_has_is_out_of_memory(alone: Any, card: Any) -> None:
    """And the card is of use afterwards."""
    import onnx

    rows = card.cuda.runtime.memGetInfo()[1] // 4 // 1024 + 1
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 1024] x, int64[2] shape) => (float[n, 1024] y)
        { z = Expand (x, shape)  y = Exp (z) }"""
    )
    session = alone(model)
    x = np.zeros((1, 1024), np.float32)
    with pytest.raises(onnxplug.errors.OutOfMemory):
        session.run(None, {"x": x, "shape": np.array([rows, 1024])})
    found = session.run(None, {"x": x, "shape": np.array([3, 1024])})
    np.testing.assert_array_equal(found[0], np.ones((3, 1024), np.float32))


def test_an_index_that_is_out_of_range_is_an_error(alone: Any) -> None:
    session = alone(networks.bert())
    words = np.ones((1, 7), np.int64)
    words[0, 3] = networks.WORDS
    with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
        session.run(None, {"x": words})
    words[0, 3] = 2
    session.run(None, {"x": words})
