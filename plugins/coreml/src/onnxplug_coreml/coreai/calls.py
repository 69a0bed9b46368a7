"""Core AI's asynchronous calls, waited for."""

from __future__ import annotations

import asyncio
import atexit
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

_LONGEST_WAIT: Final = 2.0
"""Seconds for which the end of the process waits for Core AI's threads."""

_idle: Final[deque[asyncio.AbstractEventLoop]] = deque()
"""Event loops that no thread has."""

_futures: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""What Core AI's threads have not let go of."""


def finish(start: Callable[[], Awaitable[_T]]) -> _T:
    """What the awaitable that *start* gives comes to.

    It may be called from any thread, also where an event loop is running, which waits
    meanwhile.
    """
    if asyncio._get_running_loop() is None:
        return _finish_here(start)
    # a thread has one loop at a time
    with ThreadPoolExecutor(1, "onnxplug-coreai") as pool:
        return pool.submit(_finish_here, start).result()


def _finish_here(start: Callable[[], Awaitable[_T]]) -> _T:
    try:
        loop = _idle.pop()
    except IndexError:
        loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_watched(start))
    finally:
        _idle.append(loop)


async def _watched(start: Callable[[], Awaitable[_T]]) -> _T:
    found: _T = await _Watched(start())
    return found


class _Watched:
    """An awaitable that remembers on which futures it waited."""

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        try:
            while True:
                future = next(steps)
                if future is not None:
                    _futures.add(future)
                yield future
        except StopIteration as stop:
            return stop.value


@atexit.register
def _let_threads_end() -> None:
    """Wait until Core AI's threads hold nothing of Python's.

    One that lets go when the interpreter has ended would end the process by a signal.
    """
    latest = time.monotonic() + _LONGEST_WAIT
    while len(_futures) and time.monotonic() < latest:
        time.sleep(0.001)
    while _idle:
        _idle.pop().close()
