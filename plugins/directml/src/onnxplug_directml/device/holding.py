"""References that go when nobody refers to their holder, and the queue is done."""

from __future__ import annotations

from collections import deque
from typing import Any

from onnxplug_directml.com.unknown import IUnknown
from onnxplug_directml.device.queue import DmlQueue


class Holding:
    """References of a device's, as long as this object is there.

    Attributes:
        device: the one that they are of.
    """

    __slots__ = ("_dropped", "_references", "device")

    def __init__(self, device: DmlQueue) -> None:
        self.device = device
        self._dropped: deque[IUnknown] = device.dropped
        self._references: list[IUnknown] = []

    def add(self, reference: Any) -> Any:
        """*reference*, which is held from here on."""
        self._references.append(self.device.own(reference))
        return reference

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        self._dropped.extend(self._references)
