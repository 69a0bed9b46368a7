"""What a program consists of before it has addresses: buffers, views and commands.

Operations record commands over buffers; :mod:`~onnxplug_cpu.compiler.arena` then places
the temporary ones, and :mod:`~onnxplug_cpu.compiler.program` gives words their values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.ep.bounds import OutOfBounds, sizes
from onnxplug.ep.bounds import permutation as checked_permutation
from onnxplug.ep.locks import new_rlock
from onnxplug.ep.record import Record
from onnxplug_cpu.compiler.arena import Block
from onnxplug_cpu.compiler.isa import Isa
from onnxplug_cpu.compiler.kernel import Kernel
from onnxplug_cpu.compiler.pool import MAX_CHUNKS

if TYPE_CHECKING:
    from onnxplug import ep


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which numpy puts together each time


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

    __slots__ = ("_array", "_load", "find_source", "key")

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
        self.key = key

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
    """

    kernel: Kernel
    words: tuple[Word, ...]
    chunks: int
    label: str
    flops: int
    nbytes: int
    nodes: tuple[int, ...]


LONGEST_CHUNK: Final = 20e-3
"""Seconds that a chunk should take at most, for a run ends between chunks only when it
is cancelled or interrupted."""


def fewest_chunks(seconds: float) -> int:
    """Into how many chunks to divide a command at least, if it can be divided.

    Args:
        seconds: about how long it takes one thread.
    """
    return max(1, int(seconds / LONGEST_CHUNK))


class View:
    """An array somewhere in a buffer, none of whose elements lies outside.

    That is checked whenever a view is made, so no command that addresses elements of
    its views leaves their buffers, whatever a model asks for.

    Attributes:
        buffer: the memory.
        offset: bytes from its start to element 0.
        dtype: the elements' numpy dtype (``ml_dtypes`` included).
        shape: sizes.
        strides: in elements, 0 where the array is broadcast.

    Raises:
        OutOfBounds: a size is negative, or an element lies outside the buffer.
    """

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.buffer: Final = buffer
        self.offset: Final = offset
        self.dtype: Final = dtype
        self.shape: Final = shape
        self.strides: Final = strides
        low = high = 0  # the first and the last element, in elements from element 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size < 1:
                sizes(self.shape)
                return  # no elements, which are nowhere
            if stride > 0:
                high += (size - 1) * stride
            elif stride:
                low += (size - 1) * stride
        itemsize = self.dtype.itemsize
        first = self.offset + low * itemsize
        if first < 0 or self.offset + (high + 1) * itemsize > self.buffer.nbytes:
            raise OutOfBounds(
                f"elements of shape {list(self.shape)} and strides "
                f"{list(self.strides)} from byte {self.offset} on lie outside "
                f"a buffer of {self.buffer.nbytes} bytes"
            )

    @classmethod
    def contiguous(
        cls,
        buffer: Buffer,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        offset: int = 0,
    ) -> View:
        """A whole array in C order."""
        shape = tuple(shape)
        return cls(buffer, offset, dtype, shape, c_strides(shape))

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def dtype_name(self) -> str:
        """numpy's name of the dtype."""
        return _name_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, each counted once."""
        return self.size * self.dtype.itemsize

    @property
    def address(self) -> Address:
        """The address of element 0."""
        return Address(self.buffer, self.offset)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow each other in C order."""
        expected = 1
        for size, stride in zip(
            reversed(self.shape), reversed(self.strides), strict=True
        ):
            if size != 1:
                if stride != expected:
                    return self.size == 0
                expected *= size
        return True

    def transpose(self, permutation: Sequence[int]) -> View:
        """The axes in another order.

        Raises:
            OutOfBounds: it is no permutation of the axes.
        """
        order = checked_permutation(permutation, len(self.shape))
        return self._with(
            tuple(self.shape[axis] for axis in order),
            tuple(self.strides[axis] for axis in order),
        )

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """The view repeated, as numpy does.

        Raises:
            ValueError: the shape does not allow it.
        """
        shape = tuple(shape)
        if shape == self.shape:
            return self
        lead = len(shape) - len(self.shape)
        if lead < 0 or any(
            size not in (1, wanted)
            for size, wanted in zip(self.shape, shape[lead:], strict=True)
        ):
            raise ValueError(f"{self.shape} does not broadcast to {shape}")
        strides = [0] * lead + [
            0 if size == 1 and wanted != 1 else stride
            for size, wanted, stride in zip(
                self.shape, shape[lead:], self.strides, strict=True
            )
        ]
        return self._with(shape, tuple(strides))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; ``None`` if that needs a copy.

        Raises:
            OutOfBounds: the shape has more elements, or fewer.
        """
        shape = tuple(shape)
        if math.prod(shape) != self.size:
            raise OutOfBounds(f"{self.shape} does not reshape to {shape}")
        if self.is_contiguous:
            return self._with(shape, c_strides(shape))
        strides = _reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else self._with(shape, strides)

    def slice(
        self,
        starts: Sequence[int],
        sizes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> View:
        """Along each axis *sizes* elements from *starts* by *steps* (not 0).

        Raises:
            OutOfBounds: they are not all elements of this view.
        """
        steps = steps or [1] * len(self.shape)
        for start, size, step, extent in zip(
            starts, sizes, steps, self.shape, strict=True
        ):
            last = start + (size - 1) * step
            if size and not (0 <= start < extent and 0 <= last < extent):
                raise OutOfBounds(
                    f"{size} elements from {start} by {step} are not among {extent}"
                )
        begin = sum(a * s for a, s in zip(starts, self.strides, strict=True))
        return View(
            self.buffer,
            self.offset + begin * self.dtype.itemsize,
            self.dtype,
            tuple(sizes),
            tuple(s * step for s, step in zip(self.strides, steps, strict=True)),
        )

    def _with(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        return View(self.buffer, self.offset, self.dtype, shape, strides)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array in C order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of *wanted* over the elements of a strided array, if there are any.

    Both shapes are cut into the shortest groups of axes of equal size; within a group
    of the old axes the elements must be evenly spaced.
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = axis = 0
    while axis < len(wanted):
        if wanted[axis] == 1:
            result.append(0)
            axis += 1
            continue
        if position == len(old):
            return None
        first, last = position, axis
        have, want = old[position][0], wanted[axis]
        while have != want:
            if have < want:
                position += 1
                if position == len(old):
                    return None
                have *= old[position][0]
            else:
                last += 1
                if last == len(wanted):
                    return None
                want *= wanted[last]
        for before in range(first, position):
            size, stride = old[before + 1]
            if old[before][1] != size * stride:
                return None
        stride = old[position][1]
        group: list[int] = []
        for size in reversed(wanted[axis : last + 1]):
            group.append(stride)
            stride *= size
        result.extend(reversed(group))
        position += 1
        axis = last + 1
    return tuple(result)


PackedConstants: TypeAlias = dict[tuple[Hashable, str], tuple[Any, Packed]]
"""Constants that some plan packed, by the constant's key and the layout's name.

Where the key is the identity of an array, the array is there too, which keeps its
identity from being used again.
"""


class Recorder:
    """Collects the commands of one plan.

    Attributes:
        isa: the processor to generate for.
        workers: how many threads will run the commands, for the number of chunks.
        commands: what was recorded.
        checks: what to look at after a run.
        nodes: indices of the nodes that are being recorded.
        may_split: whether products of float32 may be computed from bfloat16 terms;
            asked only where that is of use.
    """

    def __init__(
        self,
        isa: Isa,
        workers: int,
        packed: PackedConstants | None = None,
        may_split: Callable[[], bool] = bool,
    ) -> None:
        self.isa = isa
        self.workers = workers
        self.commands: list[Command] = []
        self.checks: list[Check] = []
        self.nodes: tuple[int, ...] = ()
        self.may_split = may_split
        self._packed = {} if packed is None else packed

    def temporary(self, dtype: np.dtype[Any], shape: Sequence[int]) -> View:
        """A new array in the arena, its content undefined."""
        nbytes = math.prod(shape) * dtype.itemsize
        return View.contiguous(Temporary(nbytes), dtype, shape)

    def scratch(self, nbytes: int) -> tuple[Address, int]:
        """*nbytes* for each worker: the first one's address, and the distance between
        two workers', which is what a kernel multiplies with its worker's number."""
        distance = -(-nbytes // 64) * 64
        return Address(Temporary(distance * self.workers)), distance

    def constant(self, array: np.ndarray[Any, Any]) -> View:
        """A constant array."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        buffer = Constant(array.nbytes, lambda: array)
        return View.contiguous(buffer, array.dtype, array.shape)

    def packed(
        self,
        source: View,
        layout: str,
        nbytes: int,
        record: Callable[[Recorder, Address], None],
        accepts: Acceptance | None = None,
    ) -> Address:
        """A constant in another layout, packed once for all plans of a session.

        Args:
            source: a view of a constant; how it is strided is part of *layout*.
            layout: names the layout, with all its parameters, among those of a
                session; the :func:`~.packed_layout.layout_name` does so among all.
            nbytes: the size of the packed form.
            record: records the commands that write it, given its address.
            accepts: whether the packed form may be used; where it may not, the plan
                is made anew, and :meth:`is_refused` says so then.
        """
        key, array = self._packed_key(source, layout)
        if key not in self._packed:
            buffer = Packed(nbytes, accepts)
            filling = Recorder(self.isa, self.workers, self._packed)
            record(filling, Address(buffer))
            buffer.fill = tuple(filling.commands)
            assert isinstance(source.buffer, Constant)
            buffer.source = source.buffer
            self._packed[key] = (array, buffer)
        return Address(self._packed[key][1])

    def is_refused(self, source: View, layout: str) -> bool:
        """Whether that form of a constant was packed, and not accepted."""
        key, _ = self._packed_key(source, layout)
        return key in self._packed and self._packed[key][1].refused

    def _packed_key(
        self, source: View, layout: str
    ) -> tuple[tuple[Hashable, str], np.ndarray[Any, Any] | None]:
        """The key of a packed constant, and the array if the key is its identity."""
        constant = source.buffer
        if not isinstance(constant, Constant):
            raise TypeError("only constants are packed")
        if constant.key is not None:
            return (constant.key, layout), None
        return (id(constant.array), layout), constant.array

    def check(self, error: Callable[[int], Exception]) -> Address:
        """The address of a new :class:`Flag`, for a kernel that may find an error.

        Any chunk may write it at any time, so one that was found, not always the
        first, is reported; results of a run that fails are not used.

        Args:
            error: makes the exception from what the kernel wrote, never 0.
        """
        flag = Flag()
        self.checks.append(Check(flag, error, self.nodes))
        return Address(flag)

    def part(self) -> Recorder:
        """A recorder of commands that are to be made into one of this recorder's."""
        part = Recorder(self.isa, self.workers, self._packed, self.may_split)
        part.nodes, part.checks = self.nodes, self.checks
        return part

    def call(
        self,
        kernel: Kernel,
        words: dict[str, Word],
        *,
        chunks: int = 1,
        label: str = "",
        flops: int = 0,
        nbytes: int = 0,
    ) -> None:
        """Record a command; *words* are by name, in any order.

        Raises:
            ValueError: other words than the kernel's, or too many chunks.
        """
        if words.keys() != set(kernel.words):
            raise ValueError(
                f"{kernel.key} takes the words {sorted(kernel.words)}; "
                f"got {sorted(words)}"
            )
        if not 0 <= chunks <= MAX_CHUNKS:
            raise ValueError(
                f"{label or kernel.key} has {chunks} chunks; expected 0 to {MAX_CHUNKS}"
            )
        if chunks == 0:
            return
        ordered = tuple(words[name] for name in kernel.words)
        self.commands.append(
            Command(kernel, ordered, chunks, label, flops, nbytes, self.nodes)
        )
