"""What graphs partitions become: views, constants, the border."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.partition import GraphPartition
from onnxplug_directml.abi.directml import DML_TENSOR_DATA_TYPE
from onnxplug_directml.lowering.graph import Graph, InputEdge
from onnxplug_directml.lowering.lower import examine, lower
from onnxplug_directml.lowering.target import Target

Lowered = Callable[..., Graph]


def kinds(graph: Graph) -> list[str]:
    """The operators of a graph, in order."""
    return [node.operator.type.name for node in graph.nodes]


def test_constants_are_owned_and_what_is_fed_is_bound(lowered: Lowered) -> None:
    graph = lowered(
        "s = Mul (x, c)\n y = Add (s, c)", "float[2, 3] x, float[9] unused",
        weights="float[3] c = {1, 2, 3}",
    )  # fmt: skip
    assert [each.name for each in graph.inputs if each.constant is None] == ["x"]
    (constant,) = (each for each in graph.inputs if each.constant is not None)
    np.testing.assert_array_equal(constant.constant, [1, 2, 3])
    place = list(graph.inputs).index(constant)
    assert [edge for edge in graph.input_edges if edge.graph_input == place] == [
        InputEdge(place, 0, 1), InputEdge(place, 1, 1),
    ]  # fmt: skip


def test_scalars_that_are_the_same_are_one_constant(lowered: Lowered) -> None:
    graph = lowered(
        "a = Mul (x, c)\n y = Add (a, d)",
        weights="float c = {2}, float[1, 1] d = {2}",
    )
    assert sum(each.constant is not None for each in graph.inputs) == 1


def test_a_reshape_is_no_node(lowered: Lowered) -> None:
    graph = lowered(
        "a = Exp (x)\n b = MatMul (a, w)\n y = Log (b)", "float[2, 4, 3] x",
        "float[2, 4, 5] y", weights="float[3, 5] w = {" + ",".join(["1"] * 15) + "}",
    )  # fmt: skip
    assert kinds(graph) == ["ELEMENT_WISE_EXP", "GEMM", "ELEMENT_WISE_LOG"]
    gemm = graph.nodes[1].operator.fields
    assert gemm["ATensor"].sizes == (8, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("y = Identity (x)", "float[2, 3] y"),
        ("a = Exp (x)\n y = Identity (a)\n z = Identity (a)",
         "float[2, 3] y, float[2, 3] z"),
    ],
)  # fmt: skip
def test_each_output_is_made_by_a_node_of_its_own(
    lowered: Lowered, body: str, outputs: str
) -> None:
    graph = lowered(body, "float[2, 3] x", outputs)
    makers = [(edge.node, edge.node_output) for edge in graph.output_edges]
    assert len(set(makers)) == len(graph.outputs)
    assert kinds(graph)[-1] == "ELEMENT_WISE_IDENTITY"


def test_what_follows_from_sizes_is_a_constant(lowered: Lowered) -> None:
    graph = lowered(
        "s = Shape (x)\n y = Add (s, s)\n z = Exp (x)", "float[2, 3] x",
        "int64[2] y, float[2, 3] z",
    )  # fmt: skip
    assert sorted(kinds(graph)) == ["ELEMENT_WISE_EXP", "ELEMENT_WISE_IDENTITY"]
    (known,) = (each for each in graph.inputs if each.constant is not None)
    np.testing.assert_array_equal(known.constant, [4, 6])


def test_nodes_that_nobody_needs_are_left_out(lowered: Lowered) -> None:
    graph = lowered("y = Softsign (x)\n unused = Exp (x)")
    assert kinds(graph) == ["ACTIVATION_SOFTSIGN"]


def test_a_bool_is_a_byte(lowered: Lowered) -> None:
    graph = lowered("y = Cast <to = 9> (x)", outputs="bool[2, 3] y")
    assert kinds(graph) == ["ELEMENT_WISE_LOGICAL_EQUALS", "ELEMENT_WISE_LOGICAL_NOT"]
    assert graph.outputs[0].tensor.data_type is DML_TENSOR_DATA_TYPE.UINT8


def test_a_node_that_cannot_be_lowered_is_named(
    whole: Callable[..., GraphPartition],
) -> None:
    partition = whole(
        'y = Einsum <equation = "ii -> i"> (x)', "float[3, 3] x", "float[3] y"
    )
    with pytest.raises(ep.Declined, match="each letter once") as caught:
        lower(partition, Target(0x6400))
    assert caught.value.nodes == partition.nodes


def test_open_sizes_are_tried(whole: Callable[..., GraphPartition]) -> None:
    good = whole("y = MatMul (x, x)", "float[n, 3, 3] x", "float[n, 3, 3] y")
    examine(good, Target(0x6400))
    bad = whole(
        "y = Conv (x, w)",
        "float[n, 2, 3, 3, 3, 3] x, float[1, 2, 1, 1, 1, 1] w",
        "float[n, 1, 3, 3, 3, 3] y",
    )
    with pytest.raises(ep.Declined, match="4 spatial dimensions") as caught:
        examine(bad, Target(0x6400))
    assert caught.value.nodes == bad.nodes
