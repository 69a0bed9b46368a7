"""How many threads numpy's matrix products may use while a session runs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug.authoring.locks import new_lock

_lock = new_lock()
_entered: list[Any] = []
"""The limits that are in force, in the order in which they were set."""

_left: list[Any] = []
"""In the child of a fork, a limit that a thread of the parent had set."""


@contextlib.contextmanager
def on_arrays(threads: int) -> Iterator[None]:
    """A context for kernels on arrays: floating-point errors are values, not warnings,
    and BLAS uses at most *threads* threads, as it likes with 0."""
    with np.errstate(all="ignore"):
        if not threads:
            yield
            return
        with limited_to(threads):
            yield


@contextlib.contextmanager
def limited_to(threads: int) -> Iterator[None]:
    """A context in which BLAS uses at most *threads* threads.

    The limit is the process's: two sessions that run at the same time share the one
    that was set last.  When no session is in such a context any more, it is again what
    it was before the first was.
    """
    with _lock:
        if _left:
            _left.pop().restore_original_limits()
        _entered.append(_controller().limit(limits=threads, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            # only the first remembers what was before them all, and it is popped last
            limit = _entered.pop()
            if not _entered:
                limit.restore_original_limits()


def _start_child() -> None:
    # setting BLAS's threads begins new ones, which is left until there is work for them
    _left[:] = _entered[:1]  # which remembers what was before them all
    _entered.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_child)


@functools.cache
def _controller() -> Any:
    # finding the loaded libraries takes milliseconds, entering a limit microseconds
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # type: ignore[no-untyped-call]
