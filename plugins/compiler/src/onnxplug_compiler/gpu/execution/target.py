"""GPUs as targets of the compiler: what they take, and which families record what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from onnxplug.authoring.operators import having
from onnxplug_compiler.gpu.command import (
    MOST_BUFFERS,
    MOST_GROUPS,
    Assembly,
    GpuCommand,
    assemble,
)
from onnxplug_compiler.gpu.families import elementwise
from onnxplug_compiler.gpu.families.ranks import RANKED
from onnxplug_compiler.gpu.render.dialect import Dialect
from onnxplug_compiler.gpu.render.minifloats import MINIFLOATS, POWERS
from onnxplug_compiler.gpu.render.steps import supports
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_compiler.gpu.shapes import DEFAULT, Shapes
from onnxplug_compiler.ir.elements import ELEMENTS as NAMES
from onnxplug_compiler.ir.elements import SUB_BYTE
from onnxplug_compiler.ir.target import ChainLimits
from onnxplug_compiler.schedule.operations.registry import OPERATORS

if TYPE_CHECKING:
    from onnxplug_compiler.ir import (
        families,
        images,
        recurrent,
        selection,
        tables,
        trees,
    )
    from onnxplug_compiler.ir.caches import Caches
    from onnxplug_compiler.ir.coded import CodedProducts
    from onnxplug_compiler.ir.linear_attention import LinearAttentions
    from onnxplug_kernels.ml.forest import Forest

_MOST_STEPS: Final = 64
_MOST_OPERANDS: Final = 16
"""Of a chain, as more values do not fit registers."""

_MOVED: Final = frozenset(NAMES.values()) - SUB_BYTE
_FLOATS: Final = frozenset({"f32", "f16", "bf16"})
_INTEGERS: Final = frozenset({"i8", "u8", "i16", "u16", "i32", "u32"})
_NUMBERS: Final = _FLOATS | _INTEGERS
_WIDE: Final = frozenset({"i64", "u64"})
_CODES: Final = SUB_BYTE | {"i8", "u8", "i16", "u16"}
_FLOAT_CODES: Final = MINIFLOATS - {POWERS}
ELEMENTS: Final[Mapping[str, Collection[str]]] = {
    **dict.fromkeys(
        (
            "Reshape Flatten Squeeze Unsqueeze Transpose Expand Slice Split Identity "
            "Dropout Concat Tile Pad Trilu DepthToSpace SpaceToDepth "
            "Gather GatherElements GatherND Scatter ScatterElements ScatterND "
            "ArrayFeatureExtractor ReverseSequence Compress TensorScatter "
            "ConstantOfShape BitCast CenterCropPad "
            "BlackmanWindow HammingWindow HannWindow MelWeightMatrix"
        ).split(),
        _MOVED,
    ),
    **dict.fromkeys(
        (
            "NonMaxSuppression DFT STFT "
            "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor "
            "Scaler Binarizer Imputer Normalizer LinearRegressor LinearClassifier"
        ).split(),
        frozenset({"f32"}),
    ),
    **dict.fromkeys("ArgMax ArgMin TopK NonZero Unique".split(), RANKED),
    **dict.fromkeys(having("reduction"), _FLOATS),
    **dict.fromkeys(
        "ReduceMax ReduceMin ReduceSum ReduceProd ReduceL1 ReduceSumSquare "
        "CumSum CumProd".split(),
        _NUMBERS | _WIDE,
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _NUMBERS | _WIDE | {"i1"}),
    **dict.fromkeys(
        (
            "MatMulInteger QLinearMatMul DynamicQuantizeLinear ConvInteger QLinearConv"
        ).split(),
        frozenset({"i8", "u8"}),
    ),
    "QuantizeLinear": _CODES | _FLOAT_CODES,
    "DequantizeLinear": _CODES | _FLOAT_CODES | {"i32"},
    "com.microsoft.MatMulNBits": _FLOATS,
    "com.microsoft.GroupQueryAttention": _FLOATS,
    **dict.fromkeys(
        [
            *OPERATORS["linear_quantization"].split(),
            *OPERATORS["coded_results"].split(),
        ],
        frozenset({"i8", "u8"}),
    ),
    "EyeLike": _NUMBERS | _WIDE | {"i1"},
    "Col2Im": _NUMBERS,
    "MaxPool": _FLOATS | {"i8", "u8"},
    "MaxPlaces": _FLOATS | {"i8", "u8"},
    **dict.fromkeys(("MatMul", "Gemm", "Einsum"), _NUMBERS | _WIDE),
    **dict.fromkeys(
        (
            "Softmax LogSoftmax LayerNormalization RMSNormalization "
            "RNN GRU LSTM BatchNormalization InstanceNormalization GroupNormalization "
            "LpNormalization MeanVarianceNormalization CausalConvWithState AffineGrid "
            "LinearAttention Conv ConvTranspose ScaledDotProduct Attention "
            "AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool "
            "Hardmax LRN Resize Upsample GridSample RoiAlign DeformConv MaxUnpool"
        ).split(),
        _FLOATS,
    ),
}
"""Those that the families compute with in every dialect, by operator."""

WIDE_ELEMENTS: Final[Mapping[str, Collection[str]]] = {
    **ELEMENTS,
    **{
        operator: {*ELEMENTS[operator], "f64"}
        for operator in (
            *having("reduction"),
            *"CumSum CumProd MatMul Gemm Einsum Conv Softmax LogSoftmax AffineGrid "
            "MeanVarianceNormalization".split(),
        )
    },
}
"""The same in dialects that are ``wide``."""


class GpuTarget:
    """A :class:`onnxplug_compiler.ir.target.Target`.

    Args:
        dialect: of its kernels; it says for which elements what is computed.
        shapes: of workgroups.
        most_buffers: of a kernel.
        most_groups: workgroups of a launch along each of its two axes.
    """

    convolutions: families.Convolutions | None = None
    transforms = None
    flow = None
    experts = None
    coded_rows = None
    has_narrow_factors = False
    bits_of_caches = ()

    def __init__(
        self,
        *,
        dialect: Dialect = WGSL,
        prefers_channels_last: bool = True,
        shapes: Shapes = DEFAULT,
        most_buffers: int = MOST_BUFFERS,
        most_groups: tuple[int, int] = (MOST_GROUPS, MOST_GROUPS),
    ) -> None:
        self.dialect = dialect
        self.prefers_channels_last = prefers_channels_last
        self.shapes = shapes
        self.most_buffers = most_buffers
        self.most_groups = most_groups
        # a product behind which a chain stands needs two, and the result one
        operands = min(_MOST_OPERANDS, most_buffers - 3)
        self.chain_limits = ChainLimits(_MOST_STEPS, operands, operands + 1)

    def supports_step(
        self,
        operator: str,
        operands: Sequence[str],
        result: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        """Whether kernels have the operator as a step."""
        return supports(operator, operands, result, attributes, wide=self.dialect.wide)

    def takes_forest(self, forest: Forest) -> bool:
        """Whether all its comparisons are computed."""
        from onnxplug_compiler.gpu.families.trees import takes

        return takes(forest)

    def elements(self, operator: str) -> Collection[str]:
        """Those of which there are kernels."""
        found = WIDE_ELEMENTS if self.dialect.wide else ELEMENTS
        return found.get(operator, frozenset())

    def row_padding(self, nbytes: int) -> int:
        """None."""
        return 0

    def assemble(self, commands: Sequence[GpuCommand]) -> Assembly:
        """The commands of a piece."""
        return assemble(commands)

    @property
    def elementwise(self) -> families.Elementwise:
        return elementwise

    @property
    def contractions(self) -> families.Contractions:
        from onnxplug_compiler.gpu.families import contractions

        return contractions

    @property
    def coded_products(self) -> CodedProducts:
        from onnxplug_compiler.gpu.families import contractions

        return contractions

    @property
    def pools(self) -> families.Pools:
        from onnxplug_compiler.gpu.families import pools

        return pools

    @property
    def windows(self) -> families.Windows:
        from onnxplug_compiler.gpu.families import windows

        return windows

    @property
    def movement(self) -> families.Movement:
        from onnxplug_compiler.gpu.families import movement

        return movement

    @property
    def indexing(self) -> families.Indexing:
        from onnxplug_compiler.gpu.families import indexing

        return indexing

    @property
    def reductions(self) -> families.Reductions:
        from onnxplug_compiler.gpu.families import reductions

        return reductions

    @property
    def rows(self) -> families.Rows:
        from onnxplug_compiler.gpu.families import rows

        return rows

    @property
    def attention(self) -> families.Attention:
        from onnxplug_compiler.gpu.families import attention

        return attention

    @property
    def caches(self) -> Caches:
        from onnxplug_compiler.gpu.families import caches

        return caches

    # of what follows elements() takes nothing

    @property
    def resampling(self) -> images.Resampling:
        from onnxplug_compiler.gpu.families import resampling

        return resampling

    @property
    def grid_sampling(self) -> images.GridSampling:
        from onnxplug_compiler.gpu.families import grid_sampling

        return grid_sampling

    @property
    def region_pools(self) -> images.RegionPools:
        from onnxplug_compiler.gpu.families import region_pools

        return region_pools

    @property
    def window_places(self) -> images.WindowPlaces:
        from onnxplug_compiler.gpu.families import window_places

        return window_places

    @property
    def recurrent(self) -> recurrent.Recurrent:
        from onnxplug_compiler.gpu.families import recurrent

        return recurrent

    @property
    def linear_attention(self) -> LinearAttentions:
        from onnxplug_compiler.gpu.families import linear_attention

        return linear_attention

    @property
    def trees(self) -> trees.Trees:
        from onnxplug_compiler.gpu.families import trees

        return trees

    @property
    def tables(self) -> tables.Tables:
        _refuse("tables are not looked up")

    @property
    def selection(self) -> selection.Selection:
        from onnxplug_compiler.gpu.families import selection

        return selection


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} on GPUs")
