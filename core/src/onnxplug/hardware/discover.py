"""Chooses the module that knows this operating system, and keeps what it found.

The answer of a process never changes: EPs and sessions may compare devices.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

from onnxplug.ep import DeviceType, HardwareDevice


@functools.cache
def discover() -> tuple[HardwareDevice, ...]:
    """The devices of this machine: the CPU, then GPUs, then NPUs, each in bus order.

    Nothing is loaded or woken to find them.  What cannot be read is left out, with a
    line in the log at level DEBUG; the CPU is always there.
    """
    return tuple(_find())


def _find() -> Iterable[HardwareDevice]:
    # a name that mypy does not evaluate: all branches are checked everywhere
    system: str = sys.platform
    if system in ("linux", "android"):
        from onnxplug.hardware import linux

        return linux.find()
    if system in ("win32", "cygwin"):
        from onnxplug.hardware import windows

        return windows.find()
    if system == "darwin":
        from onnxplug.hardware import macos

        return macos.find()
    return (HardwareDevice(type=DeviceType.CPU),)
