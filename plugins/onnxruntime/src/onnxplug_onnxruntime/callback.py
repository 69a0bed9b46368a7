"""What onnxplug logs, given to a function as ONNX Runtime gives it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import onnxplug
from onnxplug.ep import raise_interruption
from onnxplug.errors import InvalidArgument
from onnxplug.log import LEVELS

_handler: logging.Handler | None = None


def set_default_logger_callback(
    callback: Callable[[int, str, str, str, str], None] | None, severity: int = 2
) -> None:
    """Pass what onnxplug logs, from *severity* on, to *callback*.

    It is called with the severity, the logger's name twice, the place in the code, and
    the message; ``None`` undoes it.

    Raises:
        InvalidArgument: *severity* is none of 0 to 4, or *callback* no function.
    """
    global _handler
    logger = logging.getLogger("onnxplug")
    if _handler is not None:
        logger.removeHandler(_handler)
        _handler = None
    if callback is not None:
        if not callable(callback):
            raise InvalidArgument(f"{callback!r} cannot be called")
        onnxplug.set_default_logger_severity(severity)
        _handler = _Callback(callback)
        logger.addHandler(_handler)


class _Callback(logging.Handler):
    def __init__(self, callback: Callable[[int, str, str, str, str], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        severity = sum(level <= record.levelno for level in LEVELS) - 1
        place = f"{record.pathname}:{record.lineno} {record.funcName}"
        try:
            self._callback(
                max(severity, 0), record.name, record.name, place, record.getMessage()
            )
        except Exception as error:  # noqa: BLE001  # of the user's; logging tells
            raise_interruption(error)
            self.handleError(record)
