"""The one lock of all simulated devices, which finalizers may ask for at any point.

An array is released wherever Python destroys it: in any thread, also in one that is
about to change the very queue that the release belongs to.  So what a finalizer asks
for waits until the thread has left the lock, and next does something with a device.

What a signal handler raises may come between any two steps of Python's.  So the lock is
entered and left by ``threading.RLock``'s own methods, which are none: one that was left
locked would have the threads of devices wait for ever.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    _Lock = threading.RLock
else:
    _Lock = type(threading.RLock())


class Monitor(_Lock):  # type: ignore[misc]  # final only to typeshed
    """A lock that a thread may take again, and leave to wait for a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._later: deque[Callable[[], None]] = deque()

    def call(self, function: Callable[[], None]) -> None:
        """Call *function* under the lock, when this thread does nothing else there."""
        self._later.append(function)
        self.settle()

    def settle(self) -> None:
        """Do what finalizers asked for, unless this thread is in the lock."""
        while self._later and not self._is_owned():  # type: ignore[attr-defined]
            with self:
                try:
                    function = self._later.popleft()
                except IndexError:  # another thread does it
                    return
                function()

    def condition(self) -> threading.Condition:
        """What a thread that has entered can notify, and wait for."""
        return threading.Condition(self)

    def start_child(self) -> None:
        """In the child of a fork, be free of a thread that is gone."""
        lock: Any = self
        if not lock._is_owned():
            lock._at_fork_reinit()


MONITOR: Final = Monitor()
"""Of all simulated devices, as their streams may wait for each other."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MONITOR.start_child)
