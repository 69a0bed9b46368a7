"""The CPU as a target: which kernels record what, and what they take.

Families are modules, imported when a model first needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.operators import having
from onnxplug_compiler.ir.elements import (
    COMPUTED,
    ELEMENTS,
    FLOATS,
    NARROW_FLOATS,
    SUB_BYTE,
)
from onnxplug_compiler.ir.target import ChainLimits
from onnxplug_compiler.schedule.operations.registry import OPERATORS
from onnxplug_cpu.compiler.commands.laid import Laid
from onnxplug_cpu.compiler.commands.recording import Machine
from onnxplug_cpu.compiler.kernels.contraction.left_factor import rows_hinder
from onnxplug_cpu.compiler.kernels.elementwise import commands as elementwise
from onnxplug_cpu.compiler.kernels.elementwise.operators import supports
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

if TYPE_CHECKING:
    from onnxplug_compiler.ir import (
        families,
        flow,
        images,
        recurrent,
        selection,
        tables,
        trees,
    )
    from onnxplug_compiler.ir.caches import Caches
    from onnxplug_compiler.ir.coded import CodedProducts, CodedRows
    from onnxplug_compiler.ir.experts import Experts
    from onnxplug_compiler.ir.linear_attention import LinearAttentions
    from onnxplug_kernels.ml.forest import Forest

_LIMITS: Final = ChainLimits(steps=48, operands=12, inputs=32)
"""Of more steps values no longer fit the registers; and the time that LLVM takes for a
kernel grows with more than the number of inputs, to minutes for a thousand."""

_MOVED: Final = frozenset(ELEMENTS.values()) - SUB_BYTE
_CODES: Final = frozenset({"i8", "u8", "i16", "u16"})
"""What numbers are quantised to."""

_WIDE: Final = frozenset({"f32", "f64", "i32", "i64", "u32", "u64"})
_BYTES: Final = frozenset({"i8", "u8"})
_ELEMENTS: Final[Mapping[str, Collection[str]]] = {
    **dict.fromkeys(
        (
            "Reshape Flatten Squeeze Unsqueeze Transpose Expand Slice Split Identity "
            "Dropout Concat Tile Pad Trilu DepthToSpace SpaceToDepth "
            "Gather GatherElements GatherND Scatter ScatterElements ScatterND "
            "ArrayFeatureExtractor Compress ReverseSequence BitCast CenterCropPad "
            "ConstantOfShape TensorScatter "
            "BlackmanWindow HammingWindow HannWindow MelWeightMatrix"
        ).split(),
        _MOVED,
    ),
    **dict.fromkeys(having("reduction"), _WIDE),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _WIDE | {"i8", "u8", "i1"}),
    **dict.fromkeys(("Einsum", "Gemm", "MatMul"), _WIDE),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "MeanVarianceNormalization"),
        frozenset({"f32", "f64"}),
    ),
    "AffineGrid": FLOATS,
    "EyeLike": COMPUTED,
    **dict.fromkeys(("If", "Loop", "Scan"), frozenset(ELEMENTS.values())),
    **dict.fromkeys(("CumProd", "CumSum"), FLOATS | _WIDE),
    **dict.fromkeys("ArgMax ArgMin NonZero TopK Unique".split(), COMPUTED),
    "com.microsoft.MatMulNBits": NARROW_FLOATS,
    **dict.fromkeys(("com.microsoft.MoE", "com.microsoft.QMoE"), NARROW_FLOATS),
    "com.microsoft.GatherBlockQuantized": frozenset({"u8", "i4", "u4"}),
    "QuantizeLinear": _CODES,
    "DequantizeLinear": _CODES | SUB_BYTE | {"i32"},
    "com.microsoft.GroupQueryAttention": frozenset({"f32"}),
    "TfIdfVectorizer": frozenset({"i32", "i64"}),
    **dict.fromkeys(
        (
            "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor "
            "LinearClassifier LinearRegressor SVMClassifier SVMRegressor "
            "Binarizer FeatureVectorizer Imputer LabelEncoder Normalizer OneHotEncoder "
            "Scaler"
        ).split(),
        frozenset({"f32", "f64", "i32", "i64"}),
    ),
    **dict.fromkeys(
        (
            "MatMulInteger ConvInteger QLinearMatMul QLinearConv com.microsoft.QGemm "
            "DynamicQuantizeLinear com.microsoft.DynamicQuantizeMatMul "
            "com.microsoft.MatMulIntegerToFloat com.microsoft.DynamicQuantizeLSTM"
        ).split(),
        _BYTES,
    ),
    **dict.fromkeys(OPERATORS["linear_quantization"].split(), _BYTES),
    **dict.fromkeys(
        (
            "Conv ConvTranspose Attention ScaledDotProduct "
            "CausalConvWithState LinearAttention "
            "LayerNormalization RMSNormalization BatchNormalization "
            "InstanceNormalization GroupNormalization LpNormalization LRN "
            "AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool "
            "Resize Upsample GridSample RoiAlign NonMaxSuppression Hardmax "
            "GRU LSTM RNN DFT STFT"
        ).split(),
        frozenset({"f32"}),
    ),
    "MappedCodes": _BYTES,
    "MaxPool": _BYTES | {"f32"},
}


class CpuTarget(Machine):
    """A :class:`onnxplug_compiler.ir.target.Target`."""

    chain_limits = _LIMITS
    prefers_channels_last = True
    has_narrow_factors = True
    bits_of_caches = (4, 8)

    def supports_step(
        self,
        operator: str,
        operands: Sequence[str],
        result: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        """Whether a kernel has the operator as a step."""
        return supports(operator, operands, result, attributes)

    def takes_forest(self, forest: Forest) -> bool:
        """Whether a table has all comparisons of its nodes."""
        from onnxplug_cpu.compiler.kernels.trees.table import fits

        return fits(forest)

    def elements(self, operator: str) -> Collection[str]:
        """Those of which there are kernels."""
        return _ELEMENTS.get(operator, frozenset())

    def row_padding(self, nbytes: int) -> int:
        """A vector, where rows would evict each other from the first cache."""
        return VECTOR_BYTES if rows_hinder(self.isa, nbytes) else 0

    def assemble(self, commands: Sequence[Any]) -> Laid:
        """The words of the commands."""
        return Laid(commands)

    @property
    def elementwise(self) -> families.Elementwise:
        return elementwise

    @property
    def contractions(self) -> families.Contractions:
        from onnxplug_cpu.compiler.kernels.contraction import commands

        return commands

    convolutions = None
    window_places = None

    @property
    def coded_products(self) -> CodedProducts:
        from onnxplug_cpu.compiler.kernels.coded import commands

        return commands

    @property
    def coded_rows(self) -> CodedRows:
        from onnxplug_cpu.compiler.kernels.normalization import between_codes

        return between_codes

    @property
    def caches(self) -> Caches:
        from onnxplug_cpu.compiler.kernels.caches import commands

        return commands

    @property
    def experts(self) -> Experts:
        from onnxplug_cpu.compiler.flow import experts

        return experts

    @property
    def transforms(self) -> families.Transforms | None:
        if not self.largest_tile:
            return None
        from onnxplug_cpu.compiler.kernels.winograd import commands

        return commands

    @property
    def windows(self) -> families.Windows:
        from onnxplug_cpu.compiler.kernels.window import commands

        return commands

    @property
    def pools(self) -> families.Pools:
        from onnxplug_cpu.compiler.kernels.window import pool

        return pool

    @property
    def movement(self) -> families.Movement:
        from onnxplug_cpu.compiler.kernels.movement import commands

        return commands

    @property
    def indexing(self) -> families.Indexing:
        from onnxplug_cpu.compiler.kernels.movement import gather

        return gather

    @property
    def reductions(self) -> families.Reductions:
        from onnxplug_cpu.compiler.kernels.reduction import commands

        return commands

    @property
    def rows(self) -> families.Rows:
        from onnxplug_cpu.compiler.kernels.normalization import commands

        return commands

    @property
    def attention(self) -> families.Attention:
        from onnxplug_cpu.compiler.kernels.attention import commands

        return commands

    @property
    def resampling(self) -> images.Resampling:
        from onnxplug_cpu.compiler.kernels.spatial import resample

        return resample

    @property
    def grid_sampling(self) -> images.GridSampling:
        from onnxplug_cpu.compiler.kernels.spatial import grid_sample

        return grid_sample

    @property
    def region_pools(self) -> images.RegionPools:
        from onnxplug_cpu.compiler.kernels.spatial import roi_align

        return roi_align

    @property
    def recurrent(self) -> recurrent.Recurrent:
        from onnxplug_cpu.compiler.kernels.recurrent import commands

        return commands

    @property
    def linear_attention(self) -> LinearAttentions:
        from onnxplug_cpu.compiler.kernels.attention import linear

        return linear

    @property
    def trees(self) -> trees.Trees:
        from onnxplug_cpu.compiler.kernels.trees import commands

        return commands

    @property
    def selection(self) -> selection.Selection:
        from onnxplug_cpu.compiler.kernels.selection import commands

        return commands

    @property
    def tables(self) -> tables.Tables:
        from onnxplug_cpu.compiler.kernels.tables import commands

        return commands

    @property
    def flow(self) -> flow.Flow | None:
        from onnxplug_cpu.compiler.flow import commands

        return commands
