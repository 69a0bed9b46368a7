"""What the stages of compilation need to know of operators, beside their kernels.

Which operators are element-wise, and for which types, says
:mod:`~..kernels.elementwise.operators`; which others have kernels, the registry of
:mod:`~..schedule.operations`.
"""

from __future__ import annotations

from typing import Final

from onnxplug.ep.record import Record


class Traits(Record):
    """What holds for all calls of an operator.

    Attributes:
        anchors: a product, whose result a chain of element-wise calls can take tile by
            tile.
        reshapes: the output has the first input's elements in the same order.
        permutes: it has the same elements in another order of axes.
        of_shapes: nothing but the shapes of inputs is read.
        varies: results of the same inputs may differ.
    """

    anchors: bool = False
    reshapes: bool = False
    permutes: bool = False
    of_shapes: bool = False
    varies: bool = False

    @property
    def keeps_elements(self) -> bool:
        """Whether the output is the first input seen in another way."""
        return self.reshapes or self.permutes


TRAITS: Final = {
    operator: traits
    for operators, traits in (
        ("MatMul Gemm", Traits(anchors=True)),
        ("Reshape Flatten Squeeze Unsqueeze", Traits(reshapes=True)),
        ("Transpose", Traits(permutes=True)),
        ("Shape Size", Traits(of_shapes=True)),
        ("Bernoulli Dropout Multinomial RandomNormal", Traits(varies=True)),
        ("RandomNormalLike RandomUniform RandomUniformLike", Traits(varies=True)),
    )
    for operator in operators.split()
}
"""Of ONNX's operators that have any."""

NONE: Final = Traits()
