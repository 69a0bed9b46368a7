"""Hears of what Python is asked for that takes long: to make code, modules, libraries,
threads and processes, to open files, and to collect garbage."""

from __future__ import annotations

import functools
import gc
import sys
import threading
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
    "open": "opened files",
    "tempfile.mkdtemp": "made temporary folders",
    "pickle.find_class": "unpickled objects",
    "socket.connect": "connected to others",
}
"""Python's audit events, in words."""

_OLDEST: Final = 2
"""The generation of garbage that is collected with all others, which Python itself does
seldom (see ``gc.set_threshold``)."""

_listeners: Final[list[Counter[str]]] = []


@contextmanager
def noting() -> Iterator[Counter[str]]:
    """A context in which that is counted, in any thread, by what was done."""
    heard: Counter[str] = Counter()
    _listen()
    _listeners.append(heard)
    # of which not all versions of Python tell
    start = threading.Thread.start

    @functools.wraps(start)
    def started(thread: threading.Thread) -> None:
        _note("started threads")
        start(thread)

    threading.Thread.start = started  # type: ignore[assignment, method-assign]
    try:
        yield heard
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        # by identity: counters of others may be equal
        _listeners[:] = [each for each in _listeners if each is not heard]


@functools.cache
def _listen() -> None:
    """Have Python tell; that cannot be undone."""
    sys.addaudithook(_heard)
    gc.callbacks.append(_collecting)


def _heard(event: str, _: tuple[Any, ...]) -> None:
    if event in _MAKINGS:
        _note(_MAKINGS[event])


def _collecting(phase: str, about: dict[str, int]) -> None:
    if phase == "start" and about["generation"] == _OLDEST:
        _note("collected all garbage")


def _note(what: str) -> None:
    for each in _listeners:
        each[what] += 1
