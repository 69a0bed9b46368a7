"""A run as one EP sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.run import Run


class Context:
    """A run as one EP sees it; see :class:`onnxplug.ep.RunContext`."""

    __slots__ = ("capture", "options", "profiler", "run", "stream")

    def __init__(self, run: Run, stream: Stream | None, ep: str) -> None:
        self.run = run
        self.stream = stream
        self.capture = run.capture
        self.options = run.options[ep]
        self.profiler = (
            None
            if run.profile is None
            else run.profile.of(ep, stream, is_noting=run.is_capturing)
        )

    @property
    def deadline(self) -> float | None:
        return self.run.deadline

    @property
    def cancelled(self) -> bool:
        run = self.run
        return run.cancelled or (
            run.deadline is not None and time.monotonic() > run.deadline
        )
