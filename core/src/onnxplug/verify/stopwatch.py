"""The time that a check takes, phase by phase, read by another thread meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum

from onnxplug.authoring.locks import new_lock


class Phase(StrEnum):
    """What is being done to a probe."""

    COMPILING = "compiling"
    RUNNING = "running"


class Stopwatch:
    """Adds up what each phase takes.  It starts with compiling."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._taken = dict.fromkeys(Phase, 0.0)
        self._phase = Phase.COMPILING
        self._since = time.monotonic()

    def begin(self, phase: Phase) -> None:
        """Note that from now on *phase* is what takes time."""
        with self._lock:
            now = time.monotonic()
            self._taken[self._phase] += now - self._since
            self._phase, self._since = phase, now

    def left(self, limits: Mapping[Phase, float]) -> tuple[Phase, float]:
        """The phase that goes on, and the seconds that it has left of its limit.

        A phase never starts again once its limit is reached, so no other is exceeded.
        """
        with self._lock:
            phase = self._phase
            taken = self._taken[phase] + time.monotonic() - self._since
        return phase, limits[phase] - taken
