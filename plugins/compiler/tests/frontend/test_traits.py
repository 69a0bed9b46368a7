"""The traits of operators are what ONNX says of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.traits import NONE, TRAITS
from onnxplug_compiler.schedule.operations.registry import OPERATORS

OPSET = 21
SHAPE = (2, 1, 3, 4)

MORE = {
    "Identity": ({}, {}),
    "Reshape": ({"to": np.array([4, 6])}, {}),
    "Slice": (
        {
            "starts": np.array([1, 3]),
            "ends": np.array([2, -9]),
            "axes": np.array([2, 3]),
            "steps": np.array([1, -2]),
        },
        {},
    ),
    "Split": ({}, {"num_outputs": 1, "axis": 3}),
    "Squeeze": ({"axes": np.array([1])}, {}),
    "Unsqueeze": ({"axes": np.array([0, 5])}, {}),
    "Transpose": ({}, {"perm": [3, 1, 0, 2]}),
}
"""Further inputs, and attributes."""


def result(operator: str, x: np.ndarray) -> np.ndarray:
    inputs, attributes = MORE.get(operator, ({}, {}))
    node = helper.make_node(operator, ["x", *inputs], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in inputs.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    return y


def having(trait: str) -> list[str]:
    return [name for name, traits in TRAITS.items() if getattr(traits, trait)]


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(SHAPE, np.float32)


@pytest.mark.parametrize("operator", having("reshapes"))
def test_elements_stay_in_order(operator: str) -> None:
    x = numbers(0)
    y = result(operator, x)
    assert y.shape != x.shape
    np.testing.assert_array_equal(y.ravel(), x.ravel())


@pytest.mark.parametrize("operator", having("permutes"))
def test_elements_are_the_same(operator: str) -> None:
    x = numbers(0)
    y = result(operator, x)
    assert (y.ravel() != x.ravel()).any()
    np.testing.assert_array_equal(np.sort(y, axis=None), np.sort(x, axis=None))


@pytest.mark.parametrize("operator", having("selects"))
def test_elements_are_some_of_the_input(operator: str) -> None:
    x = numbers(0)
    assert set(result(operator, x).ravel()) <= set(x.ravel())


@pytest.mark.parametrize("operator", having("of_shapes"))
def test_only_shapes_are_read(operator: str) -> None:
    one, other = result(operator, numbers(0)), result(operator, numbers(1))
    np.testing.assert_array_equal(one, other)


def test_traits_are_of_operators_that_exist() -> None:
    planned = {name for names in OPERATORS.values() for name in names.split()}
    for operator, traits in TRAITS.items():
        if "." in operator:  # of another domain, whose schemas are not ONNX's
            assert operator in planned
            continue
        schema = onnx.defs.get_schema(operator)
        # what says that its results are not determined, or has a seed
        random = "seed" in schema.attributes
        assert traits.varies == random
    seeded = {s.name for s in onnx.defs.get_all_schemas() if "seed" in s.attributes}
    assert seeded <= {*having("varies")}


def test_operators_of_other_domains_have_none() -> None:
    def call(domain: str) -> Call:
        return Call("MatMul", domain, 1, ("a", "b"), ("c",), {}, (0,), (None,))

    assert call("").traits.anchors
    assert call("acme").traits == NONE
