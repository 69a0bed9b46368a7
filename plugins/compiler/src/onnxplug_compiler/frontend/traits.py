"""What the stages of compilation need to know of operators, beside their kernels.

Which operators are element-wise, and for which types, a target says; how others are
planned, the registry of :mod:`~..schedule.operations`.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record


class Traits(Record):
    """What holds for all calls of an operator.

    Attributes:
        multiplies: a product of matrices.
        coded: one of factors that are codes, with zero points and scales.
        anchors: one, or a convolution, whose result a chain of element-wise calls can
            take tile by tile.
        reshapes: the output has the first input's elements in the same order.
        permutes: it has the same elements in another order of axes.
        selects: the outputs are parts of the first input, seen where they are.
        channels_last: a convolution or the like: its first input is read, and its
            output written, fastest where the second axis is the last in memory.
        any_order: inputs are read, and outputs written, about as fast in any order of
            axes in memory, if it is the same for all.
        of_shapes: nothing but the shapes of inputs is read.
        unpacks: results are larger than inputs, so those of constants are not kept.
        varies: results of the same inputs may differ.
        has_bodies: it may take any time.
    """

    multiplies: bool = False
    coded: bool = False
    anchors: bool = False
    reshapes: bool = False
    permutes: bool = False
    selects: bool = False
    channels_last: bool = False
    any_order: bool = False
    of_shapes: bool = False
    unpacks: bool = False
    varies: bool = False
    has_bodies: bool = False

    @property
    def follows(self) -> bool:
        """Whether results of inputs that are known are computed for a plan."""
        return not (self.varies or self.unpacks or self.has_bodies)

    @property
    def keeps_elements(self) -> bool:
        """Whether the output is the first input seen in another way."""
        return self.reshapes or self.permutes


CODED: Final = Traits(coded=True, anchors=True)
"""Of products of codes."""

CODED_IMAGES: Final = Traits(coded=True, anchors=True, channels_last=True)
"""Of convolutions with them."""

MAPPED: Final = Traits(any_order=True)
"""Of look-ups of codes, one by one."""

TRAITS: Final = {
    operator: traits
    for operators, traits in (
        ("MatMul Gemm", Traits(multiplies=True, anchors=True)),
        (
            "MatMulInteger com.microsoft.MatMulNBits",
            CODED,
        ),
        ("ConvInteger", CODED_IMAGES),
        ("DequantizeLinear", Traits(unpacks=True)),
        ("Conv ConvTranspose", Traits(anchors=True, channels_last=True)),
        (having("reshapes"), Traits(reshapes=True)),
        ("Transpose", Traits(permutes=True)),
        ("Identity Slice Split", Traits(selects=True)),
        (
            "AveragePool CausalConvWithState LpPool MaxPool QLinearConv RoiAlign "
            "com.microsoft.QLinearAveragePool",
            Traits(channels_last=True),
        ),
        ("GlobalAveragePool GlobalLpPool GlobalMaxPool", Traits(any_order=True)),
        ("CenterCropPad Concat Pad Resize Tile Upsample", Traits(any_order=True)),
        (
            "BatchNormalization GroupNormalization InstanceNormalization "
            "LpNormalization LRN MeanVarianceNormalization",
            Traits(any_order=True),
        ),
        (having("reduction"), Traits(any_order=True)),
        (
            "DynamicQuantizeLinear com.microsoft.QLinearAdd com.microsoft.QLinearMul "
            "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid "
            "com.microsoft.QLinearWhere com.microsoft.QLinearConcat "
            "com.microsoft.QLinearGlobalAveragePool",
            Traits(any_order=True),
        ),
        (having("shape_only"), Traits(of_shapes=True)),
        (having("random") | {"Dropout"}, Traits(varies=True)),
        (having("control_flow"), Traits(has_bodies=True)),
    )
    for operator in sorted(operators.split() if type(operators) is str else operators)
}
"""Of operators that have any, with their domain if it is not ONNX's."""

NONE: Final = Traits()
