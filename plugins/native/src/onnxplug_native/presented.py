"""Devices that libraries are shown by hand, besides those of the machine.

For tests, and for devices that the host does not find: whether a library drives one
that is not there is its own to find out.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

from onnxplug import ep

VARIABLE: Final = "ONNXPLUG_NATIVE_DEVICES"
"""The variable of the environment that says which, separated by semicolons: a type, and
``vendor=``, ``vendor_id=``, ``device_id=`` or any key of its metadata."""


def presented(environment: Mapping[str, str] = os.environ) -> list[ep.HardwareDevice]:
    """The devices that the environment presents.

    Raises:
        OptionError: it presents what is none.
    """
    text = environment.get(VARIABLE, "")
    return [_device(each) for each in text.split(";") if each.strip()]


def _device(text: str) -> ep.HardwareDevice:
    try:
        kind, *words = shlex.split(text)
        facts = dict(word.split("=", 1) for word in words)
        return ep.HardwareDevice(
            type=ep.DeviceType(kind.lower()),
            vendor=facts.pop("vendor", ""),
            vendor_id=int(facts.pop("vendor_id", "0"), 0),
            device_id=int(facts.pop("device_id", "0"), 0),
            metadata=facts,
        )
    except ValueError as error:
        raise ep.OptionError(
            f"{VARIABLE} has {text.strip()!r}, which is no device ({error}); expected "
            "cpu, gpu or npu, then words such as vendor=Intel vendor_id=0x8086 "
            "device_id=0x46a6 Discrete=0"
        ) from error
