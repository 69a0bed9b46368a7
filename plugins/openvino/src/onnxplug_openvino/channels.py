"""Sums over images whose last channels OpenVINO's CPU plugin adds in another order.

Behind a convolution, channels lie side by side, and are summed eight or sixteen at a
time; those left over are summed by other instructions.  Each sum is as exact as the
others, but channels that hold the same values get sums that differ in the last bits.
A model that compares channels shows it: by which of them is the largest, or by a
softmax of large values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onnxplug import ep

_SUMS: Final = frozenset(
    {
        "GlobalAveragePool", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMean", "ReduceSum", "ReduceSumSquare",
    }
)  # fmt: skip
_COMPARES: Final = frozenset(
    {"ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax", "TopK"}
)
_KEEPS_APART: Final = frozenset(
    {
        "Add", "Cast", "Div", "Dropout", "Flatten", "Identity", "Mul", "Reshape",
        "Squeeze", "Sub", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators behind which equal channels are equal still, and others are not."""

_TOGETHER: Final = 16
_FEW: Final = 8


class Channels:
    """Which values of a graph have their elements compared with each other."""

    def __init__(self, graph: ep.Graph) -> None:
        self._graph = graph
        self._compared: set[str] = set()
        for node in reversed(graph.nodes):
            if node.op_type in _COMPARES or (
                node.op_type in _KEEPS_APART
                and not self._compared.isdisjoint(node.outputs)
            ):
                self._compared.update(filter(None, node.inputs))

    def check(self, node: ep.Node) -> ep.Reason | None:
        """Why *node* is refused; ``None`` if its channels may be summed differently."""
        if (
            node.op_type not in _SUMS
            or not node.inputs[0]
            or self._compared.isdisjoint(node.outputs)
        ):
            return None
        shape = self._graph.value(node.inputs[0]).shape
        if shape is None or len(shape) != 4 or not self._sums_images(node):
            return None
        channels = shape[1]
        if isinstance(channels, int) and (
            channels <= _FEW or channels % _TOGETHER == 0
        ):
            return None
        return ep.Reason(
            ep.RefusalCode.OTHER,
            f"{channels} channels that are compared later, the last of which OpenVINO "
            f"sums in another order; takes up to {_FEW} and multiples of {_TOGETHER}",
        )

    def _sums_images(self, node: ep.Node) -> bool:
        """Whether it sums over, or may sum over, both dimensions of images alone."""
        if node.op_type == "GlobalAveragePool":
            return True
        axes: Sequence[int] | None = node.attributes.get("axes")
        if len(node.inputs) > 1 and node.inputs[1]:
            given: Any = self._graph.constant(node.inputs[1])
            if given is None:
                return True
            axes = given.reshape(-1).tolist()
        return axes is not None and {axis % 4 for axis in axes} == {2, 3}
