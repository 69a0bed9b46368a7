"""How many threads numpy's matrix products may use while a session runs."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any


def limited_to(threads: int) -> AbstractContextManager[Any]:
    """A context in which BLAS uses at most *threads* threads.

    The limit is the process's: two sessions that run at the same time share the one
    that was set last.
    """
    context: AbstractContextManager[Any] = _controller().limit(
        limits=threads, user_api="blas"
    )
    return context


@functools.cache
def _controller() -> Any:
    # finding the loaded libraries takes milliseconds, entering a limit microseconds
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # type: ignore[no-untyped-call]
