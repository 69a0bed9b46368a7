"""The one lock of all simulated devices, which finalizers may ask for at any point.

An array is released wherever Python destroys it: in any thread, also in one that is
about to change the very queue that the release belongs to.  So what a finalizer asks
for waits until the thread leaves the lock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from onnxplug.authoring.locks import new_rlock


class Monitor:
    """A lock that a thread may take again, and leave to wait for a condition."""

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._depth = 0
        self._later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_exception: object) -> None:
        try:
            while self._depth == 1 and self._later:
                self._later.popleft()()
        finally:
            self._depth -= 1
            self._lock.release()

    def call(self, function: Callable[[], None]) -> None:
        """Call *function* under the lock, when this thread does nothing else there."""
        self._later.append(function)
        with self:
            pass

    def condition(self) -> threading.Condition:
        """What a thread that has entered can notify, and wait for by :meth:`wait`."""
        return threading.Condition(self._lock)

    def wait(
        self, condition: threading.Condition, timeout: float | None = None
    ) -> None:
        """Wait until another thread notifies, for at most *timeout* seconds.

        The thread has entered once.
        """
        if self._depth != 1:
            raise RuntimeError("a simulated device waits for itself")
        self._depth = 0
        try:
            condition.wait(timeout)
        finally:
            self._depth = 1

    def start_child(self) -> None:
        """In the child of a fork, forget that a thread that is gone had entered."""
        lock: Any = self._lock
        if not lock._is_owned():
            self._depth = 0


MONITOR: Final = Monitor()
"""Of all simulated devices, as their streams may wait for each other."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MONITOR.start_child)
