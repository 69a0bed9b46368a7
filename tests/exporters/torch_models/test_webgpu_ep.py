"""Networks as PyTorch exports them, on the EP that computes by WebGPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make test-webgpu installs it")
pytest.importorskip("transformers", reason="make test-webgpu installs it")
if "webgpu" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
    pytest.importorskip("wgpu", reason="make test-webgpu installs it")

from comparison.arithmetic import shares_of
from models.decoders import llama
from models.quantised import llama_in_4_bits
from zoo import built

import onnxplug

from .test_torch_ep import assert_near
from .test_zoo import SMALL, export_small, small

EPS = ["WebGpuExecutionProvider", "CPUExecutionProvider"]

OFTEN = "resnet50 mobilenetv2 unet whisper-encoder bert-base gpt2-decode".split()
NAMES = [
    pytest.param(name, marks=[] if name in OFTEN else pytest.mark.exhaustive)
    for name in SMALL
    if name != "lstm"  # which is most of that network
]


def opened(
    model: Path | onnx.ModelProto, folder: Path
) -> tuple[onnxplug.InferenceSession, Path]:
    """A session with the EP first, and the model whose nodes it runs."""
    options, prepared = onnxplug.SessionOptions(), folder / "prepared.onnx"
    options.optimized_model_filepath = str(prepared)
    return onnxplug.InferenceSession(model, options, providers=EPS), prepared


def assert_on_the_device(
    session: onnxplug.InferenceSession,
    prepared: Path,
    feeds: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """That there are at least 95 % of the nodes that do not follow from shapes, 99 % of
    the arithmetic of all, and what is between inputs and outputs."""
    explained = session.explain()
    found = shares_of(explained.nodes, onnx.load(prepared), feeds, EPS[0])
    assert found.nodes >= 0.95, str(explained)
    assert found.arithmetic >= 0.99, str(explained)
    names = {arg.name for arg in (*session.get_inputs(), *session.get_outputs())}
    assert {copy.value for copy in explained.copies} <= names


def assert_right(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for ours, right in zip(found, wanted, strict=True):
        assert ours.shape == right.shape
        atol = tolerance * abs(right).max()
        np.testing.assert_allclose(ours, right, rtol=0, atol=atol)


def assert_rounded_alike(
    found: Sequence[Any], cpu: Sequence[Any], wanted: Sequence[Any]
) -> None:
    """That errors, as the roots of their mean squares, are at most 4 times the CPU
    EP's, or than the rounding of the largest result to float32."""
    for ours, theirs, right in zip(found, cpu, wanted, strict=True):
        least = 2**-24 * abs(right).max()
        errors = [np.sqrt(np.square(each - right).mean()) for each in (ours, theirs)]
        assert errors[0] <= 4 * max(errors[1], least), errors


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_on_the_device_and_right(name: str, tmp_path: Path) -> None:
    files, tolerance = export_small(name, tmp_path), SMALL[name].tolerance
    feeds = dict(np.load(files.feeds))
    session, prepared = opened(files.model, tmp_path)
    found = session.run(None, feeds)
    wanted = list(np.load(files.expected).values())
    assert_right(found, wanted, tolerance)
    cpu = onnxplug.InferenceSession(files.model, providers=["cpu"]).run(None, feeds)
    # DETR's norms make eight times the CPU EP's roundings of its logits
    if name != "detr":
        assert_rounded_alike(found, cpu, wanted)
    assert_on_the_device(session, prepared, feeds)
    if small(name).grows:
        _check_growing(name, session, found)


def _check_growing(
    name: str, session: onnxplug.InferenceSession, found: Sequence[Any]
) -> None:
    """Runs of which each takes what the one before kept."""
    module, drawn = built(small(name), **SMALL[name].sizes)
    word, *cache = drawn.values()
    names = [arg.name for arg in session.get_inputs()]
    for _ in range(4):
        theirs = module(word, *cache)
        for ours, right in zip(found, theirs, strict=True):
            assert_near(ours, right.numpy(), name)
        cache = theirs[1:]
        fed = [word.numpy(), *found[1:]]
        found = session.run(None, dict(zip(names, fed, strict=True)))


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same in the wider type."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.value_info[:]
    double, single = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
    for tensor in wide.graph.initializer:
        if tensor.data_type == single:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = double
    return wide


@pytest.mark.parametrize(("length", "past"), [(7, 0), (1, 6)])
def test_a_block_of_llama_is_on_the_device_and_right(
    length: int, past: int, tmp_path: Path
) -> None:
    """A prompt, and a word with what is kept of those before."""
    sizes: Mapping[str, int] = {
        "layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 48,
    }  # fmt: skip
    case = llama(length, past, **sizes)
    session, prepared = opened(case.model, tmp_path)
    wide = onnx.reference.ReferenceEvaluator(in_float64(case.model))
    feeds = {
        key: x.astype(np.float64) if x.dtype == np.float32 else x
        for key, x in case.feeds.items()
    }
    found, wanted = session.run(None, case.feeds), wide.run(None, feeds)
    assert_right(found, wanted, 2e-5)
    cpu = onnxplug.InferenceSession(case.model, providers=["cpu"])
    assert_rounded_alike(found, cpu.run(None, case.feeds), wanted)
    assert_on_the_device(session, prepared, case.feeds)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float16, 2e-3)])
def test_a_block_in_4_bits_is_on_the_device(
    dtype: Any, bound: float, tmp_path: Path
) -> None:
    """The CPU EP computes it of the weights in full, by kernels of its own."""
    case = llama_in_4_bits(dtype, 6, width=128, heads=4, groups=2, inner=256)
    session, prepared = opened(case.model, tmp_path)
    found = session.run(None, case.feeds)
    assert_on_the_device(session, prepared, case.feeds)
    nodes = session.explain().nodes
    assert sum(node.op_type == "MatMulNBits" for node in nodes) == 7
    on_cpu = onnxplug.InferenceSession(case.model, providers=["cpu"])
    for one, other in zip(found, on_cpu.run(None, case.feeds), strict=True):
        wide = other.astype(np.float64)
        apart = np.abs(one.astype(np.float64) - wide).max()
        assert apart <= bound * np.abs(wide).max()
