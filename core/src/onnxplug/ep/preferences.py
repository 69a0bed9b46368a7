"""In what form an EP wants the nodes that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from onnxplug.authoring.fact import fact

if TYPE_CHECKING:
    from onnxplug.ep.editor import GraphEditor
    from onnxplug.ep.graph import Graph, Node


@fact()
class Preferences:
    """What the host does to nodes before an EP compiles them.

    Attributes:
        layout: ``NHWC``: the channels of images come last.  The host then offers
            convolutions, pools and their kin that the EP claimed a second time, as
            operators of the domain ``com.ms.internal.nhwc``, and puts ``Transpose``
            around those that it claims; the others stay as they are.
        keeps_qdq: ``DequantizeLinear`` of constants stays beside the nodes that read
            it, where the EP claims both, as an EP needs that runs integers and their
            scale; a function says whether a node, the first, keeps such a one, or what
            passes its result on.  Pure.  Otherwise the host makes the result a
            constant, which it computes when somebody asks for it.
        expands: whether it would rather have the function body of a node of a graph.
            Asked for the nodes that the EP gets, whose place the bodies take if there
            are any and EPs, whichever, run all of their nodes.  Pure.
        rewrite: replaces some of the nodes, which the EP gets, by others that it takes,
            and tells what was replaced, in words; nothing, if nothing was.  Asked once
            for each graph of which the EP gets nodes, after bodies were expanded and
            quantised weights became constants.  What is not among the nodes has to stay
            as it is, and so do the types of what others read.  The host takes all of it
            back where some new node is not claimed.

    Raises:
        ValueError: there is no such layout.
    """

    layout: Literal["NCHW", "NHWC"] = "NCHW"
    keeps_qdq: bool | Callable[[Graph, Node, Node], bool] = False
    expands: Callable[[Graph, Node], bool] | None = None
    rewrite: Callable[[GraphEditor, Sequence[Node]], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout is {self.layout!r}; expected 'NCHW' or 'NHWC'")
