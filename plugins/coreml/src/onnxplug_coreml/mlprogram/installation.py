"""Imports coremltools, and keeps what it says off the terminal."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

_LOGGER: Final = logging.getLogger("onnxplug.coreml.mlprogram")

BUILDING: Final = threading.RLock()
"""Held while coremltools is imported or makes a program: it keeps what it is working
on in global variables."""


@contextlib.contextmanager
def building() -> Iterator[Any]:
    """coremltools, which is this thread's alone inside.

    What it logs there is handed on as debugging information: warnings about libraries
    that it finds but does not know, or lacks on this system.  Errors are raised too.

    Raises:
        ImportError: there is none, or it is broken.
    """
    source = logging.getLogger("coremltools")
    with BUILDING:
        filter_ = _HandingOn(threading.get_ident())
        source.addFilter(filter_)
        try:
            yield importlib.import_module("coremltools")
        finally:
            source.removeFilter(filter_)


class _HandingOn(logging.Filter):
    """Takes the records of one thread from coremltools' logger."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        _LOGGER.debug("coremltools: %s", record.getMessage().strip())
        return False


def find_bindings() -> Any | None:
    """coremltools with its bindings to Core ML; ``None`` where it has none.

    Only its wheels for macOS have them.

    Raises:
        ImportError: there is no coremltools, or it is broken.
    """
    if sys.platform != "darwin":
        return None
    with building() as tools:
        try:
            importlib.import_module("coremltools.libcoremlpython")
        except ImportError as error:
            _LOGGER.debug("coremltools is without Core ML: %s", error)
            return None
        return tools
