"""Engines as bytes: what they were built for, and TensorRT's plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_tensorrt.driver import AMPERE, DeviceFacts
from onnxplug_tensorrt.profiles import Range, as_facts, from_facts

_LENGTH: Final = 8
_ALIGNMENT: Final = 64
_LONGEST: Final = 1 << 20
"""Bytes of facts at most."""


class Plan(Record):
    """An engine as TensorRT serialises it.

    Attributes:
        content: TensorRT's bytes.
        profile: the shapes that it takes, by the names of inputs; empty: those that
            the engine states.
        version: of TensorRT.
        device: that it was built on.
        portable: it runs on every GPU from Ampere on.
        stripped: it has no weights.
        ranges: what tells the ranges of its tensors from others; empty: none were set.
    """

    content: Any
    profile: Mapping[str, Range]
    version: str
    device: DeviceFacts
    portable: bool = False
    stripped: bool = False
    ranges: str = ""

    def obstacle(self, version: str, device: DeviceFacts) -> str:
        """Why it does not run on *device*; empty if nothing speaks against it."""
        if self.version != version:
            return f"it was built by TensorRT {self.version}, and {version} is here"
        if self.portable:
            if device.capability[0] >= AMPERE:
                return ""
            return f"it is for GPUs from Ampere on, and {device.name} is older"
        built_on = self.device
        if (built_on.name, built_on.capability) != (device.name, device.capability):
            return (
                f"it was built on {built_on.name} ({built_on.architecture}), and this "
                f"is {device.name} ({device.architecture})"
            )
        return ""

    def packed(self) -> tuple[bytes, memoryview]:
        """It as bytes, in two parts."""
        facts = {
            "profile": as_facts(self.profile),
            "version": self.version,
            "device": list(self.device),
            "portable": self.portable,
            "stripped": self.stripped,
            "ranges": self.ranges,
        }
        text = json.dumps(facts).encode()
        text += b" " * (-(_LENGTH + len(text)) % _ALIGNMENT)
        head = len(text).to_bytes(_LENGTH, "little") + text
        return head, memoryview(self.content).cast("B")


def unpacked(data: memoryview) -> Plan:
    """What :meth:`Plan.packed` gave.

    Raises:
        ValueError: it is none.
    """
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > min(_LONGEST, len(data) - _LENGTH):
        raise ValueError("it is cut off, or no engine of this EP's")
    end = _LENGTH + length
    try:
        facts = json.loads(bytes(data[_LENGTH:end]))
        name, capability, processors, driver = facts["device"]
        major, minor = capability
        device = DeviceFacts(
            str(name), (int(major), int(minor)), int(processors), int(driver)
        )
        return Plan(
            data[end:],
            from_facts(facts["profile"]),
            str(facts["version"]),
            device,
            bool(facts["portable"]),
            bool(facts["stripped"]),
            str(facts["ranges"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"what it says of itself cannot be read: {error}") from error
