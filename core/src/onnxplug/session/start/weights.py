"""The constants of a start: ranges of the model's files, and small ones by content."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.files import lasting_state, open_regular

if TYPE_CHECKING:
    from onnxplug.graph import Weight

LARGEST: Final = 1 << 16
"""Bytes up to which a constant is kept by its content."""

_MOST: Final = 4 << 20
"""Bytes of all that are."""

_FILE, _CONTENT = range(2)


class Unkept(Exception):
    """Something cannot be kept, or is not as it was."""


class KeptWeights:
    """The constants of a partition.

    Args:
        plain: by name, what :func:`plain_weights` gave.
        files: the paths of the files that they are in, and their states.
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
        self._opened: list[memoryview] | None = None

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
        from onnxplug.ep.types import DataType
        from onnxplug.graph.packing import from_raw
        from onnxplug.graph.weight import Weight

        element = DataType(dtype)
        if kind == _CONTENT:
            raw = memoryview(where[0])
            return Weight.from_array(from_raw(raw, element, shape))
        number, start, nbytes = where
        if self._opened is None:
            self._open()
        assert self._opened is not None
        raw = self._opened[number][start : start + nbytes]
        return Weight(
            element,
            shape,
            functools.partial(from_raw, raw, element, shape),
            raw,
            self._contents.origin(raw),
        )

    def _open(self) -> None:
        from onnxplug.graph.contents import Contents

        self._contents = Contents(mapped=self._mapped)
        opened: list[memoryview] = []
        for path, state in self._files:
            descriptor, status = open_regular(path)
            try:
                if lasting_state(status) != state:
                    raise Unkept(f"{path!r} is not as it was")
                opened.append(self._contents.of(path, descriptor, status))
            finally:
                os.close(descriptor)
        self._contents.require_unchanged()
        self._opened = opened


def plain_weights(
    weights: Mapping[str, Weight],
) -> tuple[dict[str, tuple[Any, ...]], list[tuple[str, tuple[int, ...]]]]:
    """Constants as plain values, and the files that they are in with their states.

    Raises:
        Unkept: one is in no file that lasts, and too large.
    """
    plain: dict[str, tuple[Any, ...]] = {}
    numbers: dict[str, int] = {}
    left = _MOST
    for name, weight in weights.items():
        facts = str(weight.dtype), weight.shape
        place = weight.place()
        if place is not None:
            path, start = place
            number = numbers.setdefault(path, len(numbers))
            plain[name] = _FILE, *facts, number, start, weight.nbytes
            continue
        left -= weight.nbytes
        if weight.nbytes > LARGEST or left < 0 or weight.dtype == "string":
            raise Unkept(f"constant {name!r} is in no file")
        plain[name] = _CONTENT, *facts, weight.raw().tobytes()
    files: list[tuple[str, tuple[int, ...]]] = []
    for path in numbers:
        state = lasting_state(os.stat(path))
        if state is None:
            raise Unkept(f"{path!r} was written to a moment ago")
        files.append((path, state))
    return plain, files
