"""What ``onnxplug doctor`` says of this machine and its engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onnxplug import ep
from onnxplug_coreml.formats import engine_version, lack_for, preferred_formats
from onnxplug_coreml.machine import Machine

_TITLE: Final = {"MLProgram": "Core ML", "CoreAI": "Core AI"}


def findings(machine: Machine, chip: str) -> Iterator[ep.Finding]:
    """The system, then each engine, that first which is used by default.

    Args:
        chip: the name of the processor; empty when that is not known.
    """
    formats = preferred_formats(machine)
    lacks = {each: lack_for(each, machine) for each in formats}
    usable = [each for each in formats if lacks[each] is None]
    if machine.is_mac:
        on = f" on {chip}" if chip else f" on {machine.processor}"
        yield ep.Finding(level=ep.Level.OK, message=f"macOS {machine.release}{on}")
    for each, lack in lacks.items():
        title = f"{_TITLE[each]} (ModelFormat {each})"
        if lack is None:
            engine, version = engine_version(each)
            where = "" if machine.is_mac else ", on processors, for trying models"
            yield ep.Finding(
                level=ep.Level.OK,
                message=f"{title} is used by {engine} {version}{where}",
            )
        elif not usable and each == formats[0]:
            yield ep.Finding(
                level=ep.Level.ERROR, message=lack.reason, remedy=lack.remedy
            )
        elif machine.is_mac:
            yield ep.Finding(
                level=ep.Level.WARNING,
                message=f"{title} cannot be used: {lack.reason}",
                remedy=lack.remedy,
            )
