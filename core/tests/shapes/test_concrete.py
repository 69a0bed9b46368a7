"""The rules asked for one node at a time: as for a whole graph, but in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug.ep import DataType, TensorFacts
from onnxplug.graph.load import load_model
from onnxplug.partition import GraphPartition
from onnxplug.prepare.inline import inline_functions

UNTOLD = {
    # sizes that elements tell, in ways that rules do not follow
    *("ImageDecoder", "NonMaxSuppression", "StringNormalizer"),
    *("StringSplit", "Unique"),
    # bodies
    *("FlexAttention", "If", "Loop", "Scan"),
    # element types that the suite has no arrays of
    "DequantizeLinear",
}
"""Operators of which a shape need not follow."""


def facts(value: Any) -> TensorFacts | None:
    if not isinstance(value, np.ndarray | np.generic):
        return None
    value = np.asarray(value)
    dtype = DataType.from_numpy(value.dtype)
    return TensorFacts(dtype, value.shape, value)


@pytest.fixture(scope="module")
def cases(suite) -> list[tuple[Any, GraphPartition, Any]]:
    """The cases of one node, and a partition that is that node."""
    found = []
    for case in suite:
        if case.model is None or not case.data_sets:
            continue
        model = load_model(case.model)
        inline_functions(model)
        if len(model.graph.nodes) == 1:
            partition = GraphPartition(model.graph, model.graph.nodes)
            found.append((case, partition, model.graph.nodes[0]))
    return found


def test_what_follows_is_what_the_suite_expects(cases):
    told, wrong, untold = 0, [], set()
    for case, partition, node in cases:
        inputs, expected = case.data_sets[0]
        fed = dict(zip(partition.graph.inputs, inputs, strict=False))
        given = [facts(fed.get(name)) for name in node.inputs]
        results = dict(zip(partition.graph.outputs, expected, strict=False))
        follows = partition.infer(node, given)
        follows = [*follows, *[None] * (len(node.outputs) - len(follows))]
        for name, found in zip(node.outputs, follows, strict=False):
            value = results.get(name)
            if not isinstance(value, np.ndarray | np.generic):
                continue
            if found is None:
                untold.add(node.op_type)
                continue
            told += 1
            if (found.shape, found.dtype) != (value.shape, facts(value).dtype):
                wrong.append(f"{case.name}: {found} for {value.dtype}{value.shape}")
            if found.content is not None:
                np.testing.assert_array_equal(found.content, value)
    assert not wrong, "\n".join(wrong)
    assert untold == UNTOLD
    assert told > 1000


def node(text: str) -> tuple[GraphPartition, Any]:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "local": 1]> '
        f"g (float x, float z) => (y0) {{ {text} }}"
    )
    graph = load_model(proto).graph
    return GraphPartition(graph, graph.nodes), graph.nodes[0]


def given(*shapes: tuple[int, ...]) -> list[TensorFacts]:
    return [TensorFacts(DataType.FLOAT32, shape) for shape in shapes]


def ints(*numbers: int) -> TensorFacts:
    return facts(np.array(numbers, np.int64))


def test_sizes_are_told_as_content():
    partition, shape = node("y0 = Shape <start = 1> (x)")
    (found,) = partition.infer(shape, given((2, 3, 5)))
    assert (found.dtype, found.shape) == (DataType.INT64, (2,))
    assert found.content.tolist() == [3, 5]
    partition, size = node("y0 = Size (x)")
    (found,) = partition.infer(size, given((2, 3, 5)))
    assert found.content.shape == ()
    assert found.content == 30


def test_what_depends_on_unknown_elements_does_not_follow():
    partition, reshape = node("y0 = Reshape (x, z)")
    unknown = TensorFacts(DataType.INT64, (2,))
    assert partition.infer(reshape, [*given((2, 6)), unknown]) == [None]
    assert partition.infer(reshape, [*given((2, 6)), None]) == [None]
    (found,) = partition.infer(reshape, [*given((2, 6)), ints(3, -1)])
    assert found.shape == (3, 4)


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        ("NonZero (x)", [np.array([[0.0, 2.0], [1.0, 0.0]])], (2, 2)),
        ("Compress <axis = 1> (x, z)", [np.ones((2, 3)), [True, False, True]], (2, 2)),
        ("Compress (x, z)", [np.ones((2, 3)), [False, True]], (1,)),
        ("Range (x, z, z)", [np.float32(0), np.float32(2.5), np.float32(1)], (3,)),
        ("Range (x, z, z)", [np.int16(9), np.int16(2), np.int16(-2)], (4,)),
        ("OneHot (x, z, z)", [np.ones((2, 3)), np.uint8(7), np.ones(2)], (2, 3, 7)),
        ("Resize (x, , z)", [np.ones((1, 10)), None, np.float32([1, 0.7])], (1, 7)),
        ("Resize (x, , z)", [np.ones((2, 7)), None, np.float32([0.5, 1.5])], (1, 10)),
        (
            'Resize <keep_aspect_ratio_policy = "not_larger"> (x, , , z)',
            [np.ones((5, 6)), None, None, np.int64([3, 9])],
            (3, 4),
        ),
        (
            'Resize <keep_aspect_ratio_policy = "not_smaller"> (x, , , z)',
            [np.ones((5, 6)), None, None, np.int64([3, 9])],
            (8, 9),
        ),
        (  # in floats 17 / 14 * 21 is less than 25 and a half
            'Resize <keep_aspect_ratio_policy = "not_smaller"> (x, , , z)',
            [np.ones((14, 21)), None, None, np.int64([17, 0])],
            (17, 26),
        ),
    ],
)
def test_sizes_follow_from_elements_of_any_type(text, inputs, expected):
    partition, single = node(f"y0 = {text}")
    given = [None if v is None else facts(np.asarray(v)) for v in inputs]
    found = partition.infer(single, given)
    assert found[0].shape == expected


def test_pieces_may_be_many():
    outputs = ", ".join(f"y{place}" for place in range(100))
    partition, split = node(f"{outputs} = Split (x, z)")
    found = partition.infer(split, [*given((150,)), ints(*[1] * 50, *[2] * 50)])
    assert [value.shape for value in found] == [(1,)] * 50 + [(2,)] * 50


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(3, 7, [3, 3, 1]), (4, 9, [3, 3, 3, 0]), (7, 10, [2, 2, 2, 2, 2, 0, 0])],
)
def test_even_pieces_end_where_the_axis_does(count, size, expected):
    outputs = ", ".join(f"y{place}" for place in range(count))
    partition, split = node(f"{outputs} = Split <num_outputs = {count}> (x)")
    found = partition.infer(split, given((size,)))
    assert [value.shape for value in found] == [(part,) for part in expected]


def test_a_node_that_cannot_run_is_named():
    partition, transpose = node("y0 = Transpose <perm = [0, 5]> (x)")
    match = r"Transpose giving 'y0' cannot run: perm is \[0, 5\]"
    with pytest.raises(OutOfBounds, match=match):
        partition.infer(transpose, given((2, 3)))


def test_of_an_operator_without_a_rule_nothing_follows():
    partition, unknown = node("y0 = local.Mystery (x)")
    assert partition.infer(unknown, given((2, 3))) == ()
