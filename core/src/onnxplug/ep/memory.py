"""Where values live, and what moves them.

An *array* is a numpy array on the host, of native byte order and of any layout that
numpy allows: an EP that hands its address to native code makes it contiguous first.
Elsewhere it is of whatever type the location's device context makes; it has at least
``shape``, a sequence of int.  Its element type is what
:meth:`~onnxplug.ep.DeviceContext.data_type` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.fact import ordered_fact

if TYPE_CHECKING:
    from onnxplug.ep.streams import Stream
    from onnxplug.ep.types import DataType


@ordered_fact()
class MemoryLocation:
    """A memory space.  Equal locations need no copy between them.

    Attributes:
        space: ``host``, or the name of the device memory (``cuda``).
        ordinal: which device, counted from 0.
        host_accessible: numpy can read and write it in place; not compared.
    """

    space: str = "host"
    ordinal: int = 0
    host_accessible: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.space if self.space == "host" else f"{self.space}:{self.ordinal}"


HOST: Final = MemoryLocation("host", 0, True)
"""Ordinary memory, read and written by numpy."""


class Allocator(ABC):
    """Makes arrays in one memory.  Called from any thread.

    An array's memory is free again when the array is destroyed, in any thread.  That
    may be before work queued on *its* stream has run, so memory is handed out again in
    the order of that stream; while work on another stream may use an array, the host
    keeps it.
    """

    @abstractmethod
    def empty(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None = None
    ) -> Any:
        """A new array of unspecified content, usable by work queued on *stream*.

        Args:
            stream: ``None``: the array is usable at once, in any order.  If it is
                capturing, the memory belongs to the captured graph until that is
                closed.

        Raises:
            MemoryError: there is not enough memory.
        """


class DataTransfer(ABC):
    """Copies between memory locations, one of which is its device context's.

    Called from any thread.
    """

    @abstractmethod
    def can_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """Whether :meth:`copy` works between these locations."""

    def needs_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """(optional) Whether arrays in *source* cannot be used in *target* as they are.

        Defaults to: unless the locations are equal, or numpy can use both.
        """
        return source != target and not (
            source.host_accessible and target.host_accessible
        )

    @abstractmethod
    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: Stream | None) -> None:
        """Fill the second array of each pair from the first, of equal shape and dtype.

        With a *stream* the copies are queued on it, and the arrays may be used before
        it is synchronised only by work on that stream; the caller keeps arrays of host
        memory alive until then.  With ``None`` they are done when the call returns.
        """
