"""Hears of what Python is asked to make: code, modules, libraries, processes."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_MAKINGS: Final = {
    "compile": "compiled code",
    "import": "imported modules",
    "ctypes.dlopen": "loaded libraries",
    "subprocess.Popen": "started processes",
    "os.posix_spawn": "started processes",
    "os.system": "started processes",
    "os.fork": "started processes",
}
"""Python's audit events, in words."""

_listeners: Final[list[Counter[str]]] = []


@contextmanager
def noting() -> Iterator[Counter[str]]:
    """A context in which what is made is counted, in any thread, by what was done."""
    heard: Counter[str] = Counter()
    _listen()
    _listeners.append(heard)
    try:
        yield heard
    finally:
        # by identity: counters of others may be equal
        _listeners[:] = [each for each in _listeners if each is not heard]


@functools.cache
def _listen() -> None:
    """Have Python tell; that cannot be undone."""
    sys.addaudithook(_heard)


def _heard(event: str, _: tuple[Any, ...]) -> None:
    if _listeners and event in _MAKINGS:
        for each in _listeners:
            each[_MAKINGS[event]] += 1
