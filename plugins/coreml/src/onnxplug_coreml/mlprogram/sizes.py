"""Sizes that are known in runs only, as operations of MIL on int32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.sizes import Call, Extent, Size, named, names_in
from onnxplug_coreml.lowering.program import Program, Range

MOST: Final = 32768
"""The largest size where nothing bounds it: coremltools wants a bound."""


def bounds(size: Extent, ranges: Mapping[str, Range]) -> tuple[int, int]:
    """The least and the greatest number that *size* can be.

    For a size of several names these are the ends of a range that holds them all if
    none is subtracted.
    """
    if isinstance(size, int):
        return size, size
    found = [ranges.get(name, Range()) for name in sorted(names_in(size))]
    names = sorted(names_in(size))
    lows = {name: max(each.lower, 1) for name, each in zip(names, found, strict=True)}
    highs = {
        name: MOST if each.upper is None else each.upper
        for name, each in zip(names, found, strict=True)
    }
    low, high = size.evaluate(lows), size.evaluate(highs)
    if low is None or high is None:
        return 1, MOST
    return max(min(low, high), 1), max(low, high)


class Sizes:
    """What sizes are in a run, each found once.

    Args:
        mb: coremltools' builder.
        inputs: variables of the program's inputs by the values' names.
    """

    def __init__(self, mb: Any, program: Program, inputs: Mapping[str, Any]) -> None:
        self._mb = mb
        self._inputs = inputs
        self._sources = {
            size: (port.value.name, axis)
            for port in program.inputs
            for axis, size in enumerate(port.value.shape)
            if isinstance(size, Size)
        }
        self._known: dict[Extent, Any] = {}

    def vector(self, sizes: Sequence[Extent]) -> Any:
        """A vector of *sizes*: an array if all are numbers, else a variable."""
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) == len(sizes):
            return np.array(numbers, np.int32)
        parts = [self._one(size) for size in sizes]
        return self._mb.concat(values=parts, axis=0) if len(parts) > 1 else parts[0]

    def _one(self, size: Extent) -> Any:
        """A vector of one element."""
        if isinstance(size, int):
            return np.array([size], np.int32)
        if size not in self._known:
            self._known[size] = self._find(size)
        return self._known[size]

    def _find(self, size: Size) -> Any:
        if size in self._sources:
            name, axis = self._sources[size]
            shape = self._mb.shape(x=self._inputs[name])
            return self._mb.slice_by_index(x=shape, begin=[axis], end=[axis + 1])
        total = None
        for monomial, count in size.terms:
            term: Any = np.array([count], np.int32)
            for atom in monomial:
                factor = (
                    self._call(atom) if isinstance(atom, Call) else self._name(atom)
                )
                term = self._mb.mul(x=factor, y=term)
            total = term if total is None else self._mb.add(x=total, y=term)
        return total

    def _name(self, name: str) -> Any:
        size = named(name)
        if size not in self._sources:
            raise LookupError(f"no input has the size {name!r}")
        return self._one(size)

    def _call(self, call: Call) -> Any:
        mb = self._mb
        first, second = self._one(call.first), self._one(call.second)
        functions: dict[str, Callable[[], Any]] = {
            "//": lambda: mb.floor_div(x=first, y=second),
            "min": lambda: mb.minimum(x=first, y=second),
            "max": lambda: mb.maximum(x=first, y=second),
            "broadcast": lambda: mb.select(
                cond=mb.equal(x=first, y=np.array([1], np.int32)), a=second, b=first
            ),
        }
        return functions[call.function]()
