"""Indices that are out of range, of which OpenVINO tells nobody.

It gives zeros for them, or reads and writes wherever they point to, up to the end of
the process.  So each operator that looks something up gets indices that never are, and
the model one output more, which says of each of them whether any was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_openvino.engine import import_openvino

openvino: Final = import_openvino()
ops: Final = openvino.opset13

_AXIS: Final[dict[str, int | None]] = {
    "Gather": 2,
    "GatherElements": None,
    "ScatterElementsUpdate": 3,
}
"""Operators whose indices count along one axis: the input that says which, or
``None`` where an attribute does."""

_PLACES: Final = frozenset({"GatherND", "ScatterNDUpdate"})
"""Operators whose indices are places: the last axis has one for each dimension."""

_SEPARATOR: Final = "\n"
_MARK: Final = "onnxplug: indices out of range in"
"""How the name of the output begins; a line for each operator follows."""


def guard(model: Any, partition: ep.Partition) -> bool:
    """Whether *model* was changed so that no index of it is out of range.

    Then its last output is of booleans, one for each operator of
    :func:`guarded_nodes`.
    """
    makers = {
        name: f"{node.op_type} giving {name!r}"
        for node in partition.nodes
        for name in node.outputs
    }
    names, flags = [], []
    for op in model.get_ordered_ops():
        sizes = _sizes_to_fit(op)
        if sizes is not None:
            flags.append(_keep_within(op, sizes))
            given = sorted(op.output(0).get_names() & makers.keys())
            other = f"{op.get_type_name()} {op.get_friendly_name()!r}"
            names.append(makers[given[0]] if given else other)
    if not flags:
        return False
    result = openvino.op.Result(ops.concat(flags, 0).output(0))
    result.output(0).set_names({_SEPARATOR.join([_MARK, *names])})
    model.add_results([result])
    model.validate_nodes_and_infer_types()
    return True


def guarded_nodes(outputs: Sequence[Any]) -> Sequence[str]:
    """The operators that the last of a model's *outputs* tells of, in words; none if it
    has no such output."""
    for name in outputs[-1].get_names() if outputs else ():
        mark, *nodes = str(name).split(_SEPARATOR)
        if mark == _MARK:
            return nodes
    return ()


def check_indices(flags: Any, nodes: Sequence[str]) -> None:
    """Look at what the last output says of *nodes*.

    Raises:
        IndexError: an index is out of range.
    """
    if flags.any():
        wrong = ", ".join(node for node, flag in zip(nodes, flags, strict=True) if flag)
        raise IndexError(
            f"{wrong}: an index is out of range; those of a dimension of N elements "
            "are -N to N-1"
        )


def _sizes_to_fit(op: Any) -> Any | None:
    """The sizes that the indices of *op* have to fit, as a node; ``None`` if it looks
    nothing up, or only what is known to be there."""
    kind = op.get_type_name()
    if kind in _AXIS:
        place = _axis(op, _AXIS[kind])
        axes: Any = place
    elif kind in _PLACES:
        place = op.get_attributes().get("batch_dims", 0)
        axes = _axes(op.input_value(1), place)
    else:
        return None
    data, indices = op.input_value(0), op.input_value(1)
    known = _known(data.get_partial_shape(), axes)
    if known is None:
        return ops.gather(ops.shape_of(data, _name(indices)), axes, np.int64(0))
    given = indices.get_node()
    if given.get_type_name() == "Constant":
        values = given.get_data()
        if ((values >= -known) & (values < known)).all():
            return None
    return ops.constant(known, indices.get_element_type())


def _axis(op: Any, given: int | None) -> Any:
    """Along which axis the indices of *op* count, a scalar."""
    if given is None:
        return np.int64(op.get_attributes()["axis"])
    node = op.input_value(given).get_node()
    if node.get_type_name() != "Constant":
        return node.output(0)
    return np.int64(node.get_data().item())


def _axes(indices: Any, first: int) -> Any:
    """The axes of which each place of *indices* has a number."""
    shape = indices.get_partial_shape()
    count = shape[len(shape) - 1] if shape.rank.is_static else None
    if count is not None and count.is_static:
        return np.arange(first, first + count.get_length())
    rank = ops.shape_of(indices, "i64")
    last = ops.gather(rank, np.int64(-1), np.int64(0))
    return ops.range(
        np.int64(first), ops.add(last, np.int64(first)), np.int64(1), "i64"
    )


def _known(shape: Any, axes: Any) -> Any | None:
    """The sizes of *axes*, as numpy has them; ``None`` if one is not known."""
    if shape.rank.is_dynamic or not isinstance(axes, np.ndarray | np.generic):
        return None
    sizes = [shape[int(axis) % len(shape)] for axis in np.atleast_1d(axes)]
    if any(size.is_dynamic for size in sizes):
        return None
    return np.array([size.get_length() for size in sizes]).reshape(axes.shape)


def _name(port: Any) -> str:
    """The name of the element type, as nodes are made with it."""
    return str(port.get_element_type().get_type_name())


def _keep_within(op: Any, sizes: Any) -> Any:
    """Give *op* indices that fit *sizes*; whether any did not, as a node."""
    indices = op.input_value(1)
    is_wrong = ops.logical_or(
        ops.less(indices, ops.negative(sizes)), ops.greater_equal(indices, sizes)
    )
    nowhere = ops.constant(0, indices.get_element_type())
    within = ops.select(is_wrong, nowhere, indices)
    op.input(1).replace_source_output(within.output(0))
    flat = ops.reshape(is_wrong, np.array([-1]), special_zero=False)
    return ops.reduce_logical_or(flat, np.array([0]), keep_dims=True)
