"""Which weights stay the codes that a model has; others become floats once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from onnxplug import ep
from onnxplug_compiler.frontend.patterns.quantised import MOST_TERMS, are_windows

_BYTES: Final = (ep.DataType.INT8, ep.DataType.UINT8)
_CODES: Final = (
    *_BYTES,
    *(ep.DataType.INT4, ep.DataType.UINT4),
    *(ep.DataType.INT2, ep.DataType.UINT2),
)
FEWEST_CODES: Final = 1 << 18
"""Of a matrix that floats are multiplied with: as floats fewer are in a processor's
second cache, and as fast."""

_F32: Final = ep.DataType.FLOAT32
_AXES: Final = 2  # of a matrix


def keeps_codes(graph: ep.Graph, reader: ep.Node, node: ep.Node) -> bool:
    """Whether *reader* computes with codes; see
    :attr:`onnxplug.ep.Preferences.keeps_qdq`.

    Those are products and convolutions whose other factor is dequantised, too, from
    bytes that a run makes; and products of floats with large matrices of codes.
    """
    name = node.outputs[0]
    if name is None or reader.domain or node.domain:
        return False
    if reader.op_type == "Transpose":
        return node.op_type == "DequantizeLinear" and any(
            keeps_codes(graph, each, reader) for each in _readers(graph, reader)
        )
    if reader.op_type not in ("MatMul", "Gemm", "Conv") or reader.inputs[1] != name:
        return False
    maker: ep.Node | None = node
    turned = node.op_type == "Transpose"
    if turned:
        if reader.op_type == "Conv" or node.attributes.get("perm", (1, 0)) != (1, 0):
            return False
        maker = _maker(graph, node, node.inputs[0])
    if maker is None:
        return False
    if reader.op_type != "Conv" and _is_large(graph, reader, maker, turned=turned):
        return True
    if not _is_of_bytes(graph, maker):
        return False
    other = _maker(graph, reader, reader.inputs[0])
    return (
        other is not None
        and _is_of_bytes(graph, other)
        and _has_one(graph, other.inputs[1])
        and _fits(graph, reader, maker, turned=turned)
    )


def _maker(graph: ep.Graph, reader: ep.Node, name: str | None) -> ep.Node | None:
    """The node before *reader* that makes a value, which mostly is not far."""
    for index in range(reader.index - 1, -1, -1):
        if name in graph.nodes[index].outputs:
            return graph.nodes[index]
    return None


def _readers(graph: ep.Graph, node: ep.Node) -> Sequence[ep.Node]:
    name = node.outputs[0]
    return [each for each in graph.nodes[node.index + 1 :] if name in each.inputs]


def _has_one(graph: ep.Graph, name: str | None) -> bool:
    """Whether a value is known to have one element."""
    shape = graph.value(name or "").shape
    return shape is not None and all(size == 1 for size in shape)


def _fits(graph: ep.Graph, reader: ep.Node, maker: ep.Node, *, turned: bool) -> bool:
    """Whether codes have one scale, or one for each column or filter, and int32 holds
    their sums."""
    sizes = graph.value(maker.inputs[0] or "").shape or ()
    shape = [size for size in sizes if isinstance(size, int)]
    if len(shape) != len(sizes) or len(shape) < 2:
        return False
    groups = int(reader.attributes.get("group", 1))
    if reader.op_type == "Conv" and groups != 1 and not are_windows(groups, shape):
        return False
    other = graph.value(reader.inputs[0] or "").shape
    if other is not None and len(other) < 2:
        return False
    by_rows = reader.op_type == "Conv"
    if not by_rows:
        by_rows = turned != bool(reader.attributes.get("transB", 0))
    terms = math.prod(shape[1:]) if by_rows else shape[-2]
    if terms > MOST_TERMS:
        return False
    if _has_one(graph, maker.inputs[1]):
        return True
    if reader.op_type != "Conv" and len(shape) != 2:
        return False
    axis = maker.attributes.get("axis", 1)
    return axis in ((0, -len(shape)) if by_rows else (1, -1))


def _is_large(
    graph: ep.Graph, reader: ep.Node, maker: ep.Node, *, turned: bool
) -> bool:
    """Whether *maker* makes float32 of many codes, each column of which has one scale,
    or one for each block."""
    codes, scale, x = (
        graph.value(name or "") for name in (*maker.inputs[:2], reader.inputs[0])
    )
    sizes = [size for size in codes.shape or () if isinstance(size, int)]
    if (
        maker.op_type != "DequantizeLinear"
        or maker.domain
        or codes.dtype not in _CODES
        or len(sizes) != _AXES
        or len(codes.shape or ()) != _AXES
        or math.prod(sizes) < FEWEST_CODES
        or graph.value(maker.outputs[0] or "").dtype is not _F32
        or x.shape is None
        or len(x.shape) < _AXES
    ):
        return False
    sums = int(turned != bool(reader.attributes.get("transB", 0)))
    axis, block = (
        int(maker.attributes.get(name, default))
        for name, default in (("axis", 1), ("block_size", 0))
    )
    if not -_AXES <= axis < _AXES or scale.shape is None:
        return False
    axis %= _AXES
    if not block:
        by_columns = axis != sums and tuple(scale.shape) == (sizes[axis],)
        return by_columns or math.prod(map(_size, scale.shape)) == 1
    if axis != sums or block < 1 or sizes[axis] % block:
        return False
    sizes[axis] //= block
    return tuple(scale.shape) == tuple(sizes)


def _size(size: object) -> int:
    """A size, or 0 if it is not certain."""
    return size if isinstance(size, int) else 0


def _is_of_bytes(graph: ep.Graph, node: ep.Node) -> bool:
    """Whether *node* makes float32 of bytes, with scales that are no blocks'."""
    return (
        node.op_type == "DequantizeLinear"
        and not node.domain
        and not node.attributes.get("block_size")
        and graph.value(node.inputs[0] or "").dtype in _BYTES
        and graph.value(node.outputs[0] or "").dtype is _F32
    )
