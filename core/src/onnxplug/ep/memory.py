"""Where values live, and what moves them.

An *array* is a numpy array on the host, of native byte order and of any layout that
numpy allows: an EP that hands its address to native code makes it contiguous first.
Elsewhere it is the EP's own type, which has at least ``shape`` (a tuple of int) and
``dtype`` (a numpy dtype).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onnxplug.ep.types import DataType


@dataclass(frozen=True, slots=True)
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


class Stream(ABC):
    """An ordered queue of work on a device.

    Work on one stream runs in order; work on two runs in any order unless one waits.
    The host makes one stream per run and location, and uses it from one thread.
    """

    @abstractmethod
    def wait(self, other: Stream) -> None:
        """Let work queued here from now on start only after *other*'s present work.

        *other* was made by the same factory.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until all work queued here is done.

        Raises what the work raised.
        """

    def close(self) -> None:
        """Release the stream; called once, after a last ``synchronize``."""
        return None


class Allocator(ABC):
    """Makes arrays in one memory location.  Called from any thread.

    An array's memory is free again when the array is destroyed.  That may be before
    work queued on its stream has run, so memory is handed out again in stream order.
    """

    @abstractmethod
    def empty(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None = None
    ) -> Any:
        """A new array of unspecified content, usable by work queued on *stream*.

        Raises:
            MemoryError: there is not enough memory.
        """


class DataTransfer(ABC):
    """Copies between the memory locations that one factory knows."""

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
