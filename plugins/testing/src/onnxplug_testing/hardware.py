"""Presents hardware to EPs that this machine does not have."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from onnxplug import ep

INTEL_CPU: Final = ep.HardwareDevice(
    type=ep.DeviceType.CPU, vendor="Intel", vendor_id=0x8086
)
"""For EPs that drive processors of Intel only."""


@contextmanager
def presented(*devices: ep.HardwareDevice) -> Iterator[None]:
    """A context in which the machine has *devices*, and no others."""
    # the package's attribute of this name is the function
    module = importlib.import_module("onnxplug.hardware.discover")
    with mock.patch.object(module, "_find", lambda: devices):
        module.discover.cache_clear()
        try:
            yield
        finally:
            module.discover.cache_clear()
