"""The loss of a device, and memory that there is not: what is said of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Protocol

from onnxplug_directml.com.errors import DeviceRemoved, OutOfMemory

REMEDY: Final = (
    "what was in its memory is gone, and so is what was compiled for it: make sessions "
    "and values anew; if it happens again, update the driver, feed less at once, or "
    "leave nodes to another EP"
)


class Losable(Protocol):
    """A device, as far as its loss is concerned."""

    def lose(self, why: str) -> None:
        """Note that it is lost, and why."""

    def lost(self) -> DeviceRemoved:
        """The error for what was lost with it."""


class driving(AbstractContextManager[None]):
    """A context in which a device is driven.

    Raises:
        DeviceRemoved: it was lost; with the reason.
        MemoryError: there is no memory for what was asked; with what helps.
    """

    __slots__ = ("_device",)

    def __init__(self, device: Losable) -> None:
        self._device = device

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, DeviceRemoved):
            self._device.lose(str(error))
            raise self._device.lost() from error
        if isinstance(error, OutOfMemory):
            raise MemoryError(
                f"{self._device} has not enough memory: {error}; close sessions that "
                "share it, or feed less at once"
            ) from error
