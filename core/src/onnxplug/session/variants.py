"""Variants of a session that have more of the graph's values as outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, TypeVar

MAX_VARIANTS: Final = 4
"""How many variants a session keeps."""

_Session = TypeVar("_Session")


class Variants(Generic[_Session]):
    """The variants of one session, by the names of their further outputs.

    The session's lock is held by whoever calls :meth:`get`.  A variant that is not
    kept any more is closed when no run uses it.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], _Session] = {}

    def __iter__(self) -> Iterator[_Session]:
        return iter(self._kept.values())

    def get(
        self, names: Collection[str], make: Callable[[tuple[str, ...]], _Session]
    ) -> _Session:
        """The variant for *names*, made if it is not kept.

        Args:
            make: given names without repetition, sorted.
        """
        key = tuple(sorted(set(names)))
        if key not in self._kept:
            made = make(key)
            while len(self._kept) >= MAX_VARIANTS:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = made
        return self._kept[key]
