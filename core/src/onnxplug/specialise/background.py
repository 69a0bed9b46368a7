"""A thread that does one thing after the other, as long as there is any."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from onnxplug.authoring.locks import new_rlock

Key = TypeVar("Key", bound=Hashable)

MOST_TRIED: Final = 3
"""How often what fails is tried."""

MOST_FAILED: Final = 1024
"""Of how many things it is remembered that they failed."""


class Background(Generic[Key]):
    """Does *work* for keys, each once, in a thread of its own.

    The thread ends when nothing is left to do, and is another one then.

    Args:
        work: is done for a key; whether it is to be tried again if it failed, and
            ``None`` if it did not.
        limit: keys that wait at most; others are not taken.
    """

    def __init__(self, work: Callable[[Key], bool | None], limit: int) -> None:
        self._work = work
        self._limit = limit
        self._lock = new_rlock()
        self._waiting: dict[Key, None] = {}
        self._current: Key | None = None
        self._failures: dict[Key, int] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing that it does is wanted any more."""
        return self._is_closed

    def want(self, key: Key) -> None:
        """Let it be done for *key*, unless it is being done or failed too often."""
        with self._lock:
            # the thread of a parent before a fork is none here
            is_alive = self._thread is not None and self._thread.is_alive()
            if self._is_closed or (is_alive and key == self._current):
                return
            if key not in self._waiting:
                if len(self._waiting) >= self._limit:
                    return
                if self._failures.get(key, 0) >= MOST_TRIED:
                    return
                self._waiting[key] = None
            if not is_alive:
                # a daemon, as sessions are closed after others have been waited for
                thread = threading.Thread(
                    target=self._go_on, name="onnxplug-compile", daemon=True
                )
                # where there are no more threads, it is tried when it is wanted again
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _go_on(self) -> None:
        while True:
            with self._lock:
                if self._is_closed or not self._waiting:
                    self._thread = self._current = None
                    return
                key = next(iter(self._waiting))
                del self._waiting[key]
                self._current = key
            again = self._work(key)
            with self._lock:
                if again is None:
                    self._failures.pop(key, None)
                    continue
                if len(self._failures) >= MOST_FAILED:
                    self._failures.clear()
                tried = self._failures.get(key, 0) + 1
                self._failures[key] = tried if again else MOST_TRIED

    def close(self) -> None:
        """Take nothing more, and wait for what is being done."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            thread = self._thread
        # whatever thread collects a session that was dropped closes it
        if thread is not None and thread is not threading.current_thread():
            thread.join()
