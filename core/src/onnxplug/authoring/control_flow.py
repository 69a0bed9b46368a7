"""If, Loop and Scan, run by calling their bodies.

Only data is moved here: slices are taken and stacked, nothing is computed.
Source: the operators' definitions in the ONNX specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from onnxplug.authoring.memory_limit import LARGE, check_growth
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.ep import (
    HOST,
    MemoryLocation,
    Node,
    SequenceType,
    TensorType,
    raise_interruption,
)
from onnxplug.errors import NodeError, OnnxplugError

_PER_ITEM: Final = 128
"""Bytes of an array beside its elements."""


class Placement(Record):
    """Where the values of one control-flow node are.

    Attributes:
        inputs, outputs: those of the node, in its order.
        bodies_take: for each body the places of its inputs by name; the host for those
            left out.
        bodies_leave: for each body the places of its outputs, in its order.
    """

    inputs: tuple[MemoryLocation, ...]
    outputs: tuple[MemoryLocation, ...]
    bodies_take: Mapping[str, Mapping[str, MemoryLocation]]
    bodies_leave: Mapping[str, Sequence[MemoryLocation]]

    @classmethod
    def on_host(cls, node: Node) -> Placement:
        """All values of *node* on the host."""
        return cls(
            (HOST,) * len(node.inputs),
            (HOST,) * len(node.outputs),
            {attribute: {} for attribute in node.subgraphs},
            {
                attribute: (HOST,) * len(body.outputs)
                for attribute, body in node.subgraphs.items()
            },
        )


class _Gathered:
    """What the iterations of a node give, to be stacked: a list for each output.

    Args:
        count: how many outputs.
    """

    def __init__(self, count: int) -> None:
        self.lists: list[list[Any]] = [[] for _ in range(count)]
        self._nbytes = 0
        self._looked_at = LARGE

    def add(self, items: Sequence[Any]) -> None:
        """Take what one iteration gives.

        Raises:
            MemoryError: there is no memory to stack so many.
        """
        for gathered, item in zip(self.lists, items, strict=True):
            gathered.append(item)
            self._nbytes += getattr(item, "nbytes", 0) + _PER_ITEM
        if self._nbytes > self._looked_at:
            check_growth(self._nbytes)
            self._looked_at = self._nbytes + LARGE


RunBody: TypeAlias = Callable[[str, Sequence[Any]], list[Any]]
"""Runs the body that an attribute holds on values for its inputs; its outputs."""


class Arrays(Protocol):
    """What is done with arrays that are not the host's, or not there."""

    def no_items(self, node: Node, name: str, axis: int, at: MemoryLocation) -> Any:
        """What is stacked there of *name*, which the body of *node* never made."""

    def stack(self, items: Sequence[Any], axis: int, at: MemoryLocation) -> Any:
        """A new array there of *items*, of one shape, along a new axis."""

    def take(self, array: Any, axis: int, index: int, at: MemoryLocation) -> Any:
        """A part of an array that is there, without the axis."""

    def put(self, array: np.ndarray[Any, Any], at: MemoryLocation) -> Any:
        """A copy there of an array of the host's."""


def run_bodies(
    node: Node,
    inputs: Sequence[Any],
    run_body: RunBody,
    placement: Placement,
    arrays: Arrays,
) -> list[Any]:
    """The outputs of a control-flow *node*, whose values are where *placement* says.

    Raises:
        NodeError: the values do not fit what the operator asks for.
    """
    try:
        match node.op_type:
            case "If":
                return _run_if(node, inputs, run_body)
            case "Loop":
                return _run_loop(node, inputs, run_body, placement, arrays)
        if node.since_version < 9:
            return _run_batched_scan(node, inputs, run_body, arrays)
        return _run_scan(node, inputs, run_body, placement, arrays)
    except OnnxplugError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        raise_interruption(error)
        # numpy's, of shapes and numbers that no plugin has seen
        raise _wrong(node, str(error)) from error


def _run_if(node: Node, inputs: Sequence[Any], run_body: RunBody) -> list[Any]:
    condition = np.asarray(inputs[0])
    if condition.size != 1:
        raise _wrong(node, f"its condition has shape {list(condition.shape)}, not one")
    return run_body("then_branch" if condition.item() else "else_branch", [])


def _run_loop(
    node: Node,
    inputs: Sequence[Any],
    run_body: RunBody,
    placement: Placement,
    arrays: Arrays,
) -> list[Any]:
    count, given = (*inputs[:2], None, None)[:2]
    limit = None if count is None else int(np.asarray(count).item())
    condition = np.asarray(True) if given is None else np.asarray(given).reshape(())
    carried = list(inputs[2:])
    first = 1 + len(carried)
    names = node.subgraphs["body"].outputs[first:]
    scanned = _Gathered(len(names))
    iteration = 0
    while condition and (limit is None or iteration < limit):
        number = np.array(iteration, np.int64)
        results = run_body("body", [number, condition, *carried])
        # without a condition input the body's condition still ends the loop
        condition = results[0]
        if type(condition) is not np.ndarray or condition.shape:
            condition = np.asarray(condition).reshape(())
        carried = results[1:first]
        if names:
            scanned.add(results[first:])
        iteration += 1
    places = placement.bodies_leave["body"][first:]
    return carried + [
        _stack(node, name, items, 0, place, arrays)
        for name, items, place in zip(names, scanned.lists, places, strict=True)
    ]


def _run_scan(
    node: Node,
    inputs: Sequence[Any],
    run_body: RunBody,
    placement: Placement,
    arrays: Arrays,
) -> list[Any]:
    attributes = node.attributes
    count = attributes["num_scan_inputs"]
    axes = attributes.get("scan_input_axes") or (0,) * count
    directions = attributes.get("scan_input_directions") or (0,) * count
    sequences = [
        _Sequence(array, axis, backward, place, arrays)
        for array, axis, backward, place in zip(
            inputs[-count:], axes, directions, placement.inputs[-count:], strict=True
        )
    ]
    lengths = {sequence.length for sequence in sequences}
    if len(lengths) != 1:
        raise _wrong(node, f"its scan inputs have the lengths {sorted(lengths)}")
    body = node.subgraphs["body"]
    states = list(inputs[:-count])
    names = body.outputs[len(states) :]
    places = placement.bodies_leave["body"][len(states) :]
    states, scanned = _scan(sequences, states, lengths.pop(), len(names), run_body)
    out_axes = attributes.get("scan_output_axes") or (0,) * len(names)
    out_directions = attributes.get("scan_output_directions") or (0,) * len(names)
    return states + [
        _stack(node, name, items[::-1] if backward else items, axis, place, arrays)
        for name, items, axis, backward, place in zip(
            names, scanned, out_axes, out_directions, places, strict=True
        )
    ]


class _Sequence:
    """What Scan goes through, from the front or from behind.

    Attributes:
        length: how many parts it has.
    """

    def __init__(
        self,
        array: Any,
        axis: int,
        backward: bool,
        place: MemoryLocation,
        arrays: Arrays,
    ) -> None:
        self._axis = normalize_axis_index(axis, len(array.shape))
        self.length = int(array.shape[self._axis])
        self._backward = backward
        self._array = np.moveaxis(array, self._axis, 0) if place == HOST else array
        self._place = place
        self._arrays = arrays

    def __getitem__(self, position: int) -> Any:
        index = self.length - 1 - position if self._backward else position
        if self._place == HOST:
            # an array also where it has one element, which of strings is no array's
            return self._array[index, ...]
        return self._arrays.take(self._array, self._axis, index, self._place)


def _run_batched_scan(
    node: Node, inputs: Sequence[Any], run_body: RunBody, arrays: Arrays
) -> list[Any]:
    """Scan of opset 8: axis 0 is a batch, axis 1 the sequence, lengths optional."""
    count = node.attributes["num_scan_inputs"]
    directions = node.attributes.get("directions") or (0,) * count
    lengths = inputs[0]
    states = [np.asarray(x) for x in inputs[1:-count]]
    sequences = [np.asarray(x) for x in inputs[-count:]]
    batch, longest = sequences[0].shape[:2]
    body = node.subgraphs["body"]
    names = body.outputs[len(states) :]
    rows = []
    for row in range(batch):
        length = longest if lengths is None else int(lengths[row])
        ordered = [
            _Sequence(sequence[row, :length], 0, backward, HOST, arrays)
            for sequence, backward in zip(sequences, directions, strict=True)
        ]
        final, scanned = _scan(
            ordered, [state[row, ...] for state in states], length, len(names), run_body
        )
        stacked = [
            _pad_to(_stack(node, name, items, 0, HOST, arrays), longest)
            for name, items in zip(names, scanned, strict=True)
        ]
        rows.append([*final, *stacked])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _scan(
    sequences: Sequence[_Sequence],
    states: list[Any],
    length: int,
    output_count: int,
    run_body: RunBody,
) -> tuple[list[Any], list[list[Any]]]:
    scanned = _Gathered(output_count)
    for position in range(length):
        items = [sequence[position] for sequence in sequences]
        results = run_body("body", [*states, *items])
        scanned.add(results[len(states) :])
        states = results[: len(states)]
    return states, scanned.lists


def _stack(
    node: Node,
    name: str,
    items: Sequence[Any],
    axis: int,
    place: MemoryLocation,
    arrays: Arrays,
) -> Any:
    """What the iterations of *node* gave for *name* of its body, as one array."""
    if not items:
        return arrays.no_items(node, name, axis, place)
    shapes = dict.fromkeys(_shape(item) for item in items)
    if len(shapes) > 1:
        listed = ", ".join([str(list(shape)) for shape in shapes][:5])
        raise _wrong(
            node,
            f"the values of {name!r}, one of each iteration, have the shapes "
            f"{listed}; they must be alike to be stacked",
        )
    axis = normalize_axis_index(axis, len(_shape(items[0])) + 1)
    if place == HOST:
        return np.stack(items, axis=axis)
    return arrays.stack(items, axis, place)


def _shape(item: Any) -> tuple[int, ...]:
    return tuple(item.shape) if hasattr(item, "shape") else np.shape(item)


def no_items(node: Node, name: str, axis: int) -> Any:
    """What is stacked of *name*, which the body of *node* never made.

    What is known of it must do.
    """
    item_type = node.subgraphs["body"].value(name).type
    if isinstance(item_type, TensorType) and item_type.dtype is not None:
        shape = [size if isinstance(size, int) else 0 for size in item_type.shape or ()]
        return nothing_stacked(shape, item_type.dtype.numpy, axis)
    return [] if isinstance(item_type, SequenceType) else np.empty((0,), np.float32)


def nothing_stacked(shape: Sequence[int], dtype: np.dtype[Any], axis: int) -> Any:
    """No arrays of *shape*, stacked along a new axis."""
    axis = normalize_axis_index(axis, len(shape) + 1)
    return np.empty((*shape[:axis], 0, *shape[axis:]), dtype)


def _pad_to(array: Any, length: int) -> Any:
    padding = [(0, length - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    nothing = "" if array.dtype == object else 0
    return np.pad(array, padding, constant_values=nothing)


def _wrong(node: Node, what: str) -> NodeError:
    return NodeError(f"{describe(node)}: {what}", node=node.name or describe(node))
