"""Nodes that look up by indices, for libraries that do not look whether they are there.

Where an index is out of range such a library gives numbers all the same, or ends the
process.  It gets the nodes whose indices are known to be within.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug import ep

_ALONG: Final = frozenset({"Gather", "GatherElements", "Scatter", "ScatterElements"})
"""Operators whose indices count along one axis."""

_PLACES: Final = frozenset({"GatherND", "ScatterND"})
"""Operators whose indices are places, with a number for each of some axes."""

_CHOOSES: Final = "Compress"
"""Takes what its condition, a list, says: that is no longer than there are elements."""


def unchecked(graph: ep.Graph, node: ep.Node, option: str) -> ep.Reason | None:
    """Why a library that does not look at indices is not to have *node*; ``None`` if it
    looks nothing up, or what constants say, which is known to be there.

    Args:
        option: takes it all the same.
    """
    if node.op_type not in (*_ALONG, *_PLACES, _CHOOSES):
        return None
    data, indices = node.inputs[:2]
    values = None if indices is None else graph.constant(indices)
    shape = None if data is None else graph.value(data).shape
    if values is None:
        code = ep.RefusalCode.NOT_CONSTANT
        detail = f"{indices!r} is not known, and it gives numbers of any index"
    else:
        sizes = None if shape is None else _sizes(node, shape, values)
        if sizes is None:
            code = ep.RefusalCode.DYNAMIC_SHAPE
            detail = f"the size of {data!r} is not known, and it gives numbers beyond"
        elif _are_within(node, values, sizes):
            return None
        else:
            code = ep.RefusalCode.OTHER
            detail = f"{indices!r} is out of range, of which it does not tell"
    return ep.Reason(code, f"{detail} (option {option} takes it all the same)")


def _sizes(node: ep.Node, shape: Any, values: Any) -> Any | None:
    """The sizes of the axes that *values* are indices of; ``None`` if one is not
    known."""
    axis = node.attributes.get("axis", None if node.op_type == _CHOOSES else 0)
    if node.op_type in _PLACES:
        first = int(node.attributes.get("batch_dims", 0))
        sizes = shape[first : first + values.shape[-1]]
    elif axis is None:
        sizes = shape
    else:
        sizes = [shape[int(axis)]]
    if not all(isinstance(size, int) for size in sizes):
        return None
    found = np.array(sizes, np.int64)
    return found if axis is not None else found.prod()


def _are_within(node: ep.Node, values: Any, sizes: Any) -> bool:
    if node.op_type == _CHOOSES:
        return bool((values.size <= sizes).all())
    return bool(((values >= -sizes) & (values < sizes)).all())
