"""Compiling and running: numbers, shapes, memory, threads."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.ep import CapabilityReport
from onnxplug.errors import (
    OnnxplugError,
    OutOfMemory,
    OutputMismatch,
    UnassignedNode,
)
from onnxplug_openvino import provider as provider_module
from onnxplug_openvino.provider import OpenVINOProvider

EP = "OpenVINOExecutionProvider"


def claim_all(graph: Any, **options: Any) -> CapabilityReport:
    return CapabilityReport.per_node(graph, lambda node: None)


def matmul(
    inner: int = 1024, rows: int | str = 8, columns: int = 16
) -> tuple[Any, Any]:
    """A product with a large constant; the model and the constant."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((inner, columns), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), weight


def test_a_product_is_as_exact_as_float32_by_default(alone: Callable[..., Any]) -> None:
    # OpenVINO's own default on processors with AMX is bfloat16: errors of 1e-2
    model, weight = matmul()
    x = np.random.default_rng(1).standard_normal((8, 1024), np.float32)
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    found = alone(model).run(None, {"x": x})[0]
    assert np.abs(found - exact).max() / np.abs(exact).max() < 1e-5


def test_quantised_weights_stay_integers(alone: Callable[..., Any]) -> None:
    """It finds what dequantises them, and keeps a quarter of the bytes."""
    generator = np.random.default_rng(2)
    weight = generator.integers(-128, 128, (64, 16), np.int8)
    scale = generator.random(16, np.float32)
    zero = np.zeros(16, np.int8)
    model, _ = matmul(64)
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name)
        for array, name in ((weight, "q"), (scale, "s"), (zero, "z"))
    )
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1)
    model.graph.node.insert(0, node)
    session = alone(model)
    (partition,) = session.explain().partitions
    assert partition.operators == {"DequantizeLinear": 1, "MatMul": 1}
    x = generator.standard_normal((8, 64), np.float32)
    expected = x @ (weight * scale)
    found = session.run(None, {"x": x})[0]
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-5


def test_bfloat16_is_computed_when_asked_for(
    alone: Callable[..., Any], core: Any
) -> None:
    if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor does not compute bfloat16")
    model, weight = matmul()
    x = np.random.default_rng(1).standard_normal((8, 1024), np.float32)
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    found = alone(model, precision="BF16").run(None, {"x": x})[0]
    assert 1e-4 < np.abs(found - exact).max() / np.abs(exact).max() < 5e-2


def test_a_small_network_agrees_with_the_reference(alone: Callable[..., Any]) -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[n, 3, 12, 12] x, float[4, 3, 3, 3] w, float[4] b)
            => (float[n, 4] y, float[n, 4, 12, 12] r)
        {
            c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            r = Relu (c)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            g = GlobalAveragePool (p)
            f = Flatten (g)
            y = Softmax <axis = -1> (f)
        }
        """
    )
    generator = np.random.default_rng(0)
    weights = {
        "w": generator.standard_normal((4, 3, 3, 3), np.float32),
        "b": generator.standard_normal(4, np.float32),
    }
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    del model.graph.input[1:]
    session = alone(model)
    from onnx.reference import ReferenceEvaluator

    reference = ReferenceEvaluator(model)
    for batch in (1, 3, 2):
        x = generator.standard_normal((batch, 3, 12, 12), np.float32)
        right = reference.run(None, {"x": x})
        for ours, theirs in zip(session.run(None, {"x": x}), right, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [4, 4096], ids=["small", "large"])
@pytest.mark.parametrize("rows", [3, "n"], ids=["static", "dynamic"])
def test_outputs_belong_to_the_host(
    alone: Callable[..., Any], rows: int | str, columns: int
) -> None:
    model, weight = matmul(64, rows, columns)
    session = alone(model)
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal((3, 64), np.float32) for _ in range(4)]
    outputs = [session.run(None, {"x": x})[0] for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(y, x @ weight, rtol=1e-4, atol=1e-4)
        assert y.flags.writeable
    kept = [y.copy() for y in outputs]
    del session
    gc.collect()
    for y, copy in zip(outputs, kept, strict=True):
        np.testing.assert_array_equal(y, copy)


@pytest.mark.parametrize("columns", [4, 4096], ids=["small", "large"])
@pytest.mark.parametrize("rows", [3, "n"], ids=["static", "dynamic"])
def test_bound_outputs_are_filled_and_then_left_alone(
    alone: Callable[..., Any], rows: int | str, columns: int
) -> None:
    model, weight = matmul(64, rows, columns)
    session = alone(model)
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    target = np.zeros((3, columns), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target, x @ weight, rtol=1e-4, atol=1e-4)
    before = target.copy()
    session.run(None, {"x": -x})
    np.testing.assert_array_equal(target, before)


@pytest.mark.parametrize("size", [4, 1 << 16], ids=["small", "large"])
def test_bound_arrays_may_have_any_form(
    parse: Callable[..., Any], alone: Callable[..., Any], size: int
) -> None:
    model = parse("y = Add (x, x)", f"int64[{size}] x", f"int64[{size}] y")
    session = alone(model, int64_in_32_bits=True)
    x = np.arange(size)
    other = np.dtype("q") if np.dtype("q") is not x.dtype else np.dtype("l")
    odd = np.empty(x.nbytes + 1, np.uint8)[1:]
    for target in (
        x.astype(other),
        pickle.loads(pickle.dumps(0 * x)),
        (0 * x).view(np.recarray),
        np.zeros(2 * size, x.dtype)[::2],
        odd.view(x.dtype),
    ):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", onnxplug.OrtValue(x.astype(target.dtype)))
        binding.bind_ortvalue_output("y", onnxplug.OrtValue(target))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target, 2 * x)


def test_a_bound_output_of_another_shape_is_an_error_and_not_written(
    alone: Callable[..., Any],
) -> None:
    model, _ = matmul(64, "n", 4)
    session = alone(model)
    target = np.full((2, 4), 7, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ones((3, 64), np.float32))
    binding.bind_output("y", "cpu", 0, np.float32, (2, 4), target.ctypes.data)
    with pytest.raises(OutputMismatch):
        session.run_with_iobinding(binding)
    assert (target == 7).all()


def test_inputs_may_lie_anyhow_in_memory(alone: Callable[..., Any]) -> None:
    model, weight = matmul(256, 64, 4)  # an input too large to be copied
    session = alone(model)
    x = np.random.default_rng(1).standard_normal((64, 256), np.float32)
    right = x @ weight
    raw = np.zeros(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(x.shape)  # not aligned
    odd[...] = x
    frozen = x.copy()
    frozen.setflags(write=False)
    unpickled = pickle.loads(pickle.dumps(x))
    strided = np.repeat(x, 2, 0)[::2]
    for given in (x, odd, frozen, unpickled, np.asfortranarray(x), strided):
        before = given.copy()
        found = session.run(None, {"x": given})[0]
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(given, before)


def test_an_array_changed_in_place_is_read_anew(alone: Callable[..., Any]) -> None:
    model, weight = matmul(256, 64, 4)
    session = alone(model)
    x = np.ones((64, 256), np.float32)
    for factor in (1, 2, -3):
        x[...] = factor
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-3)


def test_an_output_may_be_an_input(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    model = parse(
        "r = Reshape (x, s) y = Relu (r)", "float[2, 3] x",
        "float[3, 2] y, float[3, 2] r", weights="int64[2] s = {3, 2}",
    )  # fmt: skip
    x = -np.ones((2, 3), np.float32)
    y, r = alone(model).run(None, {"x": x})
    assert (x == -1).all() and (r == -1).all() and (y == 0).all()


def test_zero_sizes(parse: Callable[..., Any], alone: Callable[..., Any]) -> None:
    model, _ = matmul(64, "n", 4)
    session = alone(model)
    assert session.run(None, {"x": np.zeros((0, 64), np.float32)})[0].shape == (0, 4)
    assert session.run(None, {"x": np.zeros((2, 64), np.float32)})[0].shape == (2, 4)
    total = parse(
        "y = ReduceSum <keepdims = 0> (x, axes)", "float[n, 3] x", "float[3] y",
        weights="int64[1] axes = {0}",
    )  # fmt: skip
    found = alone(total).run(None, {"x": np.zeros((0, 3), np.float32)})[0]
    np.testing.assert_array_equal(found, np.zeros(3))


def test_scalars(parse: Callable[..., Any], alone: Callable[..., Any]) -> None:
    session = alone(parse("y = Sigmoid (x)", "float x", "float y"))
    (found,) = session.run(None, {"x": np.array(0, np.float32)})
    assert found.shape == () and found == 0.5


@pytest.mark.parametrize("rows", [16, "n"], ids=["static", "dynamic"])
def test_runs_overlap(alone: Callable[..., Any], rows: int | str) -> None:
    model, weight = matmul(256, rows, 64)
    session = alone(model, num_streams=2, num_of_threads=2)
    wrong: list[object] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(20):
            count = 16 if rows == 16 else int(generator.integers(1, 30))
            x = generator.standard_normal((count, 256), np.float32)
            found = session.run(None, {"x": x})[0]
            if not np.allclose(found, x @ weight, rtol=1e-3, atol=1e-3):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shapes_can_be_pinned(alone: Callable[..., Any]) -> None:
    model, weight = matmul(64, "n", 4)
    session = alone(model, reshape_input="x[2..4,64]")
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-4)
    with pytest.raises(OnnxplugError):
        session.run(None, {"x": np.ones((7, 64), np.float32)})
    # and the request that failed is not used again
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-4)


def test_shapes_can_be_compiled_one_by_one(alone: Callable[..., Any]) -> None:
    model, weight = matmul(64, "n", 4)
    session = alone(model, disable_dynamic_shapes=True)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 5):
        x = np.full((rows, 64), rows, np.float32)
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-3)
    (part,) = session.explain().partitions
    kept = part.specialisations.kept
    assert kept == tuple(f"x[{rows}, 64]" for rows in (4, 6, 7, 8, 9, 10, 1, 5))
    assert part.specialisations.compiled["run"] == 11


@pytest.mark.parametrize("node", ["Relu (x)", "MatMul (x, w)", "Softmax (x)"])
def test_padding_changes_nothing(alone: Callable[..., Any], node: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[n,3] x) => (float[n,3] y)
        <float[3,3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{ y = {node} }}"""
    )
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.pad_dimensions", "n=4,16")
    padded = onnxplug.InferenceSession(
        model, options, providers=[(EP, {"disable_dynamic_shapes": True})]
    )
    plain = onnxplug.InferenceSession(model, providers=[EP])
    for rows in (1, 3, 4, 5, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        (found,), (expected,) = (s.run(None, {"x": x}) for s in (padded, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    (part,) = padded.explain().partitions
    assert part.specialisations.kept == ("x[4, 3]", "x[16, 3]", "x[17, 3]")


def test_large_weights_are_shared_not_copied() -> None:
    # in a process of its own, where nothing else allocates
    program = """
import numpy as np, onnxplug, openvino
from onnxplug_openvino import model
seen = []
def spy(core, partition, read=model.read_partition):
    found, arrays = read(core, partition)
    constants = [n for n in found.get_ops() if n.get_type_name() == "Constant"]
    seen.append([c.data.ctypes.data for c in constants if c.data.nbytes > 65536])
    seen.append([a.ctypes.data for a in arrays])
    return found, arrays
import onnxplug_openvino.provider as provider
provider.read_partition = spy
import sys
onnxplug.InferenceSession(sys.argv[1], providers=["openvino"])
assert len(seen[0]) == 1 and seen[0] == seen[1], seen
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matmul.onnx"
        onnx.save(matmul(1024, 1, 1024)[0], path)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)


def test_closing_releases_the_model_and_the_weights(
    openvino: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = matmul(1024, 1, 1024)
    made: list[Any] = []
    compile_partition = OpenVINOProvider.compile

    def spy(self: Any, partition: Any) -> Any:
        made.append(compile_partition(self, partition))
        return made[-1]

    monkeypatch.setattr(OpenVINOProvider, "compile", spy)
    with onnxplug.InferenceSession(model, providers=[EP]) as session:
        (partition,) = made
        weights = [weakref.ref(array) for array in partition._weights]
        assert weights and all(weight() is not None for weight in weights)
        assert partition._idle
        session.run(None, {"x": np.ones((1, 1024), np.float32)})
    gc.collect()
    assert not partition._idle and partition._compiled is None
    assert all(weight() is None for weight in weights)


def test_closing_twice_is_fine_and_running_after_is_an_error(
    alone: Callable[..., Any],
) -> None:
    model, _ = matmul(64, 3, 4)
    session = alone(model)
    x = np.ones((3, 64), np.float32)
    session.run(None, {"x": x})
    session.close()
    session.close()
    with pytest.raises(OnnxplugError):
        session.run(None, {"x": x})


def test_nothing_falls_back_when_it_must_not(
    parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    with pytest.raises(UnassignedNode, match="float64"):
        alone(parse("y = Relu (x)", "double[2] x", "double[2] y"))


def test_mixed_models_are_split(parse: Callable[..., Any]) -> None:
    model = parse(
        "a = Relu (x) b = Cast <to = 11> (a) c = Exp (b) d = Cast <to = 1> (c) "
        "y = Neg (d)"
    )
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    eps = {node.op_type: node.ep for node in session.explain().nodes}
    assert eps["Relu"] == EP and eps["Neg"] == EP and eps["Exp"] != EP
    x = np.array([[1, -2], [0.5, 0]], np.float32)
    found = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(found, -np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_what_openvino_cannot_convert_is_declined_alone(
    parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the list would refuse it; here the list is wrong
    monkeypatch.setattr(provider_module, "judge", claim_all)
    model = parse("a = Relu (x) b = Det (a) y = Add (a, b)")
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    report = session.explain()
    assert {node.op_type: node.ep for node in report.nodes} == {
        "Relu": EP, "Det": "CPUExecutionProvider", "Add": EP,
    }  # fmt: skip
    (back,) = report.given_back
    assert "Det-" in back.reason.detail
    x = np.array([[1, 2], [3, 5]], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x - 1, atol=1e-6)


def test_an_input_handed_through_costs_its_node_alone(
    parse: Callable[..., Any],
) -> None:
    model = parse(
        "y = Relu (x) t = Dropout (x) z = Reshape (t, shape)",
        "float[2, 2] x", "float[2, 2] y, float[2, 2] z",
        weights="int64[2] shape = {2, 2}",
    )  # fmt: skip
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    placed = {node.op_type: node.ep for node in session.explain().nodes}
    assert placed["Relu"] == EP
    x = np.array([[1, -2], [3, -5]], np.float32)
    relu, same = session.run(None, {"x": x})
    np.testing.assert_array_equal(relu, np.maximum(x, 0))
    np.testing.assert_array_equal(same, x)


def test_bfloat16_and_float16_models(alone: Callable[..., Any]) -> None:
    import ml_dtypes

    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        graph = helper.make_graph(
            [helper.make_node("Mul", ["x", "x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", kind, ["n", 3])],
            [helper.make_tensor_value_info("y", kind, ["n", 3])],
        )
        imports = [helper.make_opsetid("", 21)]
        session = alone(helper.make_model(graph, opset_imports=imports, ir_version=10))
        x = np.arange(6).reshape(2, 3).astype(dtype)
        (found,) = session.run(None, {"x": x})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x * x)


def test_a_session_goes_on_when_there_was_no_memory(alone: Callable[..., Any]) -> None:
    # 2**48 bytes are more than a process has addresses for
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[n,1] x, float[1,m] z) => (float[n,m] y) { y = Add (x, z) }"""
    session = alone(onnx.parser.parse_model(text))
    small = {"x": np.ones((4, 1), np.float32), "z": np.ones((1, 6), np.float32)}
    count = 1 << 23
    large = {"x": np.ones((count, 1), np.float32), "z": np.ones((1, count), np.float32)}
    for _ in range(2):
        assert session.run(None, small)[0].shape == (4, 6)
        with pytest.raises(OutOfMemory, match="281474976710656 bytes"):
            session.run(None, large)
    np.testing.assert_array_equal(session.run(None, small)[0], np.full((4, 6), 2))
