"""ONNX Runtime's own operators as functions of ONNX's operators.

Source: ``docs/ContribOperators.md`` of ONNX Runtime; where it leaves something open,
what ONNX Runtime computes on the CPU.

A table rather than imports, so that a model pays only for the families it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.ep import SPI_VERSION, Domain, GraphEditor, Operator, Reason
from onnxplug.layout import (
    NCHWC_DOMAIN,
    NCHWC_OPERATORS,
    NHWC_DOMAIN,
    NHWC_OPERATORS,
)

if TYPE_CHECKING:
    from onnxplug.graph import Function, Graph, Node

__all__ = ["DOMAINS", "find", "with_blocks"]

_MICROSOFT: Final = "com.microsoft"

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
        "FusedGemm FusedMatMul FusedMatMulActivation MatMulNBits QLinearMatMul "
        "TransposeMatMul"
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
}

_ADDED_TO_ONNX: Final[dict[str, str]] = {
    "norm": "LayerNormalization SimplifiedLayerNormalization"
}
"""What ONNX Runtime adds to ONNX's domain."""

_SEARCHES: Final = "BeamSearch GreedySearch Sampling WhisperBeamSearch"
_WHY_NO_SEARCH: Final = (
    "it runs the decoder in its attributes once for each token, which is a loop of the "
    "application's: export the encoder and the decoder as models of their own, and "
    "choose tokens between runs, as Optimum, transformers and onnxruntime-genai do"
)


def find(domain: str, op_type: str) -> Operator | None:
    """What the host knows of an operator itself."""
    return _OPERATORS.get((domain, op_type))


def _operators(families: Mapping[str, str]) -> Iterator[Operator]:
    for family, op_types in families.items():
        function = _made_in(family)
        for op_type in op_types.split():
            yield Operator(op_type=op_type, function=function)


def _made_in(family: str) -> Callable[[Graph, Node], Function | Reason]:
    """What makes the functions of a family, its module imported when first needed."""

    def function(graph: Graph, node: Node) -> Function | Reason:
        from onnxplug.functions.operators import make

        importlib.import_module(f"{__name__}.{family}")
        return make(graph, node)

    return function


def _channels_last(graph: Graph, node: Node) -> Function | Reason:
    """The function of an operator with channels last, the module imported now."""
    from onnxplug.functions.channels_last import make

    return make(graph, node)


def with_blocks(size: int | None) -> Domain:
    """The operators on images whose channels are in blocks of *size*.

    Args:
        size: ``None``: of what size a model says.
    """

    def rewrite(editor: GraphEditor) -> Sequence[str]:
        from onnxplug.functions.blocks import rewrite

        return rewrite(editor, size)

    return _domain(
        NCHWC_DOMAIN,
        *(
            Operator(op_type=op_type, rewrite=rewrite)
            for op_type in sorted(NCHWC_OPERATORS)
        ),
    )


def _domain(name: str, *operators: Operator) -> Domain:
    return Domain(name=name, spi_version=SPI_VERSION, operators=operators)


DOMAINS: Final[Mapping[str, Domain]] = {
    domain.name: domain
    for domain in (
        _domain("", *_operators(_ADDED_TO_ONNX)),
        _domain(
            _MICROSOFT,
            *_operators(_FAMILIES),
            *(
                Operator(op_type=op_type, refused=_WHY_NO_SEARCH)
                for op_type in _SEARCHES.split()
            ),
        ),
        _domain(
            NHWC_DOMAIN,
            *(
                Operator(op_type=op_type, function=_channels_last)
                for op_type in sorted(NHWC_OPERATORS)
            ),
        ),
        with_blocks(None),
    )
}
"""The domains that the host itself knows operators of."""

_OPERATORS: Final = {
    (name, operator.op_type): operator
    for name, domain in DOMAINS.items()
    for operator in domain.operators
}
