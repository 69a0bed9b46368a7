"""Pads what a partition is fed to a few sizes, and cuts what comes of it.

Only dimensions that the user names, and of which it is proven that the partition's
nodes compute each position by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.authoring.arrays import fill_bound
from onnxplug.authoring.record import Record
from onnxplug.ep import (
    HOST,
    CompiledPartition,
    MemoryLocation,
    Partition,
    Prewarmer,
)
from onnxplug.ep.types import TensorType
from onnxplug.errors import EpError, OptionError
from onnxplug.partition import GraphPartition
from onnxplug.partition.specialisations import Specialisations
from onnxplug.shapes.stated import names_of_sizes
from onnxplug.specialise.positions import Mixed, axes_of_positions
from onnxplug.suggest import did_you_mean

if TYPE_CHECKING:
    from onnxplug.ep import PartitionReport, RunContext, ValueType

Buckets = Mapping[str, tuple[int, ...]]


def check_names(types: Iterable[ValueType | None], buckets: Buckets) -> None:
    """Check that each dimension is one of the model's inputs, of these *types*.

    Raises:
        OptionError: it is not.
    """
    known = {name: None for type in types for name in names_of_sizes(type)}
    for name in buckets:
        if name not in known:
            raise OptionError(
                f"the model's inputs have no free dimension {name!r} to pad"
                f"{did_you_mean(name, known)}; they have "
                f"{', '.join(map(repr, known)) or 'none'}"
            )


class Padding(Record):
    """How one dimension is padded.

    Attributes:
        sizes: to which, ascending.
        inputs, outputs: position of a value to the axis that the dimension is.
    """

    sizes: tuple[int, ...]
    inputs: dict[int, int]
    outputs: dict[int, int]

    def padded(self, shapes: Sequence[Sequence[int]]) -> tuple[int, int] | None:
        """The size that the dimension has in *shapes*, and the one to pad to."""
        found = {shapes[at][axis] for at, axis in self.inputs.items()}
        if len(found) != 1:
            return None  # what the model states of some value is not so
        (size,) = found
        larger = [bucket for bucket in self.sizes if bucket >= size]
        # nothing can be repeated if there is nothing
        return (size, larger[0]) if larger and size not in (0, larger[0]) else None


def paddings(
    partition: GraphPartition,
    buckets: Buckets,
    inputs_at: Sequence[MemoryLocation],
    outputs_at: Sequence[MemoryLocation],
) -> tuple[list[Padding], list[str]]:
    """How the dimensions of *partition* can be padded, and why others are not.

    Args:
        buckets: dimension to sizes.
        inputs_at, outputs_at: where values are; only those on the host are padded.
    """
    found, reasons = [], []
    # with types that follow from operators, whatever the model declares
    graph = partition.for_shapes({}).graph
    for dimension, sizes in buckets.items():
        try:
            axes = axes_of_positions(
                graph, partition.inputs, partition.outputs, dimension
            )
            padding = Padding(
                sizes,
                _placed(partition.inputs, axes, inputs_at),
                _placed(partition.outputs, axes, outputs_at),
            )
        except Mixed as error:
            reasons.append(f"{dimension!r} is not padded: {error}")
        else:
            if padding.inputs:
                found.append(padding)
    return found, reasons


def _placed(
    names: Sequence[str], axes: Mapping[str, int], places: Sequence[MemoryLocation]
) -> dict[int, int]:
    for name, place in zip(names, places, strict=True):
        if name in axes and place != HOST:
            raise Mixed(f"{name!r} is in {place}, and not on the host")
    return {at: axes[name] for at, name in enumerate(names) if name in axes}


class PaddedPartition(CompiledPartition, Prewarmer):
    """A partition that is fed arrays of padded sizes.

    What is added repeats the last position, so that it is a value that may be there.

    Args:
        padded: is fed them.
        report: what was compiled of it.
    """

    def __init__(
        self,
        ep: str,
        partition: GraphPartition,
        padded: CompiledPartition,
        paddings: Sequence[Padding],
        report: Callable[[], Specialisations],
    ) -> None:
        self.input_locations = padded.input_locations
        self.output_locations = padded.output_locations
        self._ep = ep
        self._partition = partition
        self._padded = padded
        self._paddings = tuple(paddings)
        self._report = report
        self._unbound = (None,) * len(partition.outputs)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Run it on padded inputs; the outputs are cut."""
        shapes = [getattr(value, "shape", ()) for value in inputs]
        wanted = [
            (padding, sizes)
            for padding in self._paddings
            if (sizes := padding.padded(shapes)) is not None
        ]
        if not wanted:
            return self._padded.run(inputs, outputs, context)
        fed = list(inputs)
        cut: dict[int, list[tuple[int, int, int]]] = {}
        for padding, (size, larger) in wanted:
            for at, axis in padding.inputs.items():
                fed[at] = _longer(fed[at], axis, larger - size)
            for at, axis in padding.outputs.items():
                cut.setdefault(at, []).append((axis, size, larger))
        results = list(self._padded.run(fed, self._unbound, context))
        for at, axes in cut.items():
            part = self._part(at, results[at], axes)
            # what is bound is filled with it, and what is kept keeps no more than that
            results[at] = part.copy() if outputs[at] is None else part
        return fill_bound(results, outputs)

    def _part(
        self, position: int, array: Any, axes: Sequence[tuple[int, int, int]]
    ) -> Any:
        place = [slice(None)] * array.ndim
        for axis, size, larger in axes:
            if axis >= array.ndim or array.shape[axis] != larger:
                raise EpError(
                    f"{self._ep} returned an array of shape {list(array.shape)} for "
                    f"{self._partition.outputs[position]!r}; expected {larger} at axis "
                    f"{axis}, to which its inputs were padded",
                    ep=self._ep,
                    stage="run",
                )
            place[axis] = slice(size)
        return array[tuple(place)]

    @property
    def prewarmer(self) -> Prewarmer:  # type: ignore[override]
        """Itself: it compiles for padded sizes."""
        return self

    def prewarm(self, partition: Partition) -> bool:
        """Compile for the sizes that those which *partition* states are padded to."""
        values = [partition.value(name) for name in self._partition.inputs]
        shapes = [list(value.shape or ()) for value in values]
        for padding in self._paddings:
            sizes = padding.padded(shapes)  # type: ignore[arg-type]
            if sizes is not None:
                for at, axis in padding.inputs.items():
                    shapes[at][axis] = sizes[1]
        padded: dict[str, Any] = {
            value.name: tuple(shape)
            for value, shape in zip(values, shapes, strict=True)
            if isinstance(value.type, TensorType) and value.shape is not None
        }
        prewarmer = self._padded.prewarmer
        assert prewarmer is not None
        return prewarmer.prewarm(self._partition.for_shapes(padded))

    def close(self) -> None:
        """Close what is fed."""
        self._padded.close()

    @property
    def specialisations(self) -> Specialisations:
        """What was compiled, for reports."""
        return self._report()

    @property
    def report(self) -> PartitionReport | None:  # type: ignore[override]
        """That of what is fed."""
        return self._padded.report


def _longer(array: Any, axis: int, count: int) -> Any:
    """*array* with its last position along *axis* *count* times more."""
    last = np.take(array, [-1], axis)
    return np.concatenate([array, np.repeat(last, count, axis)], axis)
