"""Whether what an EP compiled elsewhere, or before, is of use here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep.devices import EpDevice


class Compatibility(StrEnum):
    """What an EP says of a compiled partition, in ONNX Runtime's four words."""

    OPTIMAL = "optimal"
    """It can be restored, and is what would be compiled here."""

    RECOMPILE = "recompile"
    """It can be restored, but what is compiled here would be better."""

    UNSUPPORTED = "unsupported"
    """It must not be restored."""

    NOT_APPLICABLE = "not-applicable"
    """It is not this EP's."""


class CompatibilityCheck(ABC):
    """Tells whether what an EP compiled elsewhere, or before, can be restored here.

    Both methods look, as ``EpFactory.supported_devices`` does: no driver is loaded.
    """

    @abstractmethod
    def compatibility_info(self, device: EpDevice) -> str:
        """What partitions compiled for *device* depend on.

        Printable text for :meth:`check`; options are not in it, as the host compares
        these itself.
        """

    @abstractmethod
    def check(self, device: EpDevice, info: str) -> tuple[Compatibility, str]:
        """Whether what *info* is of can be restored on *device*.

        Args:
            info: of :meth:`compatibility_info`, perhaps in another version; it may also
                be damaged, or ONNX Runtime's.

        Returns:
            The answer and the reason, which is empty if it is ``OPTIMAL``.
        """
