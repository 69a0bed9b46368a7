"""Locks that the child of a fork finds free.

A lock that another thread holds at the moment of a fork would be held for ever in the
child, which has no such thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

# not a WeakSet, which runs Python code when a lock goes, and loses an interrupt in it
_references: Final[dict[weakref.ref[Any], None]] = {}


def new_lock() -> threading.Lock:
    """A ``threading.Lock`` that is free in the child of a fork.

    What it guards must be usable in whatever state a thread that is gone left it.
    """
    lock = threading.Lock()
    _remember(lock)
    return lock


def new_rlock() -> threading.RLock:
    """A ``threading.RLock`` that is free in the child of a fork, unless the thread that
    forked held it."""
    lock = threading.RLock()
    _remember(lock)
    return lock


def has_lock(lock: threading.RLock) -> bool:
    """Whether this thread has *lock*."""
    owned: Any = lock
    return bool(owned._is_owned())


def _remember(lock: Any) -> None:
    _references[weakref.ref(lock, _references.pop)] = None


def _free_all() -> None:
    for reference in list(_references):
        lock = reference()
        if lock is None or (hasattr(lock, "_is_owned") and has_lock(lock)):
            continue
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
