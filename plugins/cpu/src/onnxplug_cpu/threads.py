"""How many threads numpy's matrix products may use while a session runs."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_lock = threading.Lock()
_entered: list[Any] = []
"""The limits that are in force, in the order in which they were set."""


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
        _entered.append(_controller().limit(limits=threads, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            # only the first remembers what was before them all, and it is popped last
            limit = _entered.pop()
            if not _entered:
                limit.restore_original_limits()


@functools.cache
def _controller() -> Any:
    # finding the loaded libraries takes milliseconds, entering a limit microseconds
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # type: ignore[no-untyped-call]
