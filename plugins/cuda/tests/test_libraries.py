"""Sessions whose products, convolutions and attention are libraries', on the stand-in:
in the order of streams, captured, and measured."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import errors
from onnxplug.errors import OnnxplugError
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.engines import opening
from onnxplug_cuda.engines.cublaslt import CublasLt
from onnxplug_cuda.engines.cudnn import Cudnn

from . import library_of_graphs, library_of_products
from .planted import Planted
from .standin import Machine

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
Session = Callable[..., onnxplug.InferenceSession]


def random(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def with_weights(model: onnx.ModelProto, **weights: Array) -> onnx.ModelProto:
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return model


def check(session: Any, model: onnx.ModelProto, feeds: Any, tolerance: float) -> None:
    (found,) = session.run(None, feeds)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    most = tolerance * float(np.abs(wanted).max())
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=most
    )


def network(parse: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """Products and convolutions with what follows them."""
    model = parse(
        """
        a = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        r = Relu (a)
        c = Conv <strides = [2, 2]> (r, v)
        f = Flatten (c)
        m = MatMul (f, u)
        n = Add (m, t)
        y = Tanh (n)
        """,
        inputs="float[4, 3, 18, 18] x",
        outputs="float[4, 512] y",
    )
    return with_weights(
        model,
        w=random(8, 3, 3, 3),
        b=random(8),
        v=random(8, 8, 2, 2) / 8,
        u=random(648, 512) / 25,
        t=random(512),
    )


def test_a_network_is_computed_by_libraries_in_the_order_of_streams(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = network(parse)
    session = alone(model, use_tf32=False, cudnn_conv_algo_search="HEURISTIC")
    for _ in range(3):
        check(session, model, {"x": random(4, 3, 18, 18)}, 1e-5)
    assert [name for name, _ in planted.graphs.ran] == ["eng1"] * 6
    assert len(planted.products.ran) == 3
    assert planted.products.wrong == []


def test_without_libraries_kernels_compute(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    planted.found = set()
    model, feeds = network(parse), {"x": random(4, 3, 18, 18)}
    check(alone(model, use_tf32=0), model, feeds, 1e-5)
    check(alone(model), model, feeds, 1e-2)
    assert not planted.graphs.ran and not planted.products.ran


def test_options_leave_convolutions_to_kernels_and_factors_as_they_are(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = network(parse)
    session = alone(model, enable_cudnn=0, use_tf32=1)
    check(session, model, {"x": random(4, 3, 18, 18)}, 1e-2)
    assert not planted.graphs.ran and planted.products.ran


def test_sessions_that_share_libraries_have_settings_of_their_own(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = network(parse)
    exact = alone(model, use_tf32=0, cudnn_conv_algo_search="HEURISTIC")
    rounded = alone(model, cudnn_conv_algo_search=2, cudnn_conv_use_max_workspace=0)
    feeds = {"x": random(4, 3, 18, 18)}
    for _ in range(2):
        check(rounded, model, feeds, 1e-2)
        check(exact, model, feeds, 1e-5)
    mode, note = library_of_graphs.heur_mode, library_of_graphs.numerical_note
    settings = {
        (tuple(graph.modes), tuple(graph.notes), graph.most)
        for graph in planted.graphs.graphs
    }
    assert settings == {
        ((mode.A, mode.FALLBACK), (note.DOWN_CONVERT_INPUTS, note.TENSOR_CORE), None),
        ((mode.FALLBACK, mode.A), (note.DOWN_CONVERT_INPUTS,), 32 << 20),
    }
    with pytest.raises(AssertionError):  # as the library rounds factors there
        check(rounded, model, feeds, 1e-5)


@pytest.mark.parametrize("fuses", [False, True])
def test_a_bias_of_float16_is_cudnns_where_that_is_asked_for(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto], fuses: bool
) -> None:
    """Then sums are rounded once."""
    half = np.float16
    model = with_weights(
        parse(
            "a = Conv <pads = [1, 1, 1, 1]> (x, w, b)\n y = Relu (a)",
            inputs="float16[2, 3, 9, 9] x",
            outputs="float16[2, 8, 9, 9] y",
        ),
        w=random(8, 3, 3, 3, dtype=half),
        b=random(8, dtype=half),
    )
    session = alone(model, fuse_conv_bias=fuses, cudnn_conv_algo_search="HEURISTIC")
    feeds = {"x": random(2, 3, 9, 9, dtype=half)}
    (found,) = session.run(None, feeds)
    x, w, b = feeds["x"], *map(numpy_helper.to_array, model.graph.initializer)
    around = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.float64))
    wanted = np.maximum(sums + b.astype(np.float64)[:, None, None], 0)
    off = np.abs(found.astype(np.float64) - wanted)
    once = np.spacing(wanted.astype(half)).astype(np.float64) / 2
    assert (off <= once).all() == fuses
    assert (off <= 2 * once + np.spacing(np.abs(sums).astype(half)) / 2).all()
    assert len(planted.graphs.ran) == 1


def test_plans_are_measured_by_the_devices_clock(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = network(parse)
    session = alone(model, fuse_conv_bias=1, tunable_op_enable=1,
                    tunable_op_tuning_enable=1, use_tf32=0)  # fmt: skip
    check(session, model, {"x": random(4, 3, 18, 18)}, 1e-5)
    assert {name for name, _ in planted.graphs.ran} == {"eng1", "eng2"}
    assert {number for number, _, _ in planted.products.ran} == {0, 1, 3}


def test_a_library_that_has_no_plan_leaves_it_to_kernels(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    planted.graphs.declines = "no engine"
    planted.products.status = library_of_products.UNSUPPORTED
    model = network(parse)
    check(alone(model, use_tf32=0), model, {"x": random(4, 3, 18, 18)}, 1e-5)
    assert not planted.graphs.ran and not planted.products.ran


@pytest.mark.parametrize("library", [CublasLt, Cudnn])
def test_what_a_library_does_not_do_after_all_is_found_as_a_session_is_made(
    planted: Planted,
    alone: Session,
    parse: Callable[..., onnx.ModelProto],
    monkeypatch: pytest.MonkeyPatch,
    library: type,
) -> None:
    def prepare(*given: Any) -> None:
        raise KernelRefused("it was planted")

    monkeypatch.setattr(library, "prepare", prepare)
    if library is CublasLt:
        monkeypatch.setattr(library, "takes", lambda *given: True)
    with pytest.raises(errors.UnassignedNode, match="it was planted"):
        alone(network(parse))


def test_calls_are_bound_once_to_the_same_memory(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    model, feeds = network(parse), {"x": random(4, 3, 18, 18)}
    session = alone(model, use_tf32=0, cudnn_conv_algo_search="HEURISTIC")
    planted.products.refuses = {0}
    for _ in range(2):
        check(session, model, feeds, 1e-5)
    planted.products.calls.clear()
    check(session, model, feeds, 1e-5)
    # by the algorithm that did it before
    assert planted.products.calls == ["cublasLtMatmul"]


def test_attention_of_narrow_floats_is_cudnns(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    inputs = ", ".join(f"float16[2, 4, {n}, 16] {name}" for n, name in
                       ((6, "q"), (9, "k"), (9, "v")))  # fmt: skip
    model = parse("y = Attention (q, k, v)", inputs, "float16[2, 4, 6, 16] y", opset=23)
    feeds = {name: random(2, 4, n, 16, dtype=np.float16) for n, name in
             ((6, "q"), (9, "k"), (9, "v"))}  # fmt: skip
    check(alone(model), model, feeds, 4e-3)
    assert planted.graphs.ran
    planted.graphs.ran.clear()
    check(alone(model, sdpa_kernel=1), model, feeds, 4e-3)
    assert not planted.graphs.ran


def test_what_is_missing_is_said_once(
    planted: Planted,
    make_device: Callable[..., CudaDevice],
    caplog: pytest.LogCaptureFixture,
) -> None:
    planted.found = {"cublasLt"}
    device, logger = make_device(), logging.getLogger("test")
    with caplog.at_level(logging.INFO, "test"):
        for _ in range(2):
            opening.open_engines(device, logger)
    (message,) = caplog.messages
    assert "cuDNN is not found: no such file; kernels of the EP's serve" in message
    assert len(device.engines) == 1
    device.close()
    assert not device.engines and planted.products.alive == 0


def test_a_frontend_that_is_broken_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cudnn.py").write_text("raise OSError('libcudnn.so.9: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cudnn", raising=False)
    with pytest.raises(ImportError, match=r"frontend cannot be .* libcudnn\.so\.9"):
        opening.import_frontend()


def test_a_plan_is_measured_while_another_thread_binds_and_queues(
    planted: Planted, alone: Session, parse: Callable[..., onnx.ModelProto]
) -> None:
    """One waits for the device's lock to measure, the other has it and waits to bind:
    they share the lock, so neither waits for both."""
    model = network(parse)
    session = alone(model, use_tf32=0, tunable_op_enable=1, tunable_op_tuning_enable=1)
    feeds = {"x": random(4, 3, 18, 18)}
    check(session, model, feeds, 1e-5)
    done = threading.Event()

    def run_on() -> None:
        while not done.is_set():
            session.run(None, feeds)

    thread = threading.Thread(target=run_on, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            other = network(parse)  # of other weights, and of another workspace
            planted.graphs.plans = {**planted.graphs.plans, f"eng{random(1)[0]}": 64}
            check(alone(other, fuse_conv_bias=1, use_tf32=0), other, feeds, 1e-5)
    finally:
        done.set()
        thread.join(60)
    assert not thread.is_alive()


# CUDA graphs, by the documented sample


def sample(parse: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """That of ONNX Runtime's documentation, with the weights that its results tell."""
    model = parse("Y = MatMul (X, W)", "float[3, 2] X", "float[3, 1] Y")
    return with_weights(model, W=np.array([[1], [2]], np.float32))


def test_the_documented_sample_of_cuda_graphs(
    factory: Any,
    alone: Session,
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    session = alone(sample(parse), enable_cuda_graph=True)
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    y = np.zeros((3, 1), np.float32)
    on_gpu = onnxplug.OrtValue.ortvalue_from_numpy
    x_value, y_value = on_gpu(x, "cuda", 0), on_gpu(y, "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", x_value)
    binding.bind_ortvalue_output("Y", y_value)
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y_value.numpy(), [[5], [11], [17]])
    launched = machine.counts["launchKernel"]
    replayed = machine.counts["graphLaunch"]
    x_value.update_inplace(np.array([[10, 20], [30, 40], [50, 60]], np.float32))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y_value.numpy(), [[50], [110], [170]])
    assert machine.counts["graphLaunch"] == replayed + 1
    assert machine.counts["launchKernel"] == launched


def test_libraries_calls_are_captured_with_kernels(
    planted: Planted,
    alone: Session,
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    model = network(parse)
    session = alone(model, enable_cuda_graph=True, use_tf32=0)
    on_gpu = onnxplug.OrtValue.ortvalue_from_numpy
    x_value = on_gpu(np.zeros((4, 3, 18, 18), np.float32), "cuda", 0)
    y_value = on_gpu(np.zeros((4, 512), np.float32), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x_value)
    binding.bind_ortvalue_output("y", y_value)
    for number in range(5):
        x = random(4, 3, 18, 18)
        x_value.update_inplace(x)
        session.run_with_iobinding(binding)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(y_value.numpy(), wanted, rtol=0, atol=1e-5)
        if number == 2:
            ran = len(planted.products.ran), len(planted.graphs.ran)
    # which the graph has, and nobody calls again
    assert ran == (len(planted.products.ran), len(planted.graphs.ran))
    assert machine.counts["graphLaunch"] >= 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = If (c) <then_branch = t () => (float[2, 3] z) { z = Exp (x) }, "
         "else_branch = e () => (float[2, 3] z) { z = Neg (x) }>", "If"),
        ("s = StringConcat (n, n)\n y = Exp (x)", "StringConcat"),
    ],
)  # fmt: skip
def test_what_cannot_be_captured_is_refused_when_the_session_is_made(
    factory: Any, parse: Callable[..., onnx.ModelProto], body: str, reason: str
) -> None:
    extra, more = ("bool c", "") if reason == "If" else ("string[1] n", ", string[1] s")
    model = parse(body, f"float[2, 3] x, {extra}", f"float[2, 3] y{more}")
    with pytest.raises(OnnxplugError, match=reason):
        onnxplug.InferenceSession(
            model,
            providers=[
                ("CUDAExecutionProvider", {"enable_cuda_graph": "1"}),
                "CPUExecutionProvider",
            ],
        )


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("y = NonZero (x)", "float[2, 3] x", "int64[2, n] y"),
        ("a = Exp (x)\n y = Compress <axis = 0> (a, c)", "float[2, 3] x, bool[2] c",
         "float[n, 3] y"),
    ],
)  # fmt: skip
def test_sizes_that_depend_on_elements_are_not_captured(
    factory: Any,
    alone: Session,
    parse: Callable[..., onnx.ModelProto],
    body: str,
    inputs: str,
    outputs: str,
) -> None:
    model = parse(body, inputs, outputs)
    with pytest.raises(errors.UnassignedNode, match="turn enable_cuda_graph off"):
        alone(model, enable_cuda_graph=1)
    eps = [("CUDAExecutionProvider", {"enable_cuda_graph": 1}), "CPUExecutionProvider"]
    with pytest.raises(errors.SessionRefused, match="run by CPUExecutionProvider"):
        onnxplug.InferenceSession(model, providers=eps)
    alone(model).close()


def test_weights_lie_as_the_library_has_them(
    planted: Planted, alone: Session, machine: Machine, parse: Any
) -> None:
    """With channels last they are turned on the device, once for a session."""
    model = with_weights(
        parse(
            "h = Conv<pads = [1, 1, 1, 1]>(x, w) y = Conv(h, v)",
            "float[N, 8, H, 6] x", "float[N, 4, K, 4] y",
        ),
        w=random(8, 8, 3, 3), v=random(4, 8, 3, 3),
    )  # fmt: skip
    session = alone(model, prefer_nhwc=1, cudnn_conv_algo_search="HEURISTIC")
    launches = []
    for size in (5, 7, 9):
        before = machine.counts["launchKernel"]
        check(session, model, {"x": random(2, 8, size, 6)}, 1e-3)
        launches.append(machine.counts["launchKernel"] - before)
    assert len(planted.graphs.ran) == 6
    # those of the second one, whose images have channels last
    assert launches == [launches[2] + 1, launches[2], launches[2]]
