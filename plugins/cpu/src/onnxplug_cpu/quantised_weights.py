"""Which weights stay the codes that a model has; others become floats once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_compiler.frontend.moves import MOVES, added_by_pad, only_moves
from onnxplug_compiler.frontend.patterns.quantised import (
    MOST_TERMS,
    are_of_quads,
    are_windows,
)

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
_MOST_MOVES: Final = 64
"""Nodes that are looked at between what dequantises and what multiplies."""


def keeps_codes(graph: ep.Graph, reader: ep.Node, node: ep.Node) -> bool:
    """Whether *reader* computes with codes; see
    :attr:`onnxplug.ep.Preferences.keeps_qdq`.

    Those are products and convolutions whose other factor is dequantised, too, from
    bytes that a run makes; products of floats with large matrices of codes; and what
    takes rows of such a matrix.
    """
    name = node.outputs[0]
    if name is None or reader.domain or node.domain:
        return False
    if reader.op_type == "Transpose":
        return node.op_type == "DequantizeLinear" and any(
            keeps_codes(graph, each, reader) for each in _readers(graph, reader)
        )
    if reader.op_type == "Gather":
        return reader.inputs[0] == name and _is_table(graph, reader, node)
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
    return (
        _are_codes(graph, reader, reader.inputs[0])
        or _has_steps_of_channels(graph, reader, maker)
    ) and _fits(graph, reader, maker, turned=turned)


def _has_steps_of_channels(graph: ep.Graph, reader: ep.Node, maker: ep.Node) -> bool:
    """Whether each channel is dequantised with its own scale, and convolved by
    itself."""
    other = _maker(graph, reader, reader.inputs[0])
    if reader.op_type != "Conv" or other is None or not _is_of_bytes(graph, other):
        return False
    filters = graph.value(maker.inputs[0] or "").shape or ()
    shape = [size for size in filters if isinstance(size, int)]
    groups = int(reader.attributes.get("group", 1))
    if len(shape) < len(filters) or len(shape) < _AXES or groups == 1:
        return False
    if not are_windows(groups, shape) or other.attributes.get("axis", 1) != 1:
        return False
    zero = other.inputs[2] if len(other.inputs) > _AXES else None
    if zero is None:
        return True
    content = graph.constant(zero)
    return content is not None and not np.asarray(content).any()


def _are_codes(graph: ep.Graph, reader: ep.Node, name: str | None) -> bool:
    """Whether a value is dequantised from bytes with one scale, and only moved since;
    see :mod:`onnxplug_compiler.sinking`."""
    waiting, makers = [(reader, name)], list[ep.Node]()
    for _ in range(_MOST_MOVES):
        if not waiting:
            break
        at, wanted = waiting.pop()
        maker = _maker(graph, at, wanted)
        if maker is None:
            return False
        if _is_of_bytes(graph, maker):
            makers.append(maker)
            continue
        if not _moves(graph, maker):
            return False
        count = len(maker.inputs) if maker.op_type == "Concat" else 1
        waiting += [(maker, each) for each in maker.inputs[:count]]
    if waiting or not all(_has_one(graph, each.inputs[1]) for each in makers):
        return False
    return len(makers) == 1 or len({_steps(graph, each) for each in makers}) == 1


def _moves(graph: ep.Graph, node: ep.Node) -> bool:
    """Whether a node gives elements of what it takes, or zeros, and no others."""
    if node.domain or node.op_type not in MOVES:
        return False
    if node.op_type == "Pad":
        added = added_by_pad(node.attributes, node.inputs)
        content = 0 if added is None else graph.constant(added)
        if content is None or np.asarray(content).any():
            return False
    return only_moves(node.op_type, graph.opset(), node.attributes)


def _steps(graph: ep.Graph, node: ep.Node) -> tuple[object, ...]:
    """The dtype, scale and zero point of what a node dequantises; equal only where the
    same is known of others."""
    codes, scale, *zero = node.inputs
    found = [graph.constant(name or "") for name in (scale, *zero)]
    if any(each is None for each in found):
        return (node.index,)
    dtype = graph.value(codes or "").dtype
    return (dtype, *[float(np.asarray(each).reshape(())) for each in (*found, 0)[:2]])


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
    in_groups = reader.op_type == "Conv" and groups != 1
    if in_groups and not (are_windows(groups, shape) or are_of_quads(shape)):
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


def _is_table(graph: ep.Graph, reader: ep.Node, maker: ep.Node) -> bool:
    """Whether *maker* makes float32 of many codes, of which rows are taken that have a
    scale of their own, or one for each block, if all have not one."""
    codes, scale = (graph.value(name or "") for name in maker.inputs[:2])
    sizes = [_size(size) for size in codes.shape or ()]
    axis, block = (
        int(maker.attributes.get(name, default))
        for name, default in (("axis", 1), ("block_size", 0))
    )
    if (
        maker.op_type != "DequantizeLinear"
        or codes.dtype not in _CODES
        or len(sizes) != _AXES
        or math.prod(sizes) < FEWEST_CODES
        or graph.value(maker.outputs[0] or "").dtype is not _F32
        or int(reader.attributes.get("axis", 0)) not in (0, -_AXES)
        or not -_AXES <= axis < _AXES
        or scale.shape is None
    ):
        return False
    axis %= _AXES
    # bytes have codes of one row and of one block
    if (block or sizes[1]) * codes.dtype.bits % 8:
        return False
    if not block:
        by_rows = axis == 0 and tuple(scale.shape) == (sizes[0],)
        return by_rows or math.prod(map(_size, scale.shape)) == 1
    if axis != 1 or block < 1 or sizes[1] % block:
        return False
    return tuple(scale.shape) == (sizes[0], sizes[1] // block)


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
