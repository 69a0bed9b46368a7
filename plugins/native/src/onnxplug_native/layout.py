"""In which order of axes a library wants operators on images."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Final

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug.layout import NHWC_DOMAIN, NHWC_OPERATORS

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure

_NHWC: Final = 1
_ONNX: Final = ("", "ai.onnx")


class Layout:
    """What an EP of a library says of the order of axes.

    A library that wants channels last computes operators with channels first as if they
    were last, and says nothing: these are never left to it.

    Attributes:
        is_nhwc: it wants channels last.
    """

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        out = ctypes.c_int32()
        if structure.has("GetPreferredDataLayout"):
            structure.call("GetPreferredDataLayout", ctypes.addressof(out))
        self.is_nhwc = out.value == _NHWC
        self._given_back: set[str] = set()

    @functools.cached_property
    def preferences(self) -> ep.Preferences:
        """What the host does for it."""
        return ep.Preferences(layout="NHWC" if self.is_nhwc else "NCHW")

    def _converts(self, op_type: str) -> bool:
        """Whether the library wants an operator with channels last; if it leaves that
        to the host, as those that have such a form."""
        known = self._answers.get(op_type)
        if known is None:
            out = ctypes.c_int32(-1)
            if self._structure.has("ShouldConvertDataLayoutForOp"):
                self._structure.call(
                    "ShouldConvertDataLayoutForOp",
                    b"",
                    op_type.encode(),
                    _NHWC,
                    ctypes.addressof(out),
                )
            known = op_type in NHWC_OPERATORS if out.value < 0 else bool(out.value)
            self._answers[op_type] = known
        return known

    @functools.cached_property
    def _answers(self) -> dict[str, bool]:
        return {}

    def refusals(self, graph: ep.Graph, taken: set[int]) -> dict[int, ep.Reason]:
        """Why nodes that the library has *taken* are not left to it in this form."""
        if not self.is_nhwc:
            return {}
        found: dict[int, ep.Reason] = {}
        for node in graph.nodes:
            if node.domain == NHWC_DOMAIN:
                why = self._why_not_last(graph, node, node.index in taken)
            elif node.domain in _ONNX and self._converts(node.op_type):
                why = self._why_not_first(graph, node)
            else:
                why = ""
            if why and node.index in taken:
                found[node.index] = ep.Reason(ep.RefusalCode.OTHER, why)
        return found

    def _why_not_last(self, graph: ep.Graph, node: ep.Node, is_taken: bool) -> str:
        if not self._converts(node.op_type):
            return "the library wants it as ONNX has it"
        if not is_taken:
            # it is offered as ONNX has it again, behind the Transpose that undoes this
            for user in graph.nodes:
                if user.op_type == "Transpose" and user.inputs[0] == node.outputs[0]:
                    self._given_back.add(user.outputs[0] or "")
        return ""

    def _why_not_first(self, graph: ep.Graph, node: ep.Node) -> str:
        if node.outputs[0] in self._given_back:
            return "the library wants channels last, and does not take it so"
        ranks = [
            None if name is None else graph.value(name).shape
            for name in (node.inputs[0], node.outputs[0])
        ]
        if node.op_type not in NHWC_OPERATORS or any(node.outputs[1:]):
            return "the library wants channels last, which it has no form with"
        if any(shape is None or len(shape) < 3 for shape in ranks):
            return "the library wants channels last, and its rank is not known"
        return ""

    def first(self, nodes: tuple[ep.Node, ...]) -> str:
        """Which of *nodes* has channels first where the library wants them last."""
        for node in nodes if self.is_nhwc else ():
            if node.domain in _ONNX and self._converts(node.op_type):
                return describe(node)
            for body in node.subgraphs.values():
                inside = self.first(tuple(body.nodes))
                if inside:
                    return inside
        return ""
