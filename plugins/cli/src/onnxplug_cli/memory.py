"""How much memory a session takes, of which another process tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug.errors import OnnxplugError

if TYPE_CHECKING:
    from onnxplug.session.request import SessionRequest

_RUNS: Final = 3
"""Runs after the first, for memory that is taken later."""

_TIMEOUT: Final = 600.0


class Memory(Record):
    """Bytes of a process's memory at their most.

    Attributes:
        rest: before the session was made: Python, and what is imported.
        peak: by the end of some runs; 0 if it is not known.
        missing: why not; empty if it is.
    """

    rest: int = 0
    peak: int = 0
    missing: str = ""

    @property
    def taken(self) -> int:
        """What the session, and the engine that it loads, added."""
        return self.peak - self.rest


def memory_of(request: SessionRequest, feed: Mapping[str, Any]) -> Memory:
    """That of a session, made in a process of its own and run on *feed*."""
    from onnxplug.calibration.process import (
        ProcessFailed,
        SessionProcess,
        libraries_of,
    )
    from onnxplug.plugins import registry

    try:
        libraries = libraries_of(registry)
        process = SessionProcess(request, feed, libraries, _TIMEOUT, lambda: None)
        try:
            opened = process.opened()
            process.run(_RUNS)
            peak = process.peak()
        finally:
            process.close()
    except (OnnxplugError, ProcessFailed) as error:
        return Memory(missing=str(error))
    if not peak:
        return Memory(missing="the system does not tell it")
    return Memory(opened.rest, peak)
