"""What has no function is refused with a reason, and never computed otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxplug
from onnxplug.errors import UnassignedNode

X = np.ones((1, 2, 8), np.float32)
SCALES = np.ones((4, 1), np.float32)
PACKED = np.zeros((4, 1, 8), np.uint8)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "reason"),
    [
        ("Gelu", [X], {"unheard": 1}, "attribute 'unheard'"),
        ("Gelu", [X, X], {}, "2 inputs"),
        ("BiasGelu", [X], {}, "input 'b'"),
        ("BiasGelu", [X, None], {}, "input 'b'"),
        ("Attention", [X, X[0]], {}, "attribute 'num_heads'"),
        ("Attention", [X, X[0]], {"num_heads": 2, "do_rotary": 1}, "'do_rotary'"),
        ("RotaryEmbedding", [X, X, X, X], {"scale": 2.0}, "'scale' is 2.0"),
        ("CDist", [X[0], X[0]], {"metric": "cosine"}, "'metric' is 'cosine'"),
        ("FusedConv", [X, X], {"activation": "Sine"}, "'activation' is 'Sine'"),
        (
            "MatMulNBits",
            [X, PACKED, SCALES],
            {"K": 8, "N": 4, "block_size": 16, "weight_prepacked": 1},
            "'weight_prepacked' is 1",
        ),
        (
            "MultiHeadAttention",
            [X, X, X, *[None] * 5, np.array(1, np.int32)],
            {"num_heads": 2},
            "'past_sequence_length'",
        ),
        (
            "MultiHeadAttention",
            [X, X, X, *[None] * 3, X],
            {"num_heads": 2},
            "the input 'past_key' and lacks 'past_value'",
        ),
        (
            "GroupQueryAttention",
            [X, X, X, None, None, np.array([1], np.int32), np.array(2, np.int32)],
            {"num_heads": 2, "kv_num_heads": 2, "sliding_window_cache": 1},
            "'sliding_window_cache'",
        ),
        ("BeamSearch", [X], {}, "loop of the application"),
        ("GreedySearch", [X], {}, "loop of the application"),
        ("Sampling", [X], {}, "loop of the application"),
        ("WhisperBeamSearch", [X], {}, "loop of the application"),
    ],
)
def test_reasons(ours, operator, inputs, attributes, reason):
    with pytest.raises(UnassignedNode) as caught:
        ours(operator, inputs, **attributes)
    assert reason in str(caught.value)
    assert "cannot be replaced by a function" in str(caught.value)


def test_an_output_that_is_not_made(ours):
    with pytest.raises(UnassignedNode, match="does not make output 1"):
        ours("SkipSimplifiedLayerNormalization", [X, X, X[0, 0]], outputs=(0, 1))


def test_an_opset_that_is_too_old(ours):
    with pytest.raises(UnassignedNode, match=r"needs opset 9 .* imports 8"):
        ours("Gelu", [X], opset=8)
    with pytest.raises(UnassignedNode, match=r"needs opset 14 .* imports 13"):
        ours("Trilu", [X], opset=13)


def test_a_type_that_nothing_tells():
    """CastLike, which needs none, came with opset 15."""
    nodes = [
        helper.make_node("Elsewhere", ["x"], ["a"], domain="com.example"),
        helper.make_node("Gelu", ["a"], ["y"], domain="com.microsoft"),
    ]
    x = helper.make_tensor_value_info("x", 1, [2])
    imports = [("", 13), ("com.example", 1), ("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")]),
        opset_imports=[helper.make_opsetid(*pair) for pair in imports],
        ir_version=10,
    )
    with pytest.raises(UnassignedNode, match="element type of its input 'x'"):
        onnxplug.InferenceSession(model.SerializeToString())
