"""What EPs made of weights, kept for all sessions: a store for each memory location.

Owns: that one thread makes an entry while others go on, and that an entry goes with
whoever used it last.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, cast

from onnxplug.authoring.locks import has_lock, new_rlock
from onnxplug.ep.weights import WeightSource

_Made = TypeVar("_Made")
_Key = tuple[Hashable, str]


class _Reference(weakref.ref[Any]):
    """To what was made, and of what it was made."""

    __slots__ = ("key",)
    key: _Key


class _Entry:
    """One entry of a store.

    Attributes:
        lock: held while the entry is made.
        maker: the thread that makes it.
        reference: to what was made, once it is.
    """

    __slots__ = ("lock", "maker", "reference")

    def __init__(self) -> None:
        self.lock: Final = new_rlock()
        self.maker: threading.Thread | None = None
        self.reference: _Reference | None = None

    def value(self) -> Any | None:
        """What was made, if it is still in use."""
        return None if self.reference is None else self.reference()


_changing: Final = new_rlock()
"""Held for moments, by whoever reads or changes entries of any store.  A thread may
hold it twice, as a collection of garbage can close a session, or make one, anywhere."""

_waiting: Final[dict[threading.Thread, _Entry]] = {}
"""The entry that a thread waits for."""


class SharedWeights:
    """The store of one memory location; see :class:`onnxplug.ep.WeightStore`."""

    def __init__(self) -> None:
        self._entries: Final[dict[_Key, _Entry]] = {}
        # No code in Python runs when a value goes, which may be in the midst of
        # anything and would lose an interrupt.
        self._gone: Final[deque[_Reference]] = deque()

    def count(self) -> int:
        """How many entries are in use, or being made."""
        with _changing:
            self._forget_gone()
            return len(self._entries)

    def values(self) -> list[Any]:
        """What is in use, in any order; nothing that is being made."""
        with _changing:
            values = [entry.value() for entry in self._entries.values()]
        return [value for value in values if value is not None]

    def get(
        self, source: WeightSource, layout: str, make: Callable[[], _Made]
    ) -> _Made:
        """What *make* returned for *source* and *layout*, to whoever asked first.

        Raises:
            TypeError: weak references cannot be made to what *make* returned.
            RuntimeError: *make* asks for what it is making.
        """
        key = (source.key, layout)
        thread = threading.current_thread()
        value: Any
        while True:
            try:
                with _changing:
                    self._forget_gone()
                    entry = self._entries.get(key)
                    if entry is None:
                        entry = self._entries[key] = _Entry()
                    value = entry.value()
                    if value is not None:
                        return cast("_Made", value)
                    _require_no_circle(entry, thread, layout)
                    _waiting[thread] = entry
                with entry.lock:
                    _waiting.pop(thread, None)
                    try:
                        with _changing:
                            if self._entries.get(key) is not entry:
                                continue  # another thread failed to make it
                            value = entry.value()
                            if value is not None:
                                return cast("_Made", value)
                            entry.maker = thread
                        made = make()
                        entry.reference = self._reference(made, key)
                        return made
                    finally:
                        if entry.maker is thread:
                            self._end(entry, key)
            finally:
                _waiting.pop(thread, None)

    def _reference(self, value: Any, key: _Key) -> _Reference:
        try:
            reference = _Reference(value, self._gone.append)
        except TypeError as error:
            raise TypeError(
                f"what was made of a weight for the layout {key[1]!r} is "
                f"{type(value).__name__}, to which weak references cannot be made; "
                "return an array, or an object of a class"
            ) from error
        reference.key = key
        return reference

    def _end(self, entry: _Entry, key: _Key) -> None:
        """Note that *entry* is not being made any more."""
        with _changing:
            entry.maker = None
            # dead, too, if it is that of what was there before
            if entry.value() is None and self._entries.get(key) is entry:
                del self._entries[key]

    def _forget_gone(self) -> None:
        while True:
            try:
                reference = self._gone.popleft()
            except IndexError:
                return
            entry = self._entries.get(reference.key)
            # it may be another by now, or be made anew
            if (
                entry is not None
                and entry.reference is reference
                and entry.maker is None
            ):
                self._entries.pop(reference.key, None)


def _require_no_circle(entry: _Entry, thread: threading.Thread, layout: str) -> None:
    """Refuse to wait for *entry* if it waits, by way of others, for *thread*.

    Raises:
        RuntimeError: it does.
    """
    seen: set[_Entry] = set()
    awaited: _Entry | None = entry
    while awaited is not None and awaited.maker is not None and awaited not in seen:
        # an interrupt may have left the name of a thread that makes it no more
        if awaited.maker is thread and has_lock(awaited.lock):
            raise RuntimeError(
                f"a weight for the layout {layout!r} is asked for by what makes it, "
                "which would wait for itself; make it of others"
            )
        seen.add(awaited)
        awaited = _waiting.get(awaited.maker)


of_host: Final = SharedWeights()
"""The store of the host's memory; device contexts have their own."""


if hasattr(os, "register_at_fork"):
    # who forks waits for nothing, and the others are gone
    os.register_at_fork(after_in_child=_waiting.clear)
