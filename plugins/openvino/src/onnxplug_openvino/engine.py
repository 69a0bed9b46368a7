"""Imports OpenVINO, and keeps it from reporting that it was imported."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

_TELEMETRY: Final = "openvino_telemetry"


def import_openvino() -> Any:
    """OpenVINO, imported without its telemetry unless that is loaded already.

    Importing OpenVINO sends an event to Intel by way of Google Analytics, and makes a
    client id in the user's home, unless the user opted out.  A program that asks for an
    EP has not asked for that.  Without its telemetry package OpenVINO uses a stub.
    """
    if "openvino" in sys.modules or _TELEMETRY in sys.modules:
        return importlib.import_module("openvino")
    modules: dict[str, Any] = sys.modules
    modules[_TELEMETRY] = None  # which makes importing it fail
    try:
        return importlib.import_module("openvino")
    finally:
        del modules[_TELEMETRY]
