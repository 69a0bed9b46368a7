"""The table of operators, filled by the modules beside this one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.ir.elements import described, element_of, is_half

if TYPE_CHECKING:
    from onnxplug.ep import TensorFacts
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Support, Target
    from onnxplug_compiler.ir.views import View
    from onnxplug_compiler.schedule.planned import Planned, Planning

Inputs: TypeAlias = Sequence[Abstract | None]
"""What is known of a call's inputs, by position."""

Results: TypeAlias = Sequence[Abstract | None]
"""What is known of a call's outputs, by position."""

Facts: TypeAlias = "Sequence[TensorFacts | None]"

Dtypes: TypeAlias = Sequence["np.dtype[Any] | None"]

F32: Final = np.dtype(np.float32)


class Plan(Protocol):
    """A plan while it is made, as an operation sees it."""

    recorder: Recorder[Target]

    def known(self, name: str) -> Abstract:
        """What is known of a value of the plan."""

    def results(self, call: Call) -> Results:
        """What is known of the call's outputs, also of those that nobody wants."""

    def view(self, name: str) -> View:
        """Where a value is."""

    def destination(self, name: str, *, padded_rows: bool = False) -> View:
        """Where to write a value: a new array, its elements in the order of its axes,
        or, around convolutions, in another one if the operator's traits say that it
        takes any.

        With *padded_rows* there may be gaps between rows, for products that want them.
        """

    def around(self, name: str) -> tuple[View, tuple[int, ...]] | None:
        """A value with the zeros around it in memory, and where in that it begins;
        ``None`` if there are none."""

    def lies_within(self, name: str, whole: str, start: int) -> bool:
        """Whether a value was written where its channels are those of *whole*, which
        has its target, from *start* on."""

    def alias(self, name: str, view: View) -> None:
        """Say that a value is *view* of one that was computed before."""

    def contiguous(self, view: View) -> View:
        """*view*, or a copy of it in C order."""

    def planned(self, body: Planning, inputs: Sequence[Abstract]) -> Planned:
        """The plan of a body of control flow, which no other plan has."""


class Extent(Record):
    """How far outputs reach whose sizes depend on elements.

    Such a call has one more output, the last: one element of int64, how many places
    along an axis the others have.  They are planned as large as they can be; a run
    writes the elements that there are one after another.

    Attributes:
        facts: the outputs as large as they can be, and the number.
        axes: for each output the axis that has as many places; ``None`` for one whose
            size follows from shapes.
    """

    facts: Callable[[Call, Facts], list[TensorFacts]]
    axes: Callable[[Call], tuple[int | None, ...]]


class Operation(Record):
    """How one operator is planned.

    Attributes:
        record: records the commands, or the alias, of a call.
        accepts: why a call with these dtypes of inputs is not compiled for a target,
            ``None`` if it is; looks at what is known before shapes are.
        check: raises ``NotCompiled`` for inputs whose sizes do not go together, or are
            none that the kernel takes, whatever the host's rules say of the outputs.
        known: positions of inputs whose content must be known when planning.
        any_output: whether the first output may be left out, too.
        facts: what follows for the outputs, where the host has no rule for it.
        floors: positions of inputs whose content must be known only where it is a
            number beyond a size: of the input at a position, along an axis.
        in_place: positions of outputs that may be in the memory of an input, each with
            that of this: only what makes the output reads the input.
    """

    record: Callable[[Plan, Call], None]
    accepts: Callable[[Call, Dtypes, Support], str | None]
    check: Callable[[Call, Inputs, Results], None] | None = None
    known: frozenset[int] = frozenset()
    any_output: bool = False
    extent: Extent | None = None
    facts: Callable[[Call, Facts], Sequence[TensorFacts]] | None = None
    floors: Mapping[int, tuple[int, int]] = MappingProxyType({})
    in_place: Mapping[int, int] = MappingProxyType({})


OPERATORS: Final = {
    "attention": "ScaledDotProduct Attention",
    "caches": "com.microsoft.GroupQueryAttention",
    "coded": "com.microsoft.MatMulNBits MatMulInteger DequantizedMatMul",
    "coded_factors": "QuantizedMatMul QuantizedConv",
    "coded_results": "com.microsoft.MatMulIntegerToFloat "
    "com.microsoft.DynamicQuantizeMatMul com.microsoft.QGemm",
    "control_flow": "If Loop Scan",
    "causal_convolution": "CausalConvWithState",
    "convolution": "Conv ConvTranspose",
    "einsum": "Einsum",
    "encoders": "ai.onnx.ml.OneHotEncoder ai.onnx.ml.LabelEncoder "
    "ai.onnx.ml.FeatureVectorizer",
    "experts": "com.microsoft.MoE com.microsoft.QMoE",
    "features": "ai.onnx.ml.Scaler ai.onnx.ml.Binarizer ai.onnx.ml.Imputer "
    "ai.onnx.ml.Normalizer ai.onnx.ml.ArrayFeatureExtractor",
    "fourier": "DFT STFT",
    "gathered_codes": "com.microsoft.GatherBlockQuantized DequantizedGather",
    "generation": "ConstantOfShape EyeLike BlackmanWindow HammingWindow HannWindow "
    "MelWeightMatrix",
    "indexing": "Gather GatherElements GatherND Scatter ScatterElements ScatterND "
    "TensorScatter Window",
    "integer_convolution": "ConvInteger QLinearConv DequantizedConv",
    "kept": "NonMaxSuppression NonZero Compress Unique",
    "linear_quantization": " ".join(
        f"com.microsoft.QLinear{name}"
        for name in (
            "Add Mul LeakyRelu Sigmoid Where Concat GlobalAveragePool AveragePool "
            "ReduceMean Softmax"
        ).split()
    ),
    "linear_attention": "LinearAttention",
    "linear": "ai.onnx.ml.LinearRegressor ai.onnx.ml.LinearClassifier",
    "mapped": "MappedCodes",
    "matmul": "MatMul Gemm",
    "movement": "Concat Tile Pad CenterCropPad Trilu CumProd CumSum",
    "normalization": "BatchNormalization InstanceNormalization GroupNormalization "
    "LpNormalization LRN MeanVarianceNormalization",
    "one_hot": "OneHot",
    "pooling": "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool "
    "GlobalLpPool",
    "quantization": "DequantizeLinear com.microsoft.DequantizeLinear QuantizeLinear "
    "com.microsoft.QuantizeLinear DynamicQuantizeLinear QLinearMatMul",
    "quantized_rows": "QuantizedRows",
    "quantised_recurrent": "com.microsoft.DynamicQuantizeLSTM",
    "recurrent": "GRU LSTM RNN",
    "reduction": "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    "roomy_caches": "com.microsoft.MultiHeadAttention "
    "com.microsoft.DecoderMaskedMultiHeadAttention",
    "rows": "Softmax LogSoftmax LayerNormalization RMSNormalization",
    "selection": "ArgMax ArgMin TopK Hardmax",
    "sequences": "ReverseSequence",
    "spatial": "Resize Upsample GridSample RoiAlign AffineGrid",
    "support_vectors": "ai.onnx.ml.SVMRegressor ai.onnx.ml.SVMClassifier",
    "texts": "TfIdfVectorizer",
    "trees": "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier "
    "ai.onnx.ml.TreeEnsembleRegressor",
    "views": "Reshape Flatten Squeeze Unsqueeze Transpose DepthToSpace SpaceToDepth "
    "Expand Slice Split Identity BitCast Dropout",
    "window_places": "Col2Im DeformConv MaxUnpool",
}
"""The modules of this package, and the operators that each registers, with their domain
if it is not ONNX's: a process imports those that its models need."""

_MODULES: Final = {
    op_type: module for module, named in OPERATORS.items() for op_type in named.split()
}
_OPERATIONS: Final[dict[str, Operation]] = {}


def register(op_types: str, operation: Operation) -> None:
    """Declare *operation* the way to plan the operators named, separated by spaces, as
    :data:`OPERATORS` names them."""
    for op_type in op_types.split():
        _OPERATIONS[op_type] = operation


def find_operation(call: Call) -> Operation | None:
    """How to plan *call*; ``None`` for what the compiled tier does not have."""
    name = f"{call.domain}.{call.op_type}" if call.domain else call.op_type
    module = _MODULES.get(name)
    if module is None:
        return None
    if name not in _OPERATIONS:
        importlib.import_module(f"{__package__}.{module}")
    return _OPERATIONS[name]


def given(values: Sequence[Abstract | None], position: int = 0) -> Abstract:
    """The input or output at *position*, which is there."""
    value = values[position]
    assert value is not None
    return value


def computed(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts inputs of one type with which the target computes the operator."""
    elements, first = target.elements(call.op_type), dtypes[0]
    alike = [*dtypes]
    if call.traits.anchors and first == F32 and target.has_narrow_factors:
        alike[1:2] = [first] if is_half(dtypes[1]) else dtypes[1:2]
    if (
        first is not None
        and element_of(first) in elements
        and all(dtype is None or dtype == first for dtype in alike)
    ):
        return None
    if not elements:
        return f"{call.op_type} is not compiled"
    found = ", ".join(str(dtype) for dtype in dtypes)
    return f"{call.op_type} is compiled for {described(elements)}; found {found}"


def alike(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts inputs of one type that the target moves."""
    if any(dtype != dtypes[0] for dtype in dtypes[1:]):
        found = ", ".join(str(dtype) for dtype in dtypes)
        return f"{call.op_type} is compiled for inputs of one type; found {found}"
    return moved(call, dtypes, target)


def moved(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts inputs of types that the target takes, each by itself."""
    elements = target.elements(call.op_type)
    for dtype in dtypes:
        if dtype is not None and element_of(dtype) not in elements:
            return f"{call.op_type} is not compiled for {dtype}"
    return None
