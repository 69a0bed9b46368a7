"""What an EP of a library records of its work, for the session's trace.

A library is told of profiling from its beginning to its end, and gives what it recorded
at the end.  Here that is a run of a partition each, so that the trace has it with the
run.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_native.functions.profiling import (
    CATEGORIES,
    NODE,
    ProfilingEvent,
    ProfilingEvents,
)
from onnxplug_native.interface.structure import Structure


class NativeProfiler:
    """Profiles runs by the profiler of a library's EP, one at a time."""

    def __init__(self, structure: Structure) -> None:
        """*structure* is the library's own."""
        self._structure = structure
        self._lock = new_lock()
        self._numbers = itertools.count(1)

    def run(self, compute: Callable[[], Any], name: str, profiler: ep.Profiler) -> Any:
        """What *compute* returns; what the library records goes to *profiler*.

        Args:
            name: of what is computed.

        Raises:
            OnnxplugError: the library fails, and says why.
        """
        with self._lock:
            began, number = time.perf_counter_ns(), next(self._numbers)
            self._structure.call("StartProfiling", 0)
            try:
                self._structure.call("StartEvent", number)
                try:
                    return compute()
                finally:
                    taken = (time.perf_counter_ns() - began) // 1000
                    event = ProfilingEvent(NODE, name, 0, taken, {})
                    try:
                        self._structure.call("StopEvent", number, event.address)
                    finally:
                        event.release()
            finally:
                self._end(began, profiler)

    def _end(self, began: int, profiler: ep.Profiler) -> None:
        container = ProfilingEvents()
        try:
            self._structure.call("EndProfiling", container.address)
        finally:
            container.release()
        for category, name, start_us, duration_us, details in container.events:
            profiler.record(
                name,
                category=CATEGORIES[category],
                start_ns=began + start_us * 1000,
                duration_ns=duration_us * 1000,
                details=details,
            )

    def release(self) -> None:
        """Release the library's own."""
        self._structure.call("Release")


def profiler_of(structure: Structure) -> NativeProfiler | None:
    """That of the EP with *structure*; ``None`` if it has none.

    Raises:
        OnnxplugError: the library fails, and says why.
    """
    if not structure.has("CreateProfiler"):
        return None
    out = ctypes.c_void_p()
    structure.call("CreateProfiler", ctypes.addressof(out))
    if not out.value:
        return None
    return NativeProfiler(Structure("OrtEpProfilerImpl", out.value, structure.owner))
