"""ONNX Runtime's own operators, a row for each, but for those on blocks.

Source: ``docs/ContribOperators.md`` of ONNX Runtime.  A row says what the host may know
of an operator, and names the modules that make its function or hold its kernel, which
are imported when a model uses one of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep import Domain, Function, Graph, Node, Operator, Reason
from onnxplug_microsoft import types
from onnxplug_microsoft.names import MICROSOFT, ONNX

if TYPE_CHECKING:
    from onnxplug.ep import InferTypes, Trait

_SAME: Final = "Identity"
"""The types of operators whose result is of the type of their first input."""

_WHY_NO_SEARCH: Final = (
    "it runs the decoder in its attributes once for each token, which is a loop of the "
    "application's: export the encoder and the decoder as models of their own, and "
    "choose tokens between runs, as Optimum, transformers and onnxruntime-genai do"
)


def _row(
    op_type: str,
    function: str = "",
    *,
    kernel: str = "",
    types: InferTypes | str | None = None,
    traits: Sequence[Trait] = (),
) -> Operator:
    """A row of the table.

    Args:
        function: the module of ``functions`` that makes it; empty if it has none.
        kernel: likewise, of ``kernels``.
    """
    return Operator(
        op_type=op_type,
        function=_made_in(function) if function else None,
        kernel=_kernel_in(kernel) if kernel else None,
        infer_types=types,
        traits=traits,
    )


def _made_in(family: str) -> Callable[[Graph, Node], Function | Reason]:
    def function(graph: Graph, node: Node) -> Function | Reason:
        from onnxplug_microsoft.functions.makers import make

        import_module(f"onnxplug_microsoft.functions.{family}")
        return make(graph, node)

    return function


def _kernel_in(family: str) -> Callable[[Graph, Node, Any], Any]:
    def kernel(graph: Graph, node: Node, xp: Any) -> Any:
        from onnxplug_microsoft.kernels import KERNELS

        import_module(f"onnxplug_microsoft.kernels.{family}")
        return KERNELS.function_of(graph, node, xp)

    return kernel


ADDED: Final = Domain(
    name=ONNX,
    spi_version=(1, 0),
    operators=(
        _row("LayerNormalization", "norm"),
        _row("SimplifiedLayerNormalization", "norm", types=_SAME),
    ),
)
"""What ONNX Runtime adds to ONNX's own operators."""

OPERATORS: Final = Domain(
    name=MICROSOFT,
    spi_version=(1, 0),
    operators=(
        _row("Attention", "attention"),
        *(
            Operator(op_type=op_type, refused=_WHY_NO_SEARCH)
            for op_type in ("BeamSearch", "GreedySearch")
        ),
        _row("BiasAdd", "gelu"),
        _row("BiasDropout", "gelu"),
        _row("BiasGelu", "gelu", types=_SAME, traits=("broadcast",)),
        _row("BiasSoftmax", "gelu", types=_SAME),
        _row("BiasSplitGelu", "gelu"),
        _row("CDist", "matmul"),
        _row("ComplexMul", "shape"),
        _row("ComplexMulConj", "shape"),
        _row("ConvTransposeWithDynamicPads", "conv"),
        _row("CropAndResize", kernel="image"),
        _row(
            "DecoderMaskedMultiHeadAttention",
            "attention",
            kernel="caches",
            types=types.decoder_attention,
        ),
        _row(
            "DequantizeLinear",
            kernel="quantize",
            types="DequantizeLinear",
            traits=("dequantize",),
        ),
        _row("DynamicQuantizeLSTM", kernel="lstm", types=types.quantized_lstm),
        _row("DynamicQuantizeMatMul", kernel="product", types=types.integer_product),
        _row("EmbedLayerNormalization", "norm"),
        _row("ExpandDims", "shape"),
        _row("FastGelu", "gelu", types=_SAME, traits=("broadcast",)),
        _row("FusedConv", "conv", types="Conv"),
        _row("FusedGemm", "matmul", types="Gemm"),
        _row("FusedMatMul", "matmul", types=types.fused_matmul),
        _row("FusedMatMulActivation", "matmul"),
        _row("GatherBlockQuantized", kernel="quantize"),
        _row("GatherND", "shape"),
        _row("Gelu", "gelu", types=_SAME, traits=("unary",)),
        _row("GemmFastGelu", "gelu"),
        _row("GridSample", kernel="image"),
        _row("GroupNorm", "norm", types=_SAME),
        _row(
            "GroupQueryAttention",
            "grouped",
            kernel="grouped",
            types=types.grouped_attention,
        ),
        _row("Inverse", kernel="arrays"),
        _row("Irfft", kernel="signal"),
        _row("IsAllFinite", "shape"),
        _row("LayerNormalization", "norm", types=_SAME),
        _row("MatMulInteger16", kernel="product"),
        _row("MatMulIntegerToFloat", kernel="product", types=types.integer_product),
        _row("MatMulNBits", "matmul", kernel="quantize", types=types.matmul_n_bits),
        _row("MoE", kernel="experts", types=_SAME),
        _row("MultiHeadAttention", "attention", kernel="caches", types=types.attention),
        _row("MurmurHash3", kernel="text"),
        _row("NhwcConv", "conv"),
        _row("NhwcFusedConv", "conv"),
        _row("NhwcMaxPool", "conv"),
        _row("Pad", "shape"),
        _row("QAttention", "attention", kernel="attention"),
        _row("QEmbedLayerNormalization", kernel="embedding"),
        _row("QGemm", kernel="product", types=types.quantized_gemm),
        _row("QLinearAdd", kernel="linear", types=types.quantized_elementwise),
        _row("QLinearAveragePool", kernel="pool", types=types.quantized_pool),
        _row("QLinearConcat", kernel="linear", types=types.quantized_concat),
        _row("QLinearConv", "conv"),
        _row(
            "QLinearGlobalAveragePool",
            kernel="pool",
            types=types.quantized_global_pool,
        ),
        _row("QLinearLeakyRelu", kernel="linear", types=_SAME),
        _row("QLinearMatMul", "matmul", types="QLinearMatMul"),
        _row("QLinearMul", kernel="linear", types=types.quantized_elementwise),
        _row("QLinearReduceMean", kernel="pool", types=types.quantized_mean),
        _row("QLinearSigmoid", kernel="linear", types=_SAME),
        _row("QLinearSoftmax", kernel="linear", types=_SAME),
        _row("QLinearWhere", kernel="linear", types=types.quantized_choice),
        _row("QMoE", kernel="experts", types=_SAME),
        _row("QuantizeLinear", kernel="quantize", types="QuantizeLinear"),
        _row("QuickGelu", "gelu", types=_SAME, traits=("unary",)),
        _row("Range", "shape"),
        _row("Rfft", kernel="signal"),
        _row("RotaryEmbedding", "rotary", types=_SAME),
        Operator(op_type="Sampling", refused=_WHY_NO_SEARCH),
        _row("SimplifiedLayerNormalization", "norm", types=_SAME),
        _row("SkipGroupNorm", "norm", types=_SAME),
        _row("SkipLayerNormalization", "norm", types=_SAME, traits=("last_axis",)),
        _row("SkipSimplifiedLayerNormalization", "norm", types=_SAME),
        _row("Tokenizer", kernel="text"),
        _row("TorchEmbedding", "shape"),
        _row("TransposeMatMul", "matmul"),
        _row("Trilu", "shape", types=_SAME),
        _row("Unique", kernel="arrays"),
        Operator(op_type="WhisperBeamSearch", refused=_WHY_NO_SEARCH),
    ),
)
"""Those of its own domain."""

_TRAITS: Final = {operator.op_type: operator.traits for operator in OPERATORS.operators}


def traits_of(op_type: str) -> Sequence[Trait]:
    """The traits of an operator of ONNX Runtime's own domain."""
    return _TRAITS.get(op_type, ())
