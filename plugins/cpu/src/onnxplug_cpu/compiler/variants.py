"""What runs of a partition for inputs of some shapes, for which nodes are on arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onnxplug_cpu.compiler.built_partition import Built

MOST_VARIANTS: Final = 8
"""Sets of nodes that are on arrays for inputs of some shapes only, of which the latest
are kept."""

MOST_APART: Final = 256
"""Shapes of inputs of which it is known that nodes are not compiled for them."""

Shapes: TypeAlias = tuple["tuple[int, ...] | None", ...]
"""Of inputs, in order."""


class Variants:
    """A partition without some of its nodes, by the shapes that wanted that.

    Only :meth:`for_shapes` and :attr:`all` may be asked while another thread changes
    it.
    """

    def __init__(self) -> None:
        self._variants: OrderedDict[frozenset[int], Built] = OrderedDict()
        self._apart: OrderedDict[Shapes, Built] = OrderedDict()

    @property
    def all(self) -> tuple[Built, ...]:
        """Those that are kept."""
        return tuple(self._variants.values())

    def for_shapes(self, inputs: Sequence[Any]) -> Built | None:
        """The one for inputs of these shapes, if they have one."""
        apart = self._apart
        return apart.get(_shapes_of(inputs)) if apart else None

    def without(
        self,
        refused: Mapping[int, str],
        build: Callable[[Mapping[int, str]], Built],
    ) -> Built:
        """The partition without these nodes, which *build* makes, unless other shapes
        have wanted it."""
        key = frozenset(refused)
        built = self._variants.get(key)
        if built is None:
            built = build(refused)
            key = frozenset(built.refused)
        self._variants[key] = built
        self._variants.move_to_end(key)
        while len(self._variants) > MOST_VARIANTS:
            self._variants.popitem(last=False)
        return built

    def keep(self, built: Built, inputs: Sequence[Any]) -> int:
        """Have *built* for inputs of these shapes from now on; of how many shapes
        there is one."""
        apart = self._apart.copy()  # others may be reading it
        shapes = _shapes_of(inputs)
        apart[shapes] = built
        apart.move_to_end(shapes)
        kept = list(self._variants.values())
        apart = OrderedDict(
            (each, way) for each, way in apart.items() if any(way is k for k in kept)
        )
        while len(apart) > MOST_APART:
            apart.popitem(last=False)
        self._apart = apart
        return len(apart)

    def clear(self) -> None:
        """Forget all."""
        self._variants.clear()
        self._apart = OrderedDict()


def _shapes_of(inputs: Sequence[Any]) -> Shapes:
    """The shapes of what is fed; ``None`` for what has none."""
    return tuple([getattr(value, "shape", None) for value in inputs])
