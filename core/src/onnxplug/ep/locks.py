"""Locks that the child of a fork finds free.

A lock that another thread holds at the moment of a fork would be held for ever in the
child, which has no such thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

_locks: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A ``threading.Lock`` that is free in the child of a fork.

    What it guards must be usable in whatever state a thread that is gone left it.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """A ``threading.RLock`` that is free in the child of a fork, unless the thread that
    forked held it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in list(_locks):
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
