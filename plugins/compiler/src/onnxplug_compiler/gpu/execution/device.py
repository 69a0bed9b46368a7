"""What an EP supplies for plans to run on a GPU: a device, its memory and its streams.

All else is the same for every EP.  The methods of a device that are given memory are
given its own, which types of arguments leave open (``Any``) for that reason.

*Memory is in the order of a stream.*  What is handed out for a stream may have been
used by work that was queued on it before, and has unspecified content.  It returns when
its object goes, whatever is still queued then: the device hands it out again for the
stream that it was used on, or for another one once all streams that used it are past
that use.  :meth:`DeviceStream.queue`, :meth:`DeviceStream.read` and
:meth:`Device.upload` are how a device learns of a use.  Which work waits for which is
not its business: the host lets streams wait for each other, by events.

*A captured stream* notes what is queued and read, and does none of it; what is noted
keeps the memory that it names, which nobody else gets before the graph is closed.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.render.dialect import Dialect

Consumer: TypeAlias = Callable[[np.ndarray[Any, np.dtype[np.uint8]]], None]
"""Takes bytes, which are there for as long as the call; it may raise."""


class Memory(Protocol):
    """Bytes on a device; they return to it when this object goes.

    One that an EP did not allocate, such as that of an array which was imported, keeps
    its owner.
    """

    @property
    def nbytes(self) -> int:
        """How many there are, at least as many as were asked for: a multiple of the
        device's alignment."""

    @property
    def serial(self) -> int:
        """Tells it from all other memory that is alive or was."""


class Launches(Record):
    """Launches of kernels and calls of libraries, ready to be queued, again and again.

    Attributes:
        steps: what :meth:`Device.launch` and :meth:`Device.engine_call` made, in order;
            each sees what those before it wrote.
        cleared: memory that is filled with zeros before.
        memories: all that they name, each once.
    """

    steps: tuple[Any, ...]
    cleared: Any | None
    memories: tuple[Any, ...]


class Copies(Record):
    """Copies on the device: from which memory to which, and how many bytes, from the
    beginning of both."""

    pairs: tuple[tuple[Any, Any, int], ...]


class KernelRefused(ValueError):
    """A device does not take a kernel, or a call of a library."""


class DeviceLost(ep.status_class(15)):  # type: ignore[misc]
    """A device was lost: its driver was reset or replaced, work took too long, or a
    kernel failed for good."""

    def of_nodes(self, nodes: Sequence[ep.Node]) -> DeviceLost:
        """The same, which says which nodes were run."""
        return type(self)(f"{named(nodes)}: {self}")


def named(nodes: Sequence[ep.Node]) -> str:
    """Nodes as messages say which were run: the first, and how many more."""
    more = f" and {len(nodes) - 1} others" if len(nodes) > 1 else ""
    return f"{describe(nodes[0])}{more}"


class DeviceStream(ep.Stream):
    """A stream of a :class:`Device`."""

    @property
    @abstractmethod
    def is_capturing(self) -> bool:
        """Whether work is noted instead of done."""

    @abstractmethod
    def queue(self, *work: Launches | Copies) -> None:
        """Queue *work*, in order, or note it.

        Raises:
            DeviceLost: the device is, or the one was that memory of *work* is of.
        """

    @abstractmethod
    def read(self, memory: Any, nbytes: int, consume: Consumer) -> None:
        """Have *consume* get the first bytes of *memory* as they are after what is
        queued here.

        It gets them at some time until whoever waits for the stream, for an event
        recorded afterwards, or for :meth:`synchronize_readbacks`, may go on; what it
        raises, they raise.  A capture has it called whenever the graph is launched.
        """

    @abstractmethod
    def upload(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Queue that *array*, which may change then, is written to *memory*.

        Raises:
            RuntimeError: the stream captures.
            DeviceLost: the device was lost.
        """

    @abstractmethod
    def synchronize_readbacks(self) -> None:
        """Wait for what is read back here, which raises what kernels found."""

    @abstractmethod
    def check_not_capturing(self, what: str) -> None:
        """Check that the stream is fit for what no capture notes.

        Args:
            what: a run that is captured does.

        Raises:
            RuntimeError: the stream captures; the capture fails, too.
        """

    @abstractmethod
    def timed(self, work: Launches) -> Sequence[tuple[int, int]]:
        """Queue *work* step by step and wait for it; of each step when it began, by
        ``time.perf_counter_ns``, and how many nanoseconds it took, by the device's own
        clock where it has one.  Not of a stream that captures.

        Raises:
            DeviceLost: the device was lost.
        """

    def read_array(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Have *array*, of whatever layout, filled from *memory* after what is queued
        here; see :meth:`read`.

        Raises:
            RuntimeError: the stream captures.
        """
        self.check_not_capturing("reads back what the host waits for")
        if array.nbytes:
            self.read(memory, array.nbytes, filling(array))

    def fetch(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Fill *array* from *memory* after what is queued here, and wait for that.

        Raises:
            RuntimeError: the stream captures.
        """
        self.read_array(memory, array)
        self.synchronize_readbacks()


@contextmanager
def on_stream(device: Device, stream: ep.Stream | None) -> Iterator[DeviceStream]:
    """*stream*; where there is none, one whose work is done when the context ends.

    Raises:
        Exception: what the work raised.
    """
    if stream is not None:
        assert isinstance(stream, DeviceStream)
        yield stream
        return
    own = device.new_stream()
    try:
        yield own
        own.synchronize()
    finally:
        own.close()


def filling(array: np.ndarray[Any, Any]) -> Consumer:
    """What fills *array*, of whatever layout, with the bytes of its elements."""

    def fill(content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        np.copyto(array, content.view(array.dtype).reshape(array.shape))

    return fill


class Device(Protocol):
    """A GPU, for all sessions of a process; ``str()`` says which in messages.

    What it is asked for after it was lost it refuses with :class:`DeviceLost`, unless
    it can be made anew: then it is another *generation*, and what was in its memory,
    and whatever was compiled for it, is gone.
    """

    @property
    def lock(self) -> threading.RLock:
        """Held while work is put together and queued, for memory that is handed out
        meanwhile not to be used by others in between."""

    @property
    def dialect(self) -> Dialect:
        """What its kernels are written in."""

    @property
    def alignment(self) -> int:
        """Bytes of which sizes of memory, and what is bound of it, are multiples."""

    @property
    def numbers_alignment(self) -> int:
        """Bytes by which the numbers of launches are apart, at least."""

    @property
    def most_buffers(self) -> int:
        """Buffers of a kernel, at most."""

    @property
    def most_groups(self) -> tuple[int, int]:
        """Workgroups of a launch along each of its two axes, at most."""

    @property
    def largest(self) -> int:
        """Bytes that a kernel binds of a buffer, at most."""

    @property
    def largest_buffer(self) -> int:
        """Bytes of an array, at most."""

    @property
    def generation(self) -> int:
        """How often it was made."""

    @property
    def array_type(self) -> type[Any]:
        """What its arrays are: :class:`~.array.DeviceArray`, or a class of that."""

    def identity(self) -> Mapping[str, Any]:
        """What all that is kept on disk for the device depends on, as JSON has it:
        versions, the device and its driver."""

    # loss

    def ensure(self) -> None:
        """Make the device anew if it was lost.

        Raises:
            RuntimeError: the driver gives none any more.
        """

    def has(self, memory: Any) -> bool:
        """Whether what was put into *memory* is there: of a device that was lost
        meanwhile it is not."""

    def lost(self) -> DeviceLost:
        """The error for what was lost with the device, and its remedy."""

    # memory

    def memory(
        self, nbytes: int, stream: DeviceStream | None = None, mode: str = ""
    ) -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Args:
            stream: what it is for; ``None``: for any, as constants are.  It is not
                handed out before all work that used it is done, or queued where the
                device has but one queue.
            mode: what becomes of it when nobody uses it: a word of the EP's options,
                or nothing for its default.

        Raises:
            MemoryError: there is none, or an array has no more than
                :attr:`largest_buffer`.  It says how much was asked for, and the remedy.
        """

    def used_bytes(self) -> int:
        """Of memory that somebody has, of all sessions."""

    def upload(
        self,
        memory: Any,
        array: np.ndarray[Any, Any],
        stream: DeviceStream | None = None,
    ) -> None:
        """Have the bytes of *array*, which may change then, written to *memory*, before
        what is queued on *stream* from now on.

        It is done, not noted, where *stream* captures: the memory is read by what is
        captured, and written by nothing else.

        Args:
            stream: ``None``: before what is queued on any.

        Raises:
            DeviceLost: the device is, or the one that *memory* is of.
        """

    # work

    def new_stream(self) -> DeviceStream:
        """A stream; whoever asked closes it when its work is done."""

    def kernel(self, text: str, written: Sequence[bool], lanes: int) -> Any:
        """The compiled form of a kernel; the same one for the same text.

        Args:
            text: in the device's dialect.
            written: which of its buffers it writes to.
            lanes: invocations of a workgroup.

        Raises:
            KernelRefused: it is not compiled, or the device does not take it.
        """

    def numbers(self, content: bytes) -> Any:
        """What launches of a program have their numbers from: all of these, one launch
        after the other.  A device that passes numbers by value returns *content*."""

    def launch(
        self,
        kernel: Any,
        numbers: Any,
        start: int,
        window: int,
        groups: tuple[int, int],
        buffers: Sequence[tuple[Any, int, int]],
    ) -> Any:
        """A launch that is ready to be queued, with :attr:`lock` held.

        Args:
            kernel: of :meth:`kernel`.
            numbers: of :meth:`numbers`.
            start, window: where those of this launch begin, and how many bytes a kernel
                sees, which may be a few more than it reads.
            groups: workgroups along both axes.
            buffers: memories in the order of the text's buffers, where what is bound
                of each begins, and how many bytes; 0 for as much as can be.

        Raises:
            DeviceLost: the device is, or the one that a memory is of.
        """

    def engine(self, call: Any, begins: Sequence[int], workspace: int) -> Any:
        """A library's plan for a call, which is done wherever memory is.

        Args:
            call: what an ``EngineCall`` has: the EP's own.
            begins: bytes from the beginnings of memories to the first elements of the
                command's views.
            workspace: bytes that it may use besides.

        Raises:
            KernelRefused: the library does not do it.
        """

    def engine_call(
        self,
        plan: Any,
        buffers: Sequence[tuple[Any, int, int]],
        workspace: Any | None,
    ) -> Any:
        """A call of a library that is ready to be queued, with :attr:`lock` held.

        Args:
            plan: of :meth:`engine`.
            buffers: memories in the order of the command's views, where the first
                element of each view is, and how many bytes from there on are there.
            workspace: memory of at least as many bytes as the command asks for;
                ``None`` if it asks for none.

        Raises:
            DeviceLost: the device is, or the one that a memory is of.
        """

    def close(self) -> None:
        """Give up all memory that nobody uses."""
