"""Imports and starts OpenVINO, without what it does to a program unasked."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from onnxplug_openvino.signal_stack import SignalStack

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


_kept: list[Any] = []
"""What must not be released before the process ends."""


def make_core() -> Any:
    """OpenVINO's ``Core``, its plugins loaded; the thread's stack of signals stays.

    A ``Core`` loads a plugin when its device is first asked for: here, since that is
    when the processor's replaces the stack.
    """
    stack = SignalStack.current()
    core = import_openvino().Core()
    try:
        _ = core.available_devices
    finally:
        if stack and not stack.restore():
            _kept.append(core)
    return core
