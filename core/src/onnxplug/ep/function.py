"""Functions as whoever supplies an operator makes them for its nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from onnxplug.authoring.fact import fact
from onnxplug.ep.graph import AttributeValue
from onnxplug.ep.types import DataType


@fact()
class ComputedConstant:
    """A constant that is computed from others when an EP asks for it, and not before.

    It takes no memory until then, and sessions that compute the same share it.

    Attributes:
        dtype: element type.
        shape: sizes.
        of: names of the constants that it is computed from.
        compute: gets these as read-only numpy arrays, and returns one of *dtype* and
            *shape*.
        key: how it is computed, with all parameters, and the same in every process: of
            equal keys and constants, the results are equal.
    """

    dtype: DataType
    shape: tuple[int, ...]
    of: Sequence[str]
    compute: Callable[..., Any]
    key: Hashable


@fact()
class Call:
    """A node in the body of a :class:`Function`.

    Attributes:
        op_type: the operator's name.
        inputs: names of the function's inputs and of what other calls give; ``None``
            for one that is left out.
        outputs: names that nothing else in the function has.
        attributes: int, float, text, array, :class:`ComputedConstant`, or a tuple of
            int or of float.
        domain: the operator's domain; empty for ONNX's own operators.
    """

    op_type: str
    inputs: Sequence[str | None]
    outputs: Sequence[str]
    attributes: Mapping[str, AttributeValue]
    domain: str = ""


@fact()
class Function:
    """The body of a function that was made for one node, without ONNX's protobuf.

    Attributes:
        inputs: names by position, ``None`` for one that the body does not read.
        outputs: names by position, of what calls give or of inputs; ``None`` for one
            that the node does not want.
        calls: in topological order.  What they compute constants from are inputs, which
            are constants of the node's graph.
        opset_imports: the versions of the domains of *calls*; of ONNX's own operators
            the one that the graph imports, if it imports one.
    """

    inputs: Sequence[str | None]
    outputs: Sequence[str | None]
    calls: Sequence[Call]
    opset_imports: Mapping[str, int]
