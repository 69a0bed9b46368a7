"""The two formats of models, and what may be missing for the engine of each.

Nothing here imports an engine: what is installed is read from its distribution.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_coreml.machine import Machine

MLPROGRAM: Final = "MLProgram"
COREAI: Final = "CoreAI"

INSTALL_COREMLTOOLS: Final = 'pip install "coremltools>=9,<10"'
INSTALL_COREAI: Final = 'pip install "coreai-core>=1.0.0b3,<2"'

_MLPROGRAM_OPERATIONS: Final = 15
"""The macOS whose Core ML has all the operations that lowering uses."""

_COREAI_DRIVES_UNITS: Final = 27
"""The macOS whose Core AI drives GPU and Neural Engine; the runtime that
``coreai-core`` brings computes on processors."""

_NEWEST_PYTHON: Final = {MLPROGRAM: (3, 13), COREAI: (3, 14)}
_DISTRIBUTION: Final = {MLPROGRAM: "coremltools", COREAI: "coreai-core"}
_OLDEST: Final = {MLPROGRAM: (9,), COREAI: (1,)}
_INSTALL: Final = {MLPROGRAM: INSTALL_COREMLTOOLS, COREAI: INSTALL_COREAI}


class Lack(Record):
    """Why an engine cannot be used, and what to do about it (empty: nothing)."""

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def distribution_version(name: str) -> str:
    """The version of an installed distribution; empty if there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def engine_version(model_format: str) -> tuple[str, str]:
    """The distribution that supplies the engine of a format, and its version."""
    name = _DISTRIBUTION[model_format]
    return name, distribution_version(name)


def preferred_formats(machine: Machine) -> tuple[str, ...]:
    """Both formats, that first which is the better one on *machine*."""
    if machine.is_mac and machine.macos < _COREAI_DRIVES_UNITS:
        return MLPROGRAM, COREAI
    return COREAI, MLPROGRAM


def usable_formats(machine: Machine, device: ep.DeviceType) -> tuple[str, ...]:
    """Those for which nothing is missing on a kind of device, the best first."""
    return tuple(
        each
        for each in preferred_formats(machine)
        if lack_for(each, machine, device) is None
    )


def lack_for(
    model_format: str, machine: Machine, device: ep.DeviceType = ep.DeviceType.CPU
) -> Lack | None:
    """What is missing to run models of a format on a kind of device."""
    return _SYSTEM[model_format](machine, device) or _of_package(model_format, machine)


def _of_core_ml(machine: Machine, device: ep.DeviceType) -> Lack | None:
    if not machine.is_mac:
        return Lack(f"Core ML is a part of macOS, and this is {machine}")
    if machine.macos < _MLPROGRAM_OPERATIONS:
        return Lack(
            f"operations of the format MLProgram are those of macOS "
            f"{_MLPROGRAM_OPERATIONS}, and this is {machine.release}",
            "update macOS",
        )
    return None


def _of_core_ai(machine: Machine, device: ep.DeviceType) -> Lack | None:
    if machine.system == "Linux" and machine.processor == "x86_64":
        if device is ep.DeviceType.CPU:
            return None
        return Lack(
            f"Core AI's runtime for Linux computes on processors, not on "
            f"{device.upper()}s"
        )
    if not machine.is_mac or machine.processor != "arm64":
        return Lack(
            "Core AI runs on Macs with Apple's processors, and for trying models on "
            f"Linux on x86_64; this is {machine}"
        )
    if machine.macos < 26:
        return Lack(
            f"Core AI needs macOS 26, and this is {machine.release}", "update macOS"
        )
    if device is not ep.DeviceType.CPU and machine.macos < _COREAI_DRIVES_UNITS:
        return Lack(
            f"Core AI computes on {device.upper()}s from macOS "
            f"{_COREAI_DRIVES_UNITS} on, and this is {machine.release}",
            "update macOS",
        )
    return None


_SYSTEM: Final[dict[str, Callable[[Machine, ep.DeviceType], Lack | None]]] = {
    MLPROGRAM: _of_core_ml,
    COREAI: _of_core_ai,
}


def _of_package(model_format: str, machine: Machine) -> Lack | None:
    name, version = engine_version(model_format)
    newest = _NEWEST_PYTHON[model_format]
    if machine.python > newest:
        known = ".".join(map(str, newest))
        found = ".".join(map(str, machine.python))
        return Lack(
            f"{name} has no wheel for Python {found}",
            f"use Python 3.11 to {known}",
        )
    if not version:
        return Lack(f"{name} is not installed", _INSTALL[model_format])
    numbers = tuple(map(int, re.findall(r"\d+", version)[:1]))
    if numbers != _OLDEST[model_format]:
        return Lack(
            f"{name} {version} is installed; what is known to work is "
            f"{_OLDEST[model_format][0]}",
            _INSTALL[model_format],
        )
    return None
