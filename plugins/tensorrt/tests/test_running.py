"""Models on the EP compute what ONNX's reference does."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from plugins.cuda.tests import networks

import onnxplug
from onnxplug import errors

from .conftest import EP
from .standin import TensorRT

RNG = np.random.default_rng(5)
SQUARE = "float[3,3] w = {1,2,3,4,5,6,7,8,9}"
OPEN = {"inputs": "float[batch, 3] x", "outputs": "float[batch, 3] y"}


def rows(count: int) -> Any:
    return RNG.standard_normal((count, 3)).astype(np.float32)


def check(
    session: onnxplug.InferenceSession, model: onnx.ModelProto, *feed: Any
) -> None:
    names = [value.name for value in model.graph.input]
    fed = dict(zip(names, feed, strict=True))
    found = session.run(None, fed)
    wanted = ReferenceEvaluator(model).run(None, fed)
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(
            one, other, 1e-4, 1e-5 * np.abs(other).max(initial=1)
        )


def on_gpu(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def test_a_static_model(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    model = parse("m = MatMul(x, w) y = Relu(m)", weights=SQUARE)
    session = alone(model)
    for _ in range(3):
        check(session, model, rows(2))
    assert tensorrt.counts["builds"] == tensorrt.counts["contexts"] == 1
    assert {node.ep for node in session.explain().nodes} == {EP}


def test_shapes_that_runs_bring(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    """An engine takes all shapes between those that it has met."""
    model = parse("m = MatMul(x, w) y = Relu(m)", **OPEN, weights=SQUARE)
    session = alone(model)
    builds = []
    for batch in (2, 5, 3, 2, 4, 1, 2):
        check(session, model, rows(batch))
        builds.append(tensorrt.counts["builds"])
    assert builds == [1, 2, 2, 2, 2, 3, 3]
    gc.collect()
    assert len(tensorrt.engines) == 1
    session.close()
    gc.collect()
    assert not tensorrt.engines


@pytest.mark.parametrize(
    ("name", "feeds"),
    [
        (
            "resnet",
            [RNG.standard_normal((n, 3, 32, 32)).astype(np.float32) for n in (1, 2)],
        ),
        (
            "bert",
            [RNG.integers(0, networks.WORDS, shape) for shape in ((1, 7), (2, 5))],
        ),
    ],
)
def test_networks(alone: Any, name: str, feeds: list[Any]) -> None:
    model = getattr(networks, name)()
    session = alone(model)
    for feed in feeds:
        check(session, model, feed)


@pytest.mark.parametrize("given", [{}, {"trt_fp16_enable": 1}])
def test_weights_of_bodies(alone: Any, given: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    weight = random.standard_normal((32, 32), np.float32) / 8
    model = onnx.parser.parse_model("""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2, 32] x) => (float[2, 32] y) {
          count = Constant<value_int = 3>()
          on = Constant<value = bool {1}>()
          y = Loop (count, on, x) <
            body = body (int64 i, bool c, float[2, 32] v) => (bool d, float[2, 32] u) {
              d = Identity(c)
              p = MatMul(v, w)
              u = Tanh(p)
            }
          >
        }""")
    body = model.graph.node[-1].attribute[0].g
    body.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    x = random.standard_normal((2, 32), np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = alone(model, **given).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, 0, 2e-3 if given else 1e-6)


def test_sizes_that_depend_on_elements(alone: Any, parse: Any) -> None:
    model = parse(
        "n = NonZero(x) y = Transpose<perm = [1, 0]>(n)", outputs="int64[n, 2] y"
    )
    session = alone(model)
    for x in (np.eye(2, 3), np.ones((2, 3)), np.zeros((2, 3)), np.ones((2, 3))):
        check(session, model, x.astype(np.float32))
    bound = onnxplug.OrtValue.ortvalue_from_shape_and_type([2, 2], np.int64, "cuda", 0)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.eye(2, 3, dtype=np.float32))
    binding.bind_ortvalue_output("y", bound)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(bound.numpy(), [[0, 0], [1, 1]])
    binding.bind_cpu_input("x", np.ones((2, 3), np.float32))
    with pytest.raises(errors.OnnxplugError, match="bind one like the output"):
        session.run_with_iobinding(binding)


def test_quantised_values_stay_as_the_model_says(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse(
        "q = QuantizeLinear(x, s, o) d = DequantizeLinear(q, s, o) "
        "f = DequantizeLinear(w, s, o) y = MatMul(d, f)",
        weights="float s = {0.0625}, int8 o = {0}, int8[3, 3] w = "
        "{1, -2, 3, 4, -5, 6, 7, -8, 9}",
    )
    check(alone(model), model, rows(2))
    network = tensorrt.networks[-1].model
    assert [node.op_type for node in network.graph.node].count("DequantizeLinear") == 2


def test_no_elements(alone: Any, parse: Any) -> None:
    model = parse("y = Exp(x)", **OPEN)
    session = alone(model)
    for batch in (0, 2, 0):
        check(session, model, rows(batch))


def test_other_element_types(alone: Any, parse: Any) -> None:
    model = parse(
        "a = Cast<to = 16>(x) y = Add(a, a) z = Cast<to = 9>(x) b = Cast<to = 3>(x) "
        "v = Cast<to = 7>(b)",
        outputs="bfloat16[2, 3] y, bool[2, 3] z, int64[2, 3] v",
    )
    check(alone(model), model, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_an_output_over_an_input_is_not_taken(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    tensorrt.aliases["y"] = "x"
    model = parse("y = Exp(x)")
    with pytest.warns(errors.EpWarning, match="writes output 'y' over input 'x'"):
        session = make(model)
    check(session, model, rows(2))


def test_bound_values(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    model = parse("m = MatMul(x, w) y = Relu(m)", **OPEN, weights=SQUARE)
    session, x = alone(model), rows(4)
    binding = session.io_binding()
    y = onnxplug.OrtValue.ortvalue_from_shape_and_type([4, 3], np.float32, "cuda", 0)
    binding.bind_ortvalue_input("x", on_gpu(x))
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(y.numpy(), wanted, 1e-5)
    small = onnxplug.OrtValue.ortvalue_from_shape_and_type(
        [3, 3], np.float32, "cuda", 0
    )
    binding.bind_ortvalue_output("y", small)
    with pytest.raises(errors.OnnxplugError, match=r"float32\[4, 3\]"):
        session.run_with_iobinding(binding)


@pytest.mark.parametrize("shares", [0, 1])
def test_many_threads(alone: Any, parse: Any, tensorrt: TensorRT, shares: int) -> None:
    """Each has an execution context of its own, which no two streams use at once."""
    model = parse("m = MatMul(x, w) y = Relu(m)", **OPEN, weights=SQUARE)
    session = alone(model, trt_context_memory_sharing_enable=shares)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for batch in range(1, 6):
                check(session, model, rows(batch + number % 2))
        except BaseException as error:  # noqa: BLE001 it is the test's
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    session.close()


def test_captured_runs(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    model = parse("y = Exp(x)")
    session = alone(model, trt_cuda_graph_enable=1)
    binding = session.io_binding()
    x = on_gpu(np.zeros((2, 3), np.float32))
    y = onnxplug.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for number in range(5):
        content = np.full((2, 3), number, np.float32)
        x.update_inplace(content)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), np.exp(content), rtol=1e-6)
    counts = tensorrt.machine.counts
    assert (counts["execute_async_v3"], counts["graphLaunch"]) == (2, 4)
    # another run has another context meanwhile
    check(session, model, rows(2))


def test_captured_runs_outlive_their_engine(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse("a = Exp(x) y = Sin(a)", **OPEN)
    session = alone(model, trt_cuda_graph_enable=1)
    bindings = []
    for batch in (2, 4):  # the latter has another engine built
        x = on_gpu(rows(batch))
        shape = [batch, 3]
        y = onnxplug.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cuda", 0)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        bindings.append((binding, x, y))
        for _ in range(3):
            for each, fed, out in bindings:
                content = rows(fed.shape()[0])
                fed.update_inplace(content)
                session.run_with_iobinding(each)
                np.testing.assert_allclose(out.numpy(), np.sin(np.exp(content)), 1e-5)
    assert tensorrt.counts["builds"] == 2
    assert tensorrt.machine.counts["execute_async_v3"] == 4


def test_what_cannot_be_captured_is_refused(alone: Any, parse: Any) -> None:
    model = parse("y = NonZero(x)", outputs="int64[2, n] y")
    with pytest.raises(errors.UnassignedNode, match="turn trt_cuda_graph_enable off"):
        alone(model, trt_cuda_graph_enable=1)


def test_a_failure_is_that_of_its_run(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse("y = Exp(x)")
    session = alone(model)
    check(session, model, rows(2))
    tensorrt.machine.plan("execute_async_v3", 1)
    with pytest.raises(errors.EpError, match="invalid argument"):
        session.run(None, {"x": rows(2)})
    check(session, model, rows(2))
    assert tensorrt.counts["contexts"] == 2
