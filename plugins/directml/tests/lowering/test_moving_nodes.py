"""The graphs of nodes that move, choose and resample elements, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.partition import GraphPartition
from onnxplug_directml.abi.directml import (
    DML_AXIS_DIRECTION,
    DML_CONVOLUTION_DIRECTION,
    DML_INTERPOLATION_MODE,
    DML_PADDING_MODE,
    DML_TENSOR_DATA_TYPE,
)
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.graph import Graph, Node, TensorDesc, in_order
from onnxplug_directml.lowering.lower import lower
from onnxplug_directml.lowering.target import Target

Lowered = Callable[..., Graph]

F32 = DML_TENSOR_DATA_TYPE.FLOAT32
I64, I32 = DML_TENSOR_DATA_TYPE.INT64, DML_TENSOR_DATA_TYPE.INT32
U32 = DML_TENSOR_DATA_TYPE.UINT32

CHECKED = [
    "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL",
    "ELEMENT_WISE_LOGICAL_LESS_THAN",
    "ELEMENT_WISE_LOGICAL_AND",
    "ELEMENT_WISE_LOGICAL_NOT",
    "CAST",
    "REDUCE",
    "ELEMENT_WISE_IF",
]
"""The nodes by which runs hold computed numbers to their limits."""


def kinds(graph: Graph) -> list[str]:
    return [node.operator.type.name for node in graph.nodes]


def fields(node: Node, *without: str) -> Mapping[str, Any]:
    """What a node's description says, but for fields that are 0 or null."""
    return {
        name: value
        for name, value in node.operator.fields.items()
        if value not in (None, 0, ()) and name not in without
    }


def tensors_made(node: Node) -> list[Any]:
    operator = node.operator
    return in_order(operator.type, operator.fields, FieldKind.OUTPUT)


def constants(graph: Graph) -> list[Any]:
    return [each.constant for each in graph.inputs if each.constant is not None]


def test_views_take_no_node_of_their_own(lowered: Lowered) -> None:
    graph = lowered(
        "a = Unsqueeze (x, s) b = Flatten <axis = 2> (a) y = Relu (b)",
        "float[2, 3, 4] x", "float[2, 12] y", weights="int64[1] s = {0}",
    )  # fmt: skip
    assert kinds(graph) == ["ACTIVATION_RELU"]
    assert fields(graph.nodes[0]) == dict.fromkeys(
        ("InputTensor", "OutputTensor"), TensorDesc(F32, (2, 12))
    )


def test_a_transposed_tensor_is_read_by_its_strides_and_copied_once(
    lowered: Lowered,
) -> None:
    graph = lowered(
        "y = Transpose <perm = [2, 0, 1]> (x)", "float[2, 3, 4] x", "float[4, 2, 3] y"
    )
    assert kinds(graph) == ["ELEMENT_WISE_IDENTITY"]
    assert fields(graph.nodes[0]) == {
        "InputTensor": TensorDesc(F32, (4, 2, 3), (1, 12, 4)),
        "OutputTensor": TensorDesc(F32, (4, 2, 3)),
    }


def test_expanding_repeats_by_strides_of_zero(lowered: Lowered) -> None:
    graph = lowered(
        "a = Expand (x, s) y = Relu (a)", "float[3, 1] x", "float[2, 3, 5] y",
        weights="int64[3] s = {2, 3, 5}",
    )  # fmt: skip
    assert graph.nodes[0].operator.fields["InputTensor"] == TensorDesc(
        F32, (2, 3, 5), (0, 1, 0)
    )


def test_a_slice_backward_starts_at_the_end_of_its_window(lowered: Lowered) -> None:
    graph = lowered(
        "y = Slice (x, b, e, a, s)", "float[2, 9] x", "float[2, 3] y",
        weights="int64[1] b = {-2}, int64[1] e = {1}, int64[1] a = {1}, "
        "int64[1] s = {-2}",
    )  # fmt: skip
    assert kinds(graph) == ["SLICE1"]
    # elements 7, 5 and 3: the window is from 3 to 7
    assert fields(graph.nodes[0], "InputTensor", "OutputTensor") == {
        "InputWindowOffsets": (0, 3),
        "InputWindowSizes": (2, 5),
        "InputWindowStrides": (1, -2),
    }


def test_a_slice_of_everything_is_the_tensor(lowered: Lowered) -> None:
    graph = lowered(
        "a = Slice (x, b, e) y = Relu (a)", "float[2, 3] x", "float[2, 3] y",
        weights="int64[1] b = {0}, int64[1] e = {99}",
    )  # fmt: skip
    assert kinds(graph) == ["ACTIVATION_RELU"]


def test_parts_and_joins_count_their_tensors(lowered: Lowered) -> None:
    graph = lowered(
        "z, b = Split <axis = 1> (x, s) y = Concat <axis = 0> (b, b, c)",
        "float[2, 5] x, float[1, 2] c", "float[5, 2] y, float[2, 3] z",
        weights="int64[2] s = {3, 2}",
    )  # fmt: skip
    assert kinds(graph) == ["SPLIT", "JOIN"]
    split, join = (node.operator.fields for node in graph.nodes)
    assert split["OutputTensors"] == (TensorDesc(F32, (2, 3)), TensorDesc(F32, (2, 2)))
    assert [each.sizes for each in join["InputTensors"]] == [(2, 2), (2, 2), (1, 2)]
    assert {(each.from_output, each.to_input) for each in graph.intermediate_edges} == {
        (1, 0),
        (1, 1),
    }


def test_what_nobody_takes_has_an_edge_too(lowered: Lowered) -> None:
    graph = lowered(
        "a, b, c = Split (x, s) y = Relu (b) v, i = TopK <axis = 0> (x, k) z = Abs (v)",
        "float[9] x", "float[4] y, float[2] z",
        weights="int64[3] s = {3, 4, 2}, int64[1] k = {2}",
    )  # fmt: skip
    makers = [(edge.from_node, edge.from_output) for edge in graph.intermediate_edges]
    makers += [(edge.node, edge.node_output) for edge in graph.output_edges]
    assert set(makers) == {
        (place, output)
        for place, node in enumerate(graph.nodes)
        for output, _ in enumerate(tensors_made(node))
    }
    assert graph.outputs[1].tensor == TensorDesc(F32, (2,))


def test_a_border_has_a_value_of_the_tensor_s_type(lowered: Lowered) -> None:
    graph = lowered(
        "y = Pad (x, p, v, a)", "int64[2, 3] x", "int64[2, 6] y",
        weights="int64[2] p = {1, 2}, int64 v = {-5}, int64[1] a = {-1}",
    )  # fmt: skip
    assert fields(graph.nodes[0], "InputTensor", "OutputTensor") == {
        "PaddingValueDataType": I64,
        "PaddingValue": -5,
        "StartPadding": (0, 1),
        "EndPadding": (0, 2),
    }


def test_a_border_that_removes_elements_is_a_slice_first(lowered: Lowered) -> None:
    graph = lowered(
        'y = Pad <mode = "edge"> (x, p)', "float[7] x", "float[8] y",
        weights="int64[2] p = {-2, 3}",
    )  # fmt: skip
    assert kinds(graph) == ["SLICE1", "PADDING1"]
    assert graph.nodes[1].operator.fields["PaddingMode"] is DML_PADDING_MODE.EDGE
    assert graph.nodes[1].operator.fields["StartPadding"] == (0,)


def test_a_periodic_border_is_gathered(lowered: Lowered) -> None:
    graph = lowered(
        'y = Pad <mode = "wrap"> (x, p)', "float[2, 3] x", "float[2, 8] y",
        weights="int64[4] p = {0, 4, 0, 1}",
    )  # fmt: skip
    assert kinds(graph) == ["GATHER"]
    (indices,) = constants(graph)
    np.testing.assert_array_equal(indices.reshape(-1), [2, 0, 1, 2, 0, 1, 2, 0])


def test_a_mirror_needs_two_elements(lowered: Lowered) -> None:
    with pytest.raises(ep.Declined, match="axis 0 has one element"):
        lowered(
            'y = Pad <mode = "reflect"> (x, p)', "float[1, 3] x", "float[3, 3] y",
            weights="int64[4] p = {1, 0, 1, 0}",
        )  # fmt: skip


def test_gathering_merges_what_is_around_the_axis(lowered: Lowered) -> None:
    graph = lowered(
        "y = Gather <axis = -2> (x, i)", "float[2, 3, 4, 5] x, int32[2, 2] i",
        "float[2, 3, 2, 2, 5] y",
    )  # fmt: skip
    assert kinds(graph) == [*CHECKED, "GATHER"]
    (check,) = graph.checks
    assert check.endswith("an index is out of range; sizes are 4")
    assert [each.tensor for each in graph.outputs[1:]] == [TensorDesc(U32, (1,))]
    assert fields(graph.nodes[-1]) == {
        "InputTensor": TensorDesc(F32, (6, 4, 5)),
        "IndicesTensor": TensorDesc(I32, (1, 1, 4)),
        "OutputTensor": TensorDesc(F32, (6, 4, 5)),
        "Axis": 1,
        "IndexDimensions": 1,
    }


def test_known_indices_are_counted_from_the_front_and_held_to_the_sizes(
    lowered: Lowered,
) -> None:
    model = "y = Gather (x, i)", "float[4] x", "float[2] y"
    graph = lowered(*model, weights="int64[2] i = {-1, 2}")
    (indices,) = constants(graph)
    assert indices.dtype == np.uint32
    np.testing.assert_array_equal(indices.reshape(-1), [3, 2])
    with pytest.raises(ep.Declined, match="index 4 is out of range"):
        lowered(*model, weights="int64[2] i = {0, 4}")


def test_tuples_of_indices_have_one_batch_and_one_slice(lowered: Lowered) -> None:
    graph = lowered(
        "y = GatherND <batch_dims = 1> (x, i)", "float[3, 4, 5, 6] x, int64[3, 7, 2] i",
        "float[3, 7, 6] y",
    )  # fmt: skip
    assert kinds(graph) == [*CHECKED, "GATHER_ND1"]
    assert fields(graph.nodes[-1]) == {
        "InputTensor": TensorDesc(F32, (3, 4, 5, 6)),
        "IndicesTensor": TensorDesc(I64, (1, 3, 7, 2)),
        "OutputTensor": TensorDesc(F32, (1, 3, 7, 6)),
        "InputDimensionCount": 4,
        "IndicesDimensionCount": 3,
        "BatchDimensionCount": 1,
    }


def test_writing_to_a_part_puts_the_part_back(lowered: Lowered) -> None:
    graph = lowered(
        "y = ScatterElements <axis = 1> (x, i, u)",
        "float[4, 5] x, int64[3, 2] i, float[3, 2] u", "float[4, 5] y",
    )  # fmt: skip
    assert sorted(kinds(graph)) == sorted(
        [*CHECKED, "SLICE1", "SCATTER_ELEMENTS", "SLICE1", "JOIN"]
    )
    (scatter,) = (
        node.operator.fields
        for node in graph.nodes
        if node.operator.type.name == "SCATTER_ELEMENTS"
    )
    assert (
        scatter["InputTensor"] == scatter["OutputTensor"] == TensorDesc(F32, (3, 5, 1))
    )
    assert scatter["IndicesTensor"] == TensorDesc(I64, (3, 2, 1))


def test_sums_are_written_where_indices_are_known_to_differ(lowered: Lowered) -> None:
    model = (
        'y = ScatterND <reduction = "add"> (x, i, u)', "float[4, 5] x, float[2, 5] u",
        "float[4, 5] y",
    )  # fmt: skip
    graph = lowered(*model, weights="int64[2, 1] i = {0, -1}")
    assert kinds(graph) == ["GATHER_ND1", "ELEMENT_WISE_ADD", "SCATTER_ND"]
    with pytest.raises(ep.Declined, match="of which some are equal"):
        lowered(*model, weights="int64[2, 1] i = {3, -1}")


def test_the_largest_of_all_are_chosen_among_one_more(lowered: Lowered) -> None:
    model = "y, i = TopK (x, k)", "float[2, 3] x"
    some = lowered(*model, "float[2, 2] y, int64[2, 2] i", weights="int64[1] k = {2}")
    assert kinds(some) == ["TOP_K1", "CAST"]
    chosen = some.nodes[0].operator.fields
    assert chosen["OutputIndexTensor"] == TensorDesc(U32, (2, 2, 1))
    assert chosen["AxisDirection"] is DML_AXIS_DIRECTION.DECREASING
    # K is less than the elements along the axis
    every = lowered(*model, "float[2, 3] y, int64[2, 3] i", weights="int64[1] k = {3}")
    padding, chosen_of_all, _ = every.nodes
    assert padding.operator.fields["PaddingValue"] == -np.inf
    assert chosen_of_all.operator.fields["InputTensor"] == TensorDesc(F32, (2, 4, 1))


def test_lengths_of_sequences_are_told_for_each_of_them(lowered: Lowered) -> None:
    graph = lowered(
        "y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, l)",
        "float[2, 3, 4] x, int64[2] l", "float[2, 3, 4] y",
    )  # fmt: skip
    moved = ["CAST", "ELEMENT_WISE_IDENTITY", "REVERSE_SUBSEQUENCES"]
    assert kinds(graph) == [*CHECKED, *moved]
    assert fields(graph.nodes[-1], "OutputTensor") == {
        "InputTensor": TensorDesc(F32, (1, 2, 3, 4)),
        "SequenceLengthsTensor": TensorDesc(U32, (1, 2, 1, 4)),
        "Axis": 2,
    }


def test_a_triangle_is_what_diagonals_leave(lowered: Lowered) -> None:
    model = "y = Trilu <upper = 0> (x, k)", "float[2, 3, 4] x", "float[2, 3, 4] y"
    graph = lowered(*model, weights="int64 k = {-1}")
    assert kinds(graph) == ["DIAGONAL_MATRIX1"]
    # zeros from the main diagonal on
    assert fields(graph.nodes[0], "InputTensor", "OutputTensor") == {
        "ValueDataType": F32,
        "DiagonalFillEnd": 2**31 - 1,
    }
    older = lowered(*model, weights="int64 k = {-1}", level=0x5000)
    assert kinds(older) == ["ELEMENT_WISE_IF"]


def test_elements_that_are_repeated_take_one_copy(lowered: Lowered) -> None:
    graph = lowered(
        'y = Resize <mode = "nearest", nearest_mode = "floor", '
        'coordinate_transformation_mode = "asymmetric"> (x, , s)',
        "float[1, 2, 3, 4] x", "float[1, 2, 6, 12] y",
        weights="float[4] s = {1, 1, 2, 3}",
    )  # fmt: skip
    assert kinds(graph) == ["ELEMENT_WISE_IDENTITY"]
    assert graph.nodes[0].operator.fields["InputTensor"] == TensorDesc(
        F32, (1, 2, 3, 2, 4, 3), (0, 12, 4, 0, 1, 0)
    )


LINEAR = (
    'y = Resize <mode = "linear"> (x, , s)', "float[1, 2, 3, 4] x",
    "float[1, 2, 6, 2] y",
)  # fmt: skip


def test_lines_are_told_by_scale_and_offset(lowered: Lowered) -> None:
    graph = lowered(*LINEAR, weights="float[4] s = {1, 1, 2, 0.5}")
    assert kinds(graph) == ["RESAMPLE2"]
    told = fields(graph.nodes[0])
    assert told["InterpolationMode"] is DML_INTERPOLATION_MODE.LINEAR
    assert told["InputTensor"] == TensorDesc(F32, (2, 3, 4))
    np.testing.assert_allclose(told["Scales"], (1, 2, 0.5))
    # element n lies at (n + 0.5) / scale - 0.5
    np.testing.assert_allclose(told["InputPixelOffsets"], (0, 0.25, -0.5))
    assert told["OutputPixelOffsets"] == (0, 0, 0)


def test_without_resampling_weights_are_multiplied(lowered: Lowered) -> None:
    graph = lowered(*LINEAR, weights="float[4] s = {1, 1, 2, 0.5}", level=0x5000)
    assert kinds(graph) == ["GEMM", "GEMM"]
    across = next(each for each in constants(graph) if each.shape == (2, 4))
    np.testing.assert_allclose(across, [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])


def test_patches_are_laid_down_by_filters_of_ones(lowered: Lowered) -> None:
    graph = lowered(
        "y = Col2Im <strides = [2, 1]> (x, s, p)", "float[1, 8, 8] x",
        "float[1, 2, 5, 5] y", weights="int64[2] s = {5, 5}, int64[2] p = {2, 2}",
    )  # fmt: skip
    assert kinds(graph) == ["CONVOLUTION"]
    told = fields(graph.nodes[0])
    assert told["Direction"] is DML_CONVOLUTION_DIRECTION.BACKWARD
    assert told["GroupCount"] == 2
    assert told["InputTensor"] == TensorDesc(F32, (1, 8, 2, 4))
    assert told["OutputPadding"] == (1, 0)  # a row that no patch reaches
    (filters,) = constants(graph)
    np.testing.assert_array_equal(
        filters.reshape(2, 4, 4), np.broadcast_to(np.eye(4), (2, 4, 4))
    )


def test_regions_are_rounded_before_they_are_pooled(lowered: Lowered) -> None:
    graph = lowered(
        "y = MaxRoiPool <pooled_shape = [3, 2], spatial_scale = 0.5> (x, r)",
        "float[1, 1, 6, 6] x, float[2, 5] r", "float[2, 1, 3, 2] y",
    )  # fmt: skip
    assert kinds(graph) == [
        "SLICE1", "SLICE1", "ELEMENT_WISE_FLOOR", *CHECKED, *CHECKED, "JOIN",
        "ROI_POOLING", "JOIN",  # of what is checked
    ]  # fmt: skip
    floor, pool = graph.nodes[2], graph.nodes[-2]
    assert floor.operator.fields["ScaleBias"] == (0.5, 0.5)
    assert fields(pool, "InputTensor", "OutputTensor") == {
        "ROITensor": TensorDesc(F32, (1, 1, 2, 5)),
        "SpatialScale": 1.0,
        "PooledSize": (2, 3),
    }


def test_samples_that_directml_counts_otherwise_are_declined(lowered: Lowered) -> None:
    with pytest.raises(ep.Declined, match="sampling_ratio is 0; takes 1 or more"):
        lowered(
            "y = RoiAlign <output_height = 2, output_width = 2> (x, r, b)",
            "float[1, 1, 6, 6] x, float[2, 4] r, int64[2] b", "float[2, 1, 2, 2] y",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("node", "inputs", "output", "weights"),
    [
        ("Transpose <perm = [0, 7]> (x)", "float[2, 3] x", "float[2, 3] y", ""),
        ("Pad (x, p)", "float[2, 3] x", "float[2, 3] y", "int64[3] p = {0, 1, 0}"),
        ("Split <num_outputs = 0> (x)", "float[2, 3] x", "float[2, 3] y", ""),
        ("MaxUnpool <kernel_shape = [2]> (x, i)",
         "float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i", "float[1, 1, 4, 4] y", ""),
        ("Attention <q_num_heads = 1, kv_num_heads = 0> (x, x, x)",
         "float[1, 2, 4] x", "float[1, 2, 4] y", ""),
        ("Resize <mode = \"linear\"> (x, , , s)", "float[2, 3] x", "float[2, 3] y",
         "int64[2] s = {2, 99999999999}"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_go_together_is_declined(
    whole: Callable[..., GraphPartition],
    node: str,
    inputs: str,
    output: str,
    weights: str,
) -> None:
    partition = whole(f"y = {node}", inputs, output, weights=weights)
    with pytest.raises(ep.Declined) as caught:
        lower(partition, Target(0x6400))
    assert caught.value.nodes == partition.nodes
