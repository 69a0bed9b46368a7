"""A device's memory and streams, shared by all EPs and sessions of a process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from onnxplug.ep.types import DataType

if TYPE_CHECKING:
    from onnxplug.ep.memory import Allocator, DataTransfer, MemoryLocation
    from onnxplug.ep.streams import GraphCapture, Stream


class MemoryKind(StrEnum):
    """What an allocator makes arrays of."""

    DEVICE = "device"
    """The context's own memory."""

    PINNED = "pinned"
    """Memory of the host that the device copies to and from while the host goes on;
    its arrays are numpy's."""


class DeviceContext(ABC):
    """One memory location: what makes arrays there, copies them, and queues work.

    The factory that owns the location's space makes it when it is first needed.  All
    EPs that work there get the same one from the host, by
    :meth:`onnxplug.ep.SessionContext.context`.  Called from any thread.

    The host closes it when nothing uses it any more: no session that is open has an EP
    that asked for it, or values there, and no ``OrtValue``, binding or captured graph
    is left.  What is used later gets a new one, which is made when this one is closed.
    It stays until its EP is unregistered, or the process ends, if its maker says so
    (:attr:`MemorySpaces.keeps_contexts`), or if an array of it was given to
    another library by DLPack, whose use the host cannot see.  It is closed before the
    factory is.
    """

    location: MemoryLocation
    """Where it is."""

    native_handle: int = 0
    """What the device's own API calls it, such as a ``CUcontext``; 0 for none."""

    dlpack_device: tuple[int, int] | None = None
    """DLPack's type and number of the device; ``None``: its arrays have no
    ``__dlpack__``."""

    transfer: DataTransfer
    """What copies from here, to here and within."""

    capture: GraphCapture | None = None
    """What captures work on its streams, for EPs that are guests here and whose options
    ask for it; ``None``: nothing does."""

    @abstractmethod
    def allocator(self, kind: MemoryKind) -> Allocator | None:
        """What makes arrays here, always the same; ``None``: there is no such memory.

        A location that is ``host_accessible`` need not make any.
        """

    @property
    def live_bytes(self) -> int | None:
        """(optional) How much of the context's own memory is in use, in bytes.

        That of arrays which are not garbage, and of what EPs and captured graphs hold
        besides; not what is kept to be handed out again.  It may count more than was
        asked for, as memory comes in pages.  ``None``: nobody counts.
        """
        return None

    def create_stream(self) -> Stream | None:
        """(optional) A new stream, which the host closes.

        Defaults to ``None``: the work of ``run`` and copies is done when they return.
        """
        return None

    def adopt_stream(self, handle: int) -> Stream:
        """(optional) A stream that the user made, by its native handle.

        Its ``close`` leaves the user's stream open.

        Raises:
            LookupError: there is no such stream.
        """
        raise NotImplementedError

    def data_type(self, array: Any) -> DataType:
        """The element type of *array*, which is here.

        Defaults to what its ``dtype`` is as a dtype of numpy's.
        """
        return DataType.from_numpy(array.dtype)

    def from_dlpack(self, capsule: Any) -> Any:
        """(optional) An array that shares the memory of a DLPack capsule.

        The capsule's work is ordered before the stream that it was asked for.
        """
        raise NotImplementedError

    def stack(self, arrays: Sequence[Any], axis: int, stream: Stream | None) -> Any:
        """(optional) A new array of *arrays*, which are of one shape, along a new axis.

        For outputs that Scan and Loop gather.  By default the host copies them and
        stacks there.

        Args:
            axis: not negative, at most the rank of the arrays.
        """
        return NotImplemented

    def take(self, array: Any, axis: int, index: int, stream: Stream | None) -> Any:
        """(optional) The part of *array* at *index* of *axis*, without that axis.

        For inputs that Scan goes through; a view or a copy.  By default the host
        copies the array and takes the part there.
        """
        return NotImplemented

    def close(self) -> None:
        """(optional) Release the device.

        Called once, when its streams are closed, from any thread, also as garbage is
        collected: it must take no lock that is held where a context is asked for, and
        ask for none of its own location.  What it raises is logged.
        """
        return None


class MemorySpaces(ABC):
    """The memories that an EP owns: the spaces, such as ``cuda``, whose contexts it
    makes.

    No two EPs own one.  An EP in a space of another's gets the context from the host.
    """

    owned: frozenset[str] = frozenset()
    """The spaces that are its own."""

    spare: frozenset[str] = frozenset()
    """Those whose contexts it makes where no EP that can be loaded owns them; of
    several such EPs the first by name does.  The EP has to work in a context of
    another's as well."""

    keeps_contexts: bool = False
    """Its contexts stay open when nothing uses them any more, until the EP is
    unregistered or the process ends: where making one takes long, or what the EP's
    factory holds refers to them."""

    @abstractmethod
    def create_context(self, location: MemoryLocation) -> DeviceContext:
        """The context of *location*, in one of :attr:`owned` or of :attr:`spare`.

        Called when the location is first used, and again when it is after the context
        was closed; never while there is one.

        Raises:
            LookupError: there is no such device.
        """
