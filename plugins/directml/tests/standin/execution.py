"""Graphs executed with numpy on the bytes that are bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .decoding import packed
from .graph import Graph, Place
from .memory import UNWRITTEN
from .operators import Tensor
from .results import Invalid

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Region:
    """Bytes, and whether each was written."""

    data: Bytes
    written: Mask

    @classmethod
    def unwritten(cls, size: int) -> Region:
        """New ones."""
        return cls(np.full(size, UNWRITTEN, np.uint8), np.zeros(size, np.bool_))

    def spoil(self) -> None:
        """Makes them as if nobody had written them."""
        self.data.fill(UNWRITTEN)
        self.written.fill(False)

    def copy_from(self, other: Region) -> None:
        """Takes what another has, from the start."""
        size = len(other.data)
        self.data[:size] = other.data
        self.written[:size] = other.written


def run(
    graph: Graph,
    inputs: Sequence[Region | None],
    outputs: Sequence[Region | None],
) -> None:
    """Computes the outputs of a graph.

    Args:
        graph: the graph.
        inputs: bytes of each input; None where nothing is connected.
        outputs: where they are written; None where an output is not described.

    Raises:
        Invalid: an operator reads what nobody has written.
        AssertionError: the meaning of an operator returns what it should not.
    """
    regions: dict[Place, Region] = {}
    readers = _readers(graph)
    for n in graph.order:
        operator, name = graph.nodes[n], graph.names[n]
        arrays: list[Any] = []
        for i, tensor in enumerate(operator.inputs):
            place = (n, i)
            if tensor is None:
                arrays.append(None)
                continue
            if place in graph.from_node:
                region: Region | None = regions[graph.from_node[place]]
            else:
                region = inputs[graph.from_input[place]]
            assert region is not None
            arrays.append(read(region, tensor, f"input {i} of {name}"))
        results = operator.meaning.evaluate(operator.desc, arrays)
        if len(results) != len(operator.outputs):
            raise AssertionError(f"{name}: {len(results)} results")
        for i, (tensor, array) in enumerate(
            zip(operator.outputs, results, strict=True)
        ):
            if tensor is not None:
                regions[n, i] = _written(tensor, array, f"output {i} of {name}")
        for place in [p for p, last in readers.items() if last == n]:
            if place not in graph.outputs:
                regions.pop(place, None)
    for place, output in zip(graph.outputs, outputs, strict=True):
        if output is not None:
            output.spoil()
            output.copy_from(regions[place])


def _readers(graph: Graph) -> dict[Place, int]:
    """The last node that reads each output of a node."""
    when = {n: i for i, n in enumerate(graph.order)}
    last: dict[Place, int] = {}
    for (node, _), source in graph.from_node.items():
        if source not in last or when[node] > when[last[source]]:
            last[source] = node
    return last


def read(region: Region, tensor: Tensor, what: str) -> np.ndarray[Any, Any]:
    """A tensor's elements, which cannot be written.

    Raises:
        Invalid: nobody has written some of them.
    """
    array = _elements(region.data, tensor)
    array.flags.writeable = False
    if not region.written[: tensor.total_bytes].all():
        missing = ~_mask(region.written, tensor)
        if missing.any():
            raise Invalid(
                f"{what} ({tensor.type_name} {tensor.sizes}) reads "
                f"{int(missing.sum())} bytes that nobody has written"
            )
    return array


def _written(tensor: Tensor, array: Any, what: str) -> Region:
    if array is None or array.shape != tensor.sizes or array.dtype != tensor.data_type:
        found = None if array is None else (array.dtype, array.shape)
        raise AssertionError(
            f"{what}: the meaning of the operator returned {found}, not "
            f"{tensor.data_type, tensor.sizes}"
        )
    region = Region.unwritten(tensor.total_bytes)
    _elements(region.data, tensor)[...] = array
    _mask(region.written, tensor)[...] = True
    return region


def _strides(tensor: Tensor) -> tuple[int, ...]:
    found = tensor.strides or packed(tensor.sizes)
    return tuple(s * tensor.data_type.itemsize for s in found)


def _elements(data: Bytes, tensor: Tensor) -> np.ndarray[Any, Any]:
    size = tensor.data_type.itemsize
    items = data[: len(data) // size * size].view(tensor.data_type)
    return np.lib.stride_tricks.as_strided(items, tensor.sizes, _strides(tensor))


def _mask(written: Mask, tensor: Tensor) -> Mask:
    # what is broadcast is looked at once
    pairs = zip(tensor.sizes, _strides(tensor), strict=True)
    kept = [(n, s) for n, s in pairs if s]
    sizes = *(n for n, _ in kept), tensor.data_type.itemsize
    strides = *(s for _, s in kept), 1
    return np.lib.stride_tricks.as_strided(written, sizes, strides)
