"""Which nodes are taken, and the reasons for those that are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from onnxplug.partition import GraphPartition
from onnxplug_directml.abi.directml import DML_TENSOR_DATA_TYPE
from onnxplug_directml.capability import Judge
from onnxplug_directml.lowering.target import Target

NEWEST = 0x6400

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type": (
        {"body": "y = Exp (x)", "inputs": "double[2] x", "outputs": "double[2] y"},
        "dtype: float64; DirectML has no such type",
    ),
    "text": (
        {"body": "y = Equal (x, x)", "inputs": "string[2] x", "outputs": "bool[2] y"},
        "dtype: string; DirectML has no such type",
    ),
    "operator": (
        {"body": "y = Det (x)", "inputs": "float[2, 2] x", "outputs": "float y"},
        "op: DirectML is given no Det",
    ),
    "rank": (
        {
            "body": "y = Exp (x)",
            "inputs": "float[1,1,1,1,1,1,1,1,2] x",
            "outputs": "float[1,1,1,1,1,1,1,1,2] y",
        },
        "rank: 9 axes; DirectML takes 1 to 8",
    ),
    "empty": (
        {"body": "y = Exp (x)", "inputs": "float[0] x", "outputs": "float[0] y"},
        "rank: a tensor without elements",
    ),
    "type of an operator": (
        {"body": "y = Pow (x, x)", "inputs": "int64[2] x", "outputs": "int64[2] y"},
        "dtype: InputTensor of ELEMENT_WISE_POW is INT64; takes FLOAT16, FLOAT32, ",
    ),
    "attribute": (
        {
            "body": "y = LpPool <kernel_shape = [2], p = 0> (x)",
            "inputs": "float[1, 1, 3] x",
            "outputs": "float[1, 1, 2] y",
        },
        "attribute: p is 0; takes natural numbers",
    ),
    "unknown attribute": (
        {"body": "y = Exp <base = 2> (x)", "inputs": "float[2] x",
         "outputs": "float[2] y"},
        "attribute: base is not taken",
    ),
    "constant": (
        {
            "body": "y = CumSum (x, a)",
            "inputs": "float[2] x, int64 a",
            "outputs": "float[2] y",
        },
        "not-constant: input 1 .'a'. is computed; takes constants and what follows",
    ),
    "sums of bytes": (
        {"body": "y = ReduceMean (x)", "inputs": "int32[2] x", "outputs": "int32[1] y"},
        "dtype: AVERAGE of int32; DirectML takes float16, float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_why_a_node_is_refused(whole: Callable[..., GraphPartition], case: str) -> None:
    fields, said = REFUSED[case]
    graph = whole(**fields).graph
    reason = Judge(graph, Target(NEWEST))(graph.nodes[0])
    assert reason is not None
    assert re.match(said, str(reason)), reason


@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "least", "said"),
    [
        ("y = Add (x, x)", "int8[2] x", "int8[2] y", 0x5100,
         "ATensor of ELEMENT_WISE_ADD is INT8; takes FLOAT16, FLOAT32, INT32, INT64, "
         "UINT32, UINT64 at feature level 5.0"),
        ("y = Div (x, x)", "int64[2] x", "int64[2] y", 0x6000, "at feature level 5.2"),
        ("y = AveragePool <kernel_shape = [2, 2], dilations = [2, 2]> (x)",
         "float[1, 1, 5, 5] x", "float[1, 1, 3, 3] y", 0x6200,
         "AVERAGE_POOLING1 is of feature level 6.2; the device has 6.1: a newer "
         "DirectML.dll may have it"),
    ],
)  # fmt: skip
def test_what_a_feature_level_adds(
    whole: Callable[..., GraphPartition],
    body: str,
    inputs: str,
    outputs: str,
    least: int,
    said: str,
) -> None:
    graph = whole(body, inputs, outputs, opset=19).graph
    assert Judge(graph, Target(least))(graph.nodes[0]) is None
    levels = [0x5000, 0x5100, 0x5200, 0x6000, 0x6100, 0x6200]
    before = levels[levels.index(least) - 1]
    assert said in str(Judge(graph, Target(before))(graph.nodes[0]))


def test_a_type_that_the_device_lacks_is_refused(
    whole: Callable[..., GraphPartition],
) -> None:
    graph = whole("y = Exp (x)", "float16[2] x", "float16[2] y").graph
    narrow = frozenset({DML_TENSOR_DATA_TYPE.FLOAT32})
    reason = Judge(graph, Target(NEWEST, narrow))(graph.nodes[0])
    assert "float16; the device has no FLOAT16" in str(reason)


def test_open_sizes_are_taken_where_they_follow_from_inputs(
    whole: Callable[..., GraphPartition],
) -> None:
    graph = whole(
        "a = Exp (x)\n s = Shape (x)\n y = Reshape (a, s)", "float[n, m] x",
        "float[n, m] y",
    ).graph  # fmt: skip
    judge = Judge(graph, Target(NEWEST))
    assert [judge(node) for node in graph.nodes[:2]] == [None, None]
    unknown = whole(
        "i = NonZero (x)\n f = Cast <to = 1> (i)\n y = Exp (f)", "float[2] x",
        "float[1, m] y",
    ).graph  # fmt: skip
    reason = Judge(unknown, Target(NEWEST))(unknown.nodes[2])
    assert "not known before the model runs" in str(reason)
