"""Commands before they have addresses: the buffers and words that they are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.codegen.kernel import Kernel

if TYPE_CHECKING:
    from onnxplug import ep

MAX_CHUNKS: Final = (1 << 24) - 1
"""Chunks of one command at most."""


class Block(Record):
    """Memory that lives as long as this object, or a view of its array.

    Attributes:
        array: the bytes.
        address: of the first, a multiple of :data:`~..runtime.arena.ALIGNMENT`, and
            of :data:`~..runtime.arena.HUGE_PAGE` in a large block.
        nbytes: how many.
    """

    array: np.ndarray[Any, np.dtype[np.uint8]]
    address: int
    nbytes: int


class Buffer:
    """Memory that commands read or write, *nbytes*.  Identity is what counts."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Temporary(Buffer):
    """A place in the program's arena, 64-byte aligned, alive from the first command
    that names it to the last."""

    __slots__ = ()


class Input(Buffer):
    """What the caller passes at *position*: C-contiguous, never written."""

    __slots__ = ("position",)

    def __init__(self, position: int, nbytes: int) -> None:
        super().__init__(nbytes)
        self.position = position


class Output(Buffer):
    """What the caller receives at *position*: C-contiguous; overlaps no input."""

    __slots__ = ("position",)

    def __init__(self, position: int, nbytes: int) -> None:
        super().__init__(nbytes)
        self.position = position


class Constant(Buffer):
    """An array in C order that the program keeps and never writes.

    Args:
        nbytes: its size.
        load: gives the array when it is first needed.
        key: tells it from other constants of the session for good; ``None`` if only
            the array's identity does.
        find_source: tells it from constants of other sessions; ``None`` if nothing
            does.
    """

    __slots__ = ("_address", "_array", "_load", "find_source", "key")

    def __init__(
        self,
        nbytes: int,
        load: Callable[[], np.ndarray[Any, Any]],
        key: Hashable | None = None,
        find_source: Callable[[], ep.WeightSource | None] | None = None,
    ) -> None:
        super().__init__(nbytes)
        self.find_source = find_source
        self._load = load
        self._array: np.ndarray[Any, Any] | None = None
        self._address: int | None = None
        self.key = key

    @property
    def address(self) -> int:
        """The address of the content, which stays in memory from now on."""
        if self._address is None:
            self._address = int(self.array.__array_interface__["data"][0])
        return self._address

    def another(self) -> Constant:
        """The same constant, whose content may be in memory for another time."""
        return Constant(self.nbytes, self._load, self.key, self.find_source)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The content, which stays in memory from now on."""
        if self._array is None:
            array = self._load()
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            self._array = array
        return self._array


Acceptance: TypeAlias = "Callable[[np.ndarray[Any, np.dtype[np.uint8]]], bool]"
"""Looks at the bytes of a packed constant."""


class Packed(Buffer):
    """A constant in a layout of its own, filled once, before its first use.

    Attributes:
        fill: commands over this buffer and constants that write all of it; none when
            they are done.
        source: the constant that they pack; ``None`` then, too.
        lock: held while that is done.
        memory: the bytes once they are there, and their address.
        accepts: whether the bytes may be used, which may depend on the constant; always
            if it is ``None``.
        refused: that they may not; there is no memory then, and will be none.
    """

    __slots__ = ("accepts", "fill", "lock", "memory", "refused", "source")

    def __init__(self, nbytes: int, accepts: Acceptance | None = None) -> None:
        super().__init__(nbytes)
        self.source: Constant | None = None
        self.fill: tuple[Command, ...] = ()
        self.lock: Final = new_rlock()
        self.memory: Block | None = None
        self.accepts = accepts
        self.refused = False

    @property
    def address(self) -> int:
        """The address of the bytes, which are there."""
        assert self.memory is not None
        return self.memory.address


class Flag(Buffer):
    """An i64 that is 0 when a run begins; another value at its end fails the run."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(8)


class Check(Record):
    """What to look at after a run.

    Attributes:
        flag: where a command may have written.
        error: makes the exception to raise from what was written.
        nodes: indices of the graph's nodes whose commands write it.
    """

    flag: Flag
    error: Callable[[int], Exception]
    nodes: tuple[int, ...]


class Address(Record):
    """A word: the address of a byte of a buffer."""

    buffer: Buffer
    offset: int = 0


class Code(Record):
    """A word: the address of a kernel's function."""

    kernel: Kernel


class Words(Record):
    """A word: the address of more words, such as another kernel's."""

    words: tuple[Word, ...]


Word: TypeAlias = int | Address | Code | Words


class Command(Record):
    """A call of a kernel for every chunk from 0 to *chunks*, on any threads.

    Commands run in order; all chunks of one end before the next begins.

    Attributes:
        label: what the command does, for profiles: ``MatMul 128×768×3072 + Gelu``.
        flops: floating-point operations, or 0 when memory is what counts.
        nbytes: bytes that must be read and written at least.
        nodes: indices of the graph's nodes that it computes.
        note: what is to be said of how it does that.
    """

    kernel: Kernel
    words: tuple[Word, ...]
    chunks: int
    label: str
    flops: int
    nbytes: int
    nodes: tuple[int, ...]
    note: str = ""


LONGEST_CHUNK: Final = 20e-3
"""Seconds that a chunk should take at most, for a run ends between chunks only when it
is cancelled or interrupted."""


def fewest_chunks(seconds: float) -> int:
    """Into how many chunks to divide a command at least, if it can be divided.

    Args:
        seconds: about how long it takes one thread.
    """
    return min(max(1, int(seconds / LONGEST_CHUNK)), MAX_CHUNKS)


BYTES_PER_SECOND: Final = 8e9
"""What one thread reads from memory, about."""


CHUNK: Final = 20e-6
"""Seconds that a chunk should take at least, if each worker has one: long beside a
claim."""

SHORTEST_CHUNK: Final = 3e-6
"""The same of the only chunk of a worker: long beside the start of a job."""

CHUNKS_PER_WORKER: Final = 4
"""For the work of a worker that the system puts aside to go to others."""


def chunks_for(seconds: float, workers: int) -> int:
    """Into how many chunks to divide a command, if it can be divided: as many for each
    worker, so that none waits for another's.

    Args:
        seconds: about how long it takes one thread.
        workers: how many threads there are.
    """
    if workers < 2 or seconds < workers * SHORTEST_CHUNK:
        return fewest_chunks(seconds)
    each = min(CHUNKS_PER_WORKER, max(1, round(seconds / (workers * CHUNK))))
    return max(workers * each, fewest_chunks(seconds))
