"""Severities of log messages, in ONNX Runtime's numbers."""

from __future__ import annotations

import logging

LEVELS = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)
"""ONNX Runtime's severities, 0 verbose to 4 fatal, as levels of ``logging``."""


def show_from(name: str, severity: int) -> logging.Logger:
    """The logger *name*, from a severity on; shown on stderr if nobody shows it yet."""
    logger = logging.getLogger(name)
    logger.setLevel(LEVELS[severity])
    if severity < 2 and not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
    return logger
