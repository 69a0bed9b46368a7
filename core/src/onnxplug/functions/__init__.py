"""ONNX Runtime's own operators as functions of ONNX's operators.

Source: ``docs/ContribOperators.md`` of ONNX Runtime; where it leaves something open,
what ONNX Runtime computes on the CPU.

A table rather than imports, so that a model pays only for the families it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onnxplug.graph import Function, Graph, Node

__all__ = ["DOMAIN", "knows", "listed_operators", "make_function", "why_not"]

DOMAIN: Final = "com.microsoft"

_FAMILIES: Final[dict[str, str]] = {
    "gelu": (
        "BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu FastGelu Gelu "
        "GemmFastGelu QuickGelu"
    ),
    "norm": (
        "EmbedLayerNormalization GroupNorm LayerNormalization "
        "SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization"
    ),
    "matmul": (
        "FusedGemm FusedMatMul FusedMatMulActivation MatMulNBits TransposeMatMul"
    ),
    "conv": (
        "ConvTransposeWithDynamicPads FusedConv NhwcConv NhwcFusedConv NhwcMaxPool "
        "QLinearConv"
    ),
    "shape": (
        "ComplexMul ComplexMulConj ExpandDims GatherND IsAllFinite Pad Range "
        "TorchEmbedding Trilu"
    ),
    "rotary": "RotaryEmbedding",
    "attention": "Attention DecoderMaskedMultiHeadAttention MultiHeadAttention",
    "grouped": "GroupQueryAttention",
    "search": "BeamSearch GreedySearch Sampling WhisperBeamSearch",
}

_OPERATORS: Final[dict[tuple[str, str], str]] = {
    (DOMAIN, op_type): family
    for family, operators in _FAMILIES.items()
    for op_type in operators.split()
} | {
    # ONNX Runtime adds these to ONNX's domain
    ("", "LayerNormalization"): "norm",
    ("", "SimplifiedLayerNormalization"): "norm",
}


def knows(node: Node) -> bool:
    """Whether *node* is of an operator that is in the table."""
    return (node.domain, node.op_type) in _OPERATORS


def listed_operators() -> Iterator[tuple[str, str, str]]:
    """The domain and name of each operator, and why it never has a function, if so."""
    from onnxplug.functions.operators import refusal

    for (domain, op_type), family in _OPERATORS.items():
        importlib.import_module(f"{__name__}.{family}")
        yield domain, op_type, refusal(op_type)


def make_function(graph: Graph, node: Node) -> Function | None:
    """A function for *node* of *graph*, of *graph*'s opset.

    Returns:
        ``None`` for an operator that is none of these, and for a form of one that has
        no function, or needs types that are not known; :func:`why_not` tells.
    """
    found = _made(graph, node)
    return None if isinstance(found, str) else found


def why_not(graph: Graph, node: Node) -> str | None:
    """Why *node*, of one of these operators, has no function; ``None`` otherwise."""
    found = _made(graph, node)
    return found if isinstance(found, str) else None


def _made(graph: Graph, node: Node) -> Function | str | None:
    family = _OPERATORS.get((node.domain, node.op_type))
    if family is None or (not node.domain and node.since_version):
        return None  # what ONNX defines in this opset is not ONNX Runtime's
    from onnxplug.functions.operators import make

    importlib.import_module(f"{__name__}.{family}")
    return make(graph, node)
