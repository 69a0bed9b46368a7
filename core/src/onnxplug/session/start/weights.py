"""The constants of a start: ranges of the model's files, and small ones by content."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.files import lasting_state, open_regular
from onnxplug.ep.types import DataType

if TYPE_CHECKING:
    from onnxplug.graph import Weight
    from onnxplug.graph.contents import Contents

LARGEST: Final = 1 << 16
"""Bytes up to which a constant is kept by its content."""

MOST: Final = 4 << 20
"""Bytes of all that are, and of a model that is in no file."""

_FILE, _CONTENT = range(2)


class Unkept(Exception):
    """Something cannot be kept, or is not as it was."""


class KeptWeights:
    """The constants of a partition.

    Args:
        plain: by name, what :func:`plain_weights` gave.
        files: the paths of the model's files, and their states.
        mapped: as of ``Contents``.
    """

    def __init__(
        self,
        plain: Mapping[str, tuple[Any, ...]],
        files: Sequence[tuple[str, tuple[int, ...]]],
        *,
        mapped: bool,
    ) -> None:
        self._plain = plain
        self._files = files
        self._mapped = mapped
        self._known: dict[str, Weight] = {}
        self._opened: dict[int, memoryview] = {}
        self._contents: Contents | None = None

    def get(self, name: str) -> Weight | None:
        """The constant *name*; ``None`` if there is none.

        Raises:
            Unkept: a file is not as it was.
            OSError: it is not there, or cannot be read.
        """
        plain = self._plain.get(name)
        if plain is None:
            return None
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._made(*plain)
        return found

    def _made(
        self, kind: int, dtype: str, shape: tuple[int, ...], *where: Any
    ) -> Weight:
        from onnxplug.graph.packing import from_raw
        from onnxplug.graph.weight import Weight

        element = DataType(dtype)
        if kind == _CONTENT:
            raw = memoryview(where[0])
            return Weight.from_array(from_raw(raw, element, shape))
        number, start, nbytes = where
        if number not in self._opened:
            self._opened[number] = self._open(*self._files[number])
        assert self._contents is not None
        raw = self._opened[number][start : start + nbytes]
        return Weight(
            element,
            shape,
            functools.partial(from_raw, raw, element, shape),
            raw,
            self._contents.origin(raw),
        )

    def _open(self, path: str, state: tuple[int, ...]) -> memoryview:
        from onnxplug.graph.contents import Contents

        if self._contents is None:
            self._contents = Contents(mapped=self._mapped)
        descriptor, status = open_regular(path)
        try:
            if lasting_state(status) != state:
                raise Unkept(f"{path!r} is not as it was")
            return self._contents.of(path, descriptor, status)
        finally:
            os.close(descriptor)


def plain_weights(
    weights: Mapping[str, Weight], paths: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """Constants as plain values.

    Args:
        paths: of the model's files.

    Raises:
        Unkept: one is in no file that lasts, and too large.
    """
    plain: dict[str, tuple[Any, ...]] = {}
    left = MOST
    for name, weight in weights.items():
        facts = str(weight.dtype), weight.shape
        place = weight.place()
        if place is not None and place[0] in paths:
            path, start = place
            plain[name] = _FILE, *facts, paths.index(path), start, weight.nbytes
            continue
        left -= weight.nbytes
        if weight.nbytes > LARGEST or left < 0 or weight.dtype is DataType.STRING:
            raise Unkept(f"constant {name!r} is in no file")
        plain[name] = _CONTENT, *facts, weight.raw().tobytes()
    return plain
