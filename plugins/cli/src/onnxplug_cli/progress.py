"""What a command is at, shown to who waits: on stderr, if that is a terminal.

The line is gone when the work is done, and what else is written meanwhile begins
where it does, and covers it.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from onnxplug.escape import escape

PATIENCE: Final = 1.0
"""Seconds that work may take before anything is shown."""

_INTERVAL: Final = 0.25

LOGGER: Final = "onnxplug.session.progress"
"""Where EPs log how far work is that takes long, such as the build of an engine; what
is logged at its end has the attribute ``is_done``."""


_BAR: Final = 24
"""Columns of a bar."""


class Progress:
    """Shows *text*, which may change, while the work in its ``with`` block goes on.

    Attributes:
        share: from 0 to 1, how much of the work is done, which a bar shows; ``None``
            where nobody knows.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.share: float | None = None
        self._width = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._width:
            self._write("")

    def tell(self, text: str, share: float | None = None) -> None:
        """Show another *text*, and how much is done."""
        self.text, self.share = text, share

    def _show(self) -> None:
        shown = ""
        wait = PATIENCE
        while not self._done.wait(wait):
            line = self.text
            if self.share is not None:
                line = f"{_bar(self.share)} {line}"
            if line != shown:
                shown = line
                self._write(shown)
            wait = _INTERVAL

    def _write(self, line: str) -> None:
        # an older line that was longer is covered with blanks
        line = escape(line)
        sys.stderr.write(f"{line.ljust(self._width)}\r")
        sys.stderr.flush()
        self._width = len(line)


def _bar(share: float) -> str:
    """Rich's bar, without colours, for lines that cover each other."""
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(width=_BAR, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(ProgressBar(total=1.0, completed=min(max(share, 0.0), 1.0)))
    return captured.get().rstrip("\n").ljust(_BAR)


@contextmanager
def showing_log(level: int) -> Iterator[None]:
    """Show what EPs log of their progress, unless the log as a whole is shown.

    Args:
        level: from which on records are.
    """
    if level <= logging.INFO or not sys.stderr.isatty():
        yield
        return
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    with Progress("") as progress:
        handler = _Handler(progress)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]


class _Handler(logging.Handler):
    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        is_done = getattr(record, "is_done", False)
        self._progress.text = "" if is_done else record.getMessage()
