"""The graphs of recurrent networks and of attention, field by field."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_MULTIHEAD_ATTENTION_MASK_TYPE,
    DML_OPERATOR_TYPE,
    DML_RECURRENT_NETWORK_DIRECTION,
    DML_TENSOR_DATA_TYPE,
)
from onnxplug_directml.lowering.graph import Graph, Operator, TensorDesc

Lowered = Callable[..., Graph]

F32, I32 = DML_TENSOR_DATA_TYPE.FLOAT32, DML_TENSOR_DATA_TYPE.INT32
U32, U8 = DML_TENSOR_DATA_TYPE.UINT32, DML_TENSOR_DATA_TYPE.UINT8


def kinds(graph: Graph) -> list[str]:
    return [node.operator.type.name for node in graph.nodes]


def the_one(graph: Graph, kind: DML_OPERATOR_TYPE) -> Operator:
    (found,) = (n.operator for n in graph.nodes if n.operator.type is kind)
    return found


INPUTS = "float[4, 3, 5] x, float[2, 8, 5] w, float[2, 8, 2] r, int32[3] l"
OUTPUTS = "float[4, 2, 3, 2] y, float[2, 3, 2] h, float[2, 3, 2] c"


def test_a_network_has_four_dimensions_and_six_functions(lowered: Lowered) -> None:
    graph = lowered(
        'y, h, c = LSTM <hidden_size = 2, direction = "bidirectional", clip = 3.0, '
        'activations = ["Sigmoid", "ScaledTanh", "Tanh", "HardSigmoid", "Tanh", '
        '"Softplus"], activation_alpha = [2.0, 0.3], activation_beta = [0.5]> '
        "(x, w, r, , l)",
        INPUTS, OUTPUTS,
    )  # fmt: skip
    (check,) = graph.checks
    assert check.endswith("a length of a sequence is out of range; takes 0 to 4")
    told = the_one(graph, DML_OPERATOR_TYPE.LSTM).fields
    assert told["InputTensor"] == TensorDesc(F32, (1, 4, 3, 5))
    assert told["WeightTensor"] == TensorDesc(F32, (1, 2, 8, 5))
    assert told["SequenceLengthsTensor"] == TensorDesc(U32, (1, 1, 1, 3))
    assert told["OutputSequenceTensor"] == TensorDesc(F32, (4, 2, 3, 2))
    assert told["OutputSingleTensor"] == TensorDesc(F32, (1, 2, 3, 2))
    assert told["Direction"] is DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL
    assert (told["ClipThreshold"], told["UseClipThreshold"]) == (3.0, True)
    functions = [
        (each.type.name, dict(each.fields)) for each in told["ActivationDescs"]
    ]
    assert functions == [
        ("ACTIVATION_SIGMOID", {}),
        ("ACTIVATION_SCALED_TANH", {"Alpha": 2.0, "Beta": 0.5}),
        ("ACTIVATION_TANH", {}),
        ("ACTIVATION_HARD_SIGMOID", {"Alpha": pytest.approx(0.3), "Beta": 0.5}),
        ("ACTIVATION_TANH", {}),
        ("ACTIVATION_SOFTPLUS", {"Steepness": 1.0}),
    ]


def test_weights_of_networks_are_copies_of_what_directml_owns(
    lowered: Lowered,
) -> None:
    graph = lowered(
        "y, h = RNN <hidden_size = 1> (x, w, r)", "float[4, 3, 2] x",
        "float[4, 1, 3, 1] y, float[1, 3, 1] h",
        weights="float[1, 1, 2] w = {1, 2}, float[1, 1, 1] r = {3}",
    )  # fmt: skip
    assert kinds(graph) == ["ELEMENT_WISE_IDENTITY", "ELEMENT_WISE_IDENTITY", "RNN"]
    owned = {i for i, each in enumerate(graph.inputs) if each.constant is not None}
    network = kinds(graph).index("RNN")
    assert not owned & {e.graph_input for e in graph.input_edges if e.node == network}


@pytest.mark.parametrize(
    ("peepholes", "declined"), [("1, 0, 2", False), ("1, 0.5, 2", True)]
)
def test_the_output_gate_sees_no_cell(
    lowered: Lowered, peepholes: str, declined: bool
) -> None:
    model = (
        "y = LSTM <hidden_size = 1> (x, w, r, , , , , p)",
        "float[4, 3, 2] x, float[1, 4, 2] w, float[1, 4, 1] r", "float[4, 1, 3, 1] y",
    )  # fmt: skip
    weights = f"float[1, 3] p = {{{peepholes}}}"
    if declined:
        with pytest.raises(ep.Declined, match="a peephole of the output gate"):
            lowered(*model, weights=weights)
        return
    told = the_one(lowered(*model, weights=weights), DML_OPERATOR_TYPE.LSTM).fields
    assert told["PeepholeTensor"] == TensorDesc(F32, (1, 1, 1, 3))


@pytest.mark.parametrize("op_type", ["RNN", "GRU"])
def test_only_lstm_is_clipped(lowered: Lowered, op_type: str) -> None:
    gates = {"RNN": 1, "GRU": 3}[op_type]
    with pytest.raises(ep.Declined, match=r"clip is 1\.0; takes none"):
        lowered(
            f"y = {op_type} <hidden_size = 1, clip = 1.0> (x, w, r)",
            f"float[4, 3, 2] x, float[1, {gates}, 2] w, float[1, {gates}, 1] r",
            "float[4, 1, 3, 1] y",
        )


ATTENTION = (
    "y = Attention <q_num_heads = 2, kv_num_heads = 2, is_causal = 1> (q, k, v)",
    "float[1, 3, 8] q, float[1, 3, 8] k, float[1, 3, 12] v", "float[1, 3, 12] y",
)  # fmt: skip


def test_attention_is_one_operator(lowered: Lowered) -> None:
    graph = lowered(*ATTENTION, opset=23)
    assert kinds(graph) == ["MULTIHEAD_ATTENTION"]
    told = graph.nodes[0].operator.fields
    assert told["QueryTensor"] == TensorDesc(F32, (1, 3, 8))
    assert told["OutputTensor"] == TensorDesc(F32, (1, 3, 12))
    assert told["HeadCount"] == 2
    assert told["Scale"] == pytest.approx(1 / math.sqrt(4))
    assert told["MaskType"] is DML_MULTIHEAD_ATTENTION_MASK_TYPE.NONE
    # keys behind a query, for each head
    assert told["RelativePositionBiasTensor"] == TensorDesc(
        F32, (1, 2, 3, 3), (0, 0, 3, 1)
    )
    (hidden,) = (x.constant for x in graph.inputs if x.constant is not None)
    np.testing.assert_array_equal(hidden < 0, ~np.tri(3, dtype=np.bool_))


def test_before_level_6_1_attention_is_products(lowered: Lowered) -> None:
    graph = lowered(*ATTENTION, opset=23, level=0x6000)
    assert "MULTIHEAD_ATTENTION" not in kinds(graph)
    assert kinds(graph).count("GEMM") == 2


def test_heads_that_share_keys_are_rows_of_one_product(lowered: Lowered) -> None:
    graph = lowered(
        "y = Attention (q, k, v)",
        "float[1, 6, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 4] v",
        "float[1, 6, 3, 4] y", opset=23,
    )  # fmt: skip
    scores, weighted = (
        n.operator for n in graph.nodes if n.operator.type.name == "GEMM"
    )
    assert scores.fields["ATensor"].sizes == (1, 2, 9, 4)
    assert scores.fields["OutputTensor"].sizes == (1, 2, 9, 5)
    assert weighted.fields["OutputTensor"].sizes == (1, 2, 9, 4)


def test_a_mask_may_hide_all_keys_so_attention_is_not_one_operator(
    lowered: Lowered,
) -> None:
    graph = lowered(
        "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v, m)",
        "float[1, 3, 8] q, float[1, 3, 8] k, float[1, 3, 8] v, bool[3, 3] m",
        "float[1, 3, 8] y", opset=23,
    )  # fmt: skip
    assert "MULTIHEAD_ATTENTION" not in kinds(graph)
