"""What ``onnxplug doctor`` says of adapters, and of what they lack."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onnxplug import ep
from onnxplug_webgpu.adapters import (
    NO_ADAPTER,
    Adapter,
    described_drivers,
    named_drivers,
    unfit_adapters,
)


def findings(wgpu: Any, adapters: Sequence[Adapter]) -> Iterator[ep.Finding]:
    """What is found of *adapters*, and why there are no others.

    Args:
        adapters: those on which kernels can run.
    """
    for number, adapter in enumerate(adapters):
        yield _of_adapter(number, adapter)
    used = {adapter.name for adapter in adapters}
    for adapter, reason in unfit_adapters(wgpu):
        if adapter.name in used:
            continue
        yield ep.Finding(
            level=ep.Level.WARNING,
            message=f"{adapter} is not used: {reason}",
            remedy="update its driver",
        )
    if adapters:
        if all(adapter.is_software for adapter in adapters):
            yield from _closed_devices()
        return
    yield ep.Finding(
        level=ep.Level.ERROR,
        message="wgpu finds no adapter of Vulkan, Metal or Direct3D 12",
        remedy=NO_ADAPTER,
    )
    if sys.platform == "linux":
        yield from _without_vulkan()


def _of_adapter(number: int, adapter: Adapter) -> ep.Finding:
    largest = adapter.native.limits["max-storage-buffer-binding-size"]
    message = (
        f"adapter {number}: {adapter}, driver {adapter.driver or 'unknown'}; "
        f"arrays of at most {largest >> 20} MiB"
    )
    if adapter.is_software:
        return ep.Finding(
            level=ep.Level.WARNING,
            message=f"{message}; it computes on the processor",
            remedy="use it for tests only; for a GPU, install its Vulkan driver",
        )
    return ep.Finding(level=ep.Level.OK, message=message)


def _without_vulkan() -> Iterator[ep.Finding]:
    """What Vulkan needs on Linux that is not there."""
    if ctypes.util.find_library("vulkan") is None:
        yield ep.Finding(
            level=ep.Level.ERROR,
            message="Vulkan's loader, libvulkan.so.1, is not found",
            remedy="apt install libvulkan1, or what your system calls it",
        )
    missing = [str(path) for path in named_drivers() if not path.is_file()]
    if missing:
        yield ep.Finding(
            level=ep.Level.ERROR,
            message=f"VK_DRIVER_FILES or VK_ICD_FILENAMES names {', '.join(missing)}, "
            "which is not there",
            remedy="unset it, or name the files that describe drivers",
        )
    elif not any(path.is_file() for path in described_drivers()):
        yield ep.Finding(
            level=ep.Level.ERROR,
            message="no driver for Vulkan is installed",
            remedy="install that of your GPU's maker, or Mesa's: "
            "apt install mesa-vulkan-drivers",
        )
    yield from _closed_devices()


def _closed_devices(folder: Path = Path("/dev/dri")) -> Iterator[ep.Finding]:
    """The GPUs that this user may not use."""
    closed = [
        str(path)
        for path in sorted(folder.glob("renderD*"))
        if not os.access(path, os.R_OK | os.W_OK)
    ]
    if closed:
        yield ep.Finding(
            level=ep.Level.WARNING,
            message=f"{', '.join(closed)} cannot be opened by this user",
            remedy="add the user to the group that owns it: "
            "sudo usermod -aG render $USER, then log in again",
        )
