"""Signal handlers of a program that raise."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Alarm(Exception):
    """Raised by a signal handler of the program's."""


@contextmanager
def handler() -> Iterator[Callable[[], None]]:
    """A context in which a signal handler raises :class:`Alarm` when what it gives is
    called."""

    def handle(number: int, frame: Any) -> None:
        raise Alarm("raised by a signal handler of the kit's")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
