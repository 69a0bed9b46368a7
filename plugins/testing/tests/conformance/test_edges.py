"""What is made of cases at edges is ONNX's, and is what it is said to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxplug_testing.conformance.cases import as_case
from onnxplug_testing.conformance.edges import edges, targets
from onnxplug_testing.conformance.opinions import by_cpu, by_reference, difference
from onnxplug_testing.measuring.variations import Variation


def case_of(operator: str, *inputs: Any, **attributes: Any) -> Variation:
    """A case of *operator* in opset 18."""
    names = [f"x{position}" for position in range(len(inputs))]
    schema = onnx.defs.get_schema(operator, 18)
    return Variation(
        case="made here",
        kind="suite",
        node=helper.make_node(operator, names, ["y"], **attributes),
        since=schema.since_version,
        opset=18,
        inputs=inputs,
        output_types=(1,),
    )


def shapes_of(made: Variation) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in made.inputs if array is not None)


def floats(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 2


def test_each_size_is_1_in_turn() -> None:
    case = case_of("Gemm", floats(2, 3), floats(3, 4), floats(2, 4))
    shapes = {shapes_of(made) for made in edges([case])} - {shapes_of(case)}
    assert ((2, 3), (3, 4), (2, 1)) in shapes
    assert ((2, 3), (3, 4), (1, 4)) in shapes
    assert len({each for each in shapes if len(each) == 3}) == 9


def test_an_axis_is_counted_from_the_end_and_not_the_last() -> None:
    cases = (
        case_of("Softmax", floats(2, 3, 4), axis=2),
        replace(case_of("ArgMax", floats(2, 3), keepdims=0), output_types=(7,)),
        case_of("Gather", floats(2, 3), np.array([1, 0]), axis=1),
    )
    for case in cases:
        made = next(edges([case]))
        axes = [a.i for a in made.node.attribute if a.name == "axis"]
        assert axes == [-2], case.node.op_type
        assert not difference(by_cpu(as_case(made)), by_reference(as_case(made)))
    for case in (case_of("Exp", floats(2, 3)), case_of("Softmax", floats(3))):
        assert not [e for e in edges([case]) if e.node.attribute]


def test_axes_are_several_and_in_any_order() -> None:
    axes = np.array([1], np.int64)
    case = case_of("ReduceSum", floats(2, 3, 4), axes, keepdims=1)
    given = [each for each in edges([case]) if len(each.inputs) == 2]
    made = [each for each in given if each.inputs[1].size > 1]
    assert {tuple(each.inputs[1]) for each in made} == {
        (0, 2), (2, 0), (-1, -2), (0, 1, 2),
    }  # fmt: skip
    for each in made:
        found = by_cpu(as_case(each))
        assert not difference(found, by_reference(as_case(each)))


def test_whole_numbers_are_compared_at_their_ends() -> None:
    case = replace(case_of("Less", floats(2, 3), floats(2, 3)), output_types=(9,))
    wide = [e for e in edges([case]) if e.inputs[0].dtype == np.int64]
    assert wide
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert {low, high} <= set(wide[0].inputs[0].reshape(-1).tolist())
    (found,) = by_cpu(as_case(wide[0]))
    np.testing.assert_array_equal(found, wide[0].inputs[0] < wide[0].inputs[1])


def test_there_are_more_elements_than_blocks_have() -> None:
    made = [each.inputs[0] for each in edges([case_of("Exp", floats(2, 3))])]
    (many,) = (each for each in made if each.size > 6)
    assert many.size > 1000 and many.size % 64


def test_numbers_are_large() -> None:
    made = list(edges([case_of("Softmax", floats(2, 3))]))
    assert any(np.array_equal(each.inputs[0], floats(2, 3) * 100) for each in made)


def test_there_are_many_inputs() -> None:
    made = list(edges([case_of("Concat", floats(2, 3), floats(2, 3), axis=0)]))
    many = [each for each in made if len(each.inputs) > 2]
    assert [len(each.node.input) for each in many] == [9, 17]
    for each in many:
        (found,), expected = by_cpu(as_case(each)), np.concatenate(each.inputs)
        np.testing.assert_array_equal(found, expected)


def test_inputs_are_left_out() -> None:
    low, high = np.float32(-1), np.float32(1)
    made = list(edges([case_of("Clip", floats(2, 3), np.array(low), np.array(high))]))
    names = {tuple(each.node.input) for each in made}
    assert {("x0", "", "x2"), ("x0", "x1")} <= names


def test_padding_is_uneven_and_channels_are_in_groups() -> None:
    case = case_of("Conv", floats(1, 3, 5, 5), floats(2, 3, 3, 3), floats(2))
    attributes = [
        {a.name: helper.get_attribute_value(a) for a in each.node.attribute}
        for each in edges([case])
    ]
    assert [1, 1, 0, 0] in [each.get("pads") for each in attributes]
    assert {4, 2} <= {each.get("group") for each in attributes}
    grouped = [each for each in edges([case]) if each.inputs[0].shape[1:2] == (4,)]
    assert {each.inputs[1].shape for each in grouped} == {(8, 1, 3, 3), (6, 2, 3, 3)}
    for each in grouped:
        found, expected = by_cpu(as_case(each)), by_reference(as_case(each))
        assert not difference(found, expected)


def test_casts_are_to_each_type() -> None:
    made = list(targets([case_of("Cast", floats(2), to=1)]))
    assert len({each.output_types for each in made}) == len(made) > 12
    for each in made:
        found, expected = by_cpu(as_case(each)), by_reference(as_case(each))
        assert not difference(found, expected, ["float32"]), each.case
