"""Where libraries want what they compute with: in which memory, in which order of axes,
in which groups."""

from __future__ import annotations

import ctypes

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import onnxplug
from onnxplug import errors

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"
NHWC = "com.ms.internal.nhwc"


def open_session(model: bytes, **options: str) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model, providers=[(EXAMPLE, options), "cpu"])


def owners(session: onnxplug.InferenceSession) -> list[tuple[str, str, str]]:
    return [(each.domain, each.op_type, each.ep) for each in session.explain().nodes]


@pytest.mark.parametrize(
    "hosted", [[], ["HOST_INPUT"], ["HOST_OUTPUT"], ["HOST_INPUT", "HOST_OUTPUT"]]
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_kernel_has_its_arguments_where_it_wants_them(
    register, hosted, is_constant
) -> None:
    register("DEVICE_MEMORY", "KERNELS", *hosted)
    model, given = product(2, 3, nodes=2), feeds(2, 3)
    if is_constant:
        loaded = onnx.load_from_string(model)
        graph = loaded.graph
        graph.initializer.append(onnx.numpy_helper.from_array(given["y"], "y"))
        del graph.input[1]
        model = loaded.SerializeToString()
    fed = {"x": given["x"]} if is_constant else given
    with open_session(model) as session:
        assert [ep for _, op, ep in owners(session) if op == "Mul"] == [EXAMPLE] * 2
        (found,) = session.run(None, fed)
    expected = (given["x"] + given["x"]) * given["y"] ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "text", ["{ a = Neg(x) y = Mul(a, a) }", "{ a = Mul(x, x) y = Mul(a, a) }"]
)
@pytest.mark.parametrize("streams", [[], ["STREAMS"]])
def test_a_value_that_is_wanted_in_two_memories_is_copied(
    register, text, streams
) -> None:
    register("DEVICE_MEMORY", "KERNELS", "HOST_INPUT", *streams)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => '
        f"(float[2, 3] y) {text}"
    )
    x = feeds(2, 3)["x"]
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    with open_session(model.SerializeToString()) as session:
        assert {ep for _, op, ep in owners(session) if op == "Mul"} == {EXAMPLE}
        for _ in range(3):
            (found,) = session.run(None, {"x": x})
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_memory_is_named_as_the_library_names_it(register) -> None:
    """Names of other EPs' are in small letters, and found in others as well."""
    register("DEVICE_MEMORY", 'MEMORY="Example_Memory"')
    given = feeds(2, 3)
    with open_session(product(2, 3)) as session:
        binding = session.io_binding()
        for name, array in given.items():
            value = onnxplug.OrtValue.ortvalue_from_numpy(array, "Example_Memory")
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("v1", "Example_Memory")
        session.run_with_iobinding(binding)
        (found,) = binding.get_outputs()
        assert found.device_name() == "Example_Memory"
        expected = (given["x"] + given["x"]) * given["y"]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
        del binding, value, found
    with pytest.raises(errors.InvalidArgument, match="memory named 'example_memory'"):
        onnxplug.OrtValue.ortvalue_from_numpy(given["x"], "EXAMPLE_memory")


def test_memory_that_was_freed_is_used_for_the_next_of_its_size(register) -> None:
    """Some of it: large ones are freed at once, and so are those of many sizes."""
    path = register("DEVICE_MEMORY", "KERNELS")
    allocated = ctypes.CDLL(str(path)).example_allocated
    with open_session(product("n", 3)) as session:

        def left(size: int) -> int:
            given = feeds(size, 3)
            (found,) = session.run(None, given)
            expected = (given["x"] + given["x"]) * given["y"]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            return allocated()

        before = left(100_000)
        assert left(100_000) == before
        counts = [left(size) for size in (2, 2, 2, 7, 7, 2, 7)]
        assert before < counts[0] <= before + 2
        assert set(counts[3:]) == {counts[3]}
        assert max(map(left, range(1, 60))) <= before + 16
        assert left(2) == left(2)
    onnxplug.unregister_ep_library("example")
    assert allocated() == 0


_POOLS = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3, 4, 5] x) => (float[2, 3, 1, 1] y) {
  a = Relu(x) b = GlobalAveragePool(a) y = Neg(b)
}"""


# where all of the library's nodes are refused, that is warned of
@pytest.mark.filterwarnings("ignore:ExampleExecutionProvider was asked for")
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_channels_are_where_a_library_wants_them(register, kind) -> None:
    """It computes with channels last, whatever it is given."""
    register(f"NHWC={kind}")
    model = onnx.parser.parse_model(_POOLS)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    with open_session(model.SerializeToString()) as session:
        pools = [each for each in owners(session) if each[1] == "GlobalAveragePool"]
        if kind == 3:  # as it says; what it computes is otherwise, though
            assert pools == [("", "GlobalAveragePool", EXAMPLE)]
            return
        (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    wanted = (NHWC, EXAMPLE) if kind == 1 else ("", "CPUExecutionProvider")
    assert pools == [(wanted[0], "GlobalAveragePool", wanted[1])]


@pytest.mark.filterwarnings("ignore:ExampleExecutionProvider was asked for")
def test_channels_whose_place_is_not_known_are_not_left_to_it(register) -> None:
    register("NHWC=1")
    model = onnx.parser.parse_model(_POOLS)
    for each in (*model.graph.input, *model.graph.output):
        each.type.tensor_type.ClearField("shape")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    with open_session(model.SerializeToString()) as session:
        assert "its rank is not known" in str(session.explain())
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5)


def test_a_group_that_a_path_leaves_is_split(register) -> None:
    """Two products with a sum of both between them, which the library has not."""
    register()
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) {
          a = Mul(x, y) b = Neg(a) z = Mul(a, b)
        }"""
    )
    given = feeds(2, 3)
    with open_session(model.SerializeToString(), mode="one_group") as session:
        assert [ep for _, op, ep in owners(session) if op == "Mul"] == [EXAMPLE] * 2
        (found,) = session.run(None, given)
    product = given["x"] * given["y"]
    np.testing.assert_allclose(found, -product * product, rtol=1e-6)


@pytest.mark.parametrize("memory", [[], ["DEVICE_MEMORY"]])
def test_a_run_is_cancelled_between_kernels(register, memory) -> None:
    """Each takes a millisecond, and there are some hundred."""
    register("KERNELS", *memory)
    given = feeds(2, 3)
    with open_session(product(2, 3, nodes=300), mode="one_at_a_time") as session:
        (found,) = session.run(None, given)
        options = onnxplug.RunOptions()
        options.timeout = 0.05
        with pytest.raises(errors.RunCancelled):
            session.run(None, given, options)
        np.testing.assert_array_equal(session.run(None, given)[0], found)


@pytest.mark.parametrize("memory", [[], ["DEVICE_MEMORY"]])
def test_memory_between_kernels_is_planned_for_the_shapes_that_come(
    register, memory
) -> None:
    register("KERNELS", *memory)
    with open_session(product("n", 3, nodes=5)) as session:
        for size in (2, 2, 2, 7, 7, 0, 0, 1, 2, 2):
            given = feeds(size, 3)
            expected = (given["x"] + given["x"]) * given["y"] ** 5
            for _ in range(2):
                (found,) = session.run(None, given)
                np.testing.assert_allclose(found, expected, rtol=1e-5)
