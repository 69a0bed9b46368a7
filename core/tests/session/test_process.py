"""The process's facts and settings."""

from __future__ import annotations

import logging

import pytest

import onnxplug
from onnxplug.errors import InvalidArgument


def test_what_the_process_tells() -> None:
    assert onnxplug.get_version_string() == onnxplug.__version__
    assert onnxplug.__version__ in onnxplug.get_build_info()


def test_the_severity_is_the_level_of_the_library() -> None:
    logger = logging.getLogger("onnxplug")
    before = logger.level
    try:
        for severity, level in enumerate((10, 20, 30, 40, 50)):
            onnxplug.set_default_logger_severity(severity)
            assert logger.level == level
        with pytest.raises(InvalidArgument, match="0 to 4"):
            onnxplug.set_default_logger_severity(5)
    finally:
        logger.setLevel(before)
