"""The loss of a device: how it is told from other errors, and what is said of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import DeviceLost

_SAID: Final = ("device is lost", "device lost", "pollthread", "get_token")
"""What wgpu says, in any case, of whatever is asked of a lost device, or of one that is
being destroyed."""

REMEDY: Final = (
    "what was in its memory is gone; the next run makes a new device, so feed or bind "
    "again what was there; if it happens again, update the driver, or leave the node "
    "to another EP with the option forceCpuNodeNames"
)


class Losable(Protocol):
    """A device, as far as its loss is concerned.

    Attributes:
        adapter: what it is on, in words.
    """

    @property
    def adapter(self) -> Any: ...

    def is_gone(self) -> bool:
        """Whether it is lost, asked of the driver."""

    def lose(self) -> None:
        """Note that it is lost."""


class driving(AbstractContextManager[None]):
    """A context in which a device is driven.

    Raises:
        DeviceLost: the device was lost; it is made anew when it is next needed.
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
        if not isinstance(error, Exception) or isinstance(error, ep.OnnxplugError):
            return
        ep.raise_interruption(error)
        if is_loss(error) or self._device.is_gone():
            self._device.lose()
            raise lost(self._device) from error


def is_loss(error: BaseException) -> bool:
    """Whether an error of wgpu's says that the device is lost."""
    text = str(error).lower()
    return any(said in text for said in _SAID)


def lost(device: Losable) -> DeviceLost:
    """The error for a device that was lost."""
    return DeviceLost(f"the device of {device.adapter} was lost: {REMEDY}")
