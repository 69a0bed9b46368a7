"""A run of a partition or kernel as a library sees it: inputs, and room for outputs."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from onnxplug import ep
from onnxplug_native.functions.allocator import host_allocator
from onnxplug_native.functions.devices import MemoryInfo
from onnxplug_native.functions.environment import NOT_CAPTURED, Logger
from onnxplug_native.functions.stream import SyncStream
from onnxplug_native.functions.tensor import (
    GIVEN,
    READY,
    Value,
    new_array,
)
from onnxplug_native.interface.arena import placed
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import put_pointer, put_size, sizes
from onnxplug_native.interface.throwing import guarded, require_not_thrown

if TYPE_CHECKING:
    from onnxplug_native.device import NativeStream

CONTEXT_TAG: Final = 0x6F6E6E78_63747831
"""What the memory of a context begins with."""


class ContextMemory(ctypes.Structure):
    """What lies at the address of a context, for compiled entries to read.

    Attributes:
        tag: :data:`CONTEXT_TAG` while the context lives.
        input_count: how many inputs.
        inputs: the addresses of their tensors; null for one that is left out.
        output_count: how many outputs.
        outputs: the addresses of their tensors.
        failed: not 0 if something went wrong in an entry that was called with it.
    """

    _fields_: ClassVar = [
        ("tag", ctypes.c_uint64),
        ("input_count", ctypes.c_size_t),
        ("inputs", ctypes.c_void_p),
        ("output_count", ctypes.c_size_t),
        ("outputs", ctypes.c_void_p),
        ("failed", ctypes.c_int64),
    ]


Allocate = Callable[[ep.DataType, tuple[int, ...]], Any]


class Notes:
    """What happened in a run, of one context or of several in a row.

    Attributes:
        failure: what went wrong in an entry that a library called.
        is_off_plan: something had another shape than was planned.
    """

    __slots__ = ("failure", "is_off_plan")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Let nothing have happened."""
        self.failure: Exception | None = None
        self.is_off_plan = False


class KernelContext(Handle):
    """Inputs and outputs of a run at a time; made once, for many runs.

    Attributes:
        inputs: the tensors; ``None`` for one that is left out.
        fed: the inputs that each run gives, and their places in what it is given.
        outputs: the tensors, without content before the library asks for room;
            ``None`` for one that nobody wants.
        bound: the array that the caller wants each output in, if any.
        notes: what happened in the run.
        allocate: what makes arrays for outputs.
        hosted: the places of outputs that are left on the host all the same.
        allocator: of the library's, for memory that is not the host's; 0 for none.
        stream: the stream that work is queued on; ``None`` if there is none.
        graph: the number under which the library is to capture the run.
        is_kept: what lies between its nodes stays; there is nothing.
    """

    graph = NOT_CAPTURED
    is_kept = True

    def __init__(
        self,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
        *,
        logger: logging.Logger | None = None,
        allocate: Allocate = new_array,
        notes: Notes | None = None,
    ) -> None:
        """Contexts may share tensors: the outputs of one may be inputs of another."""
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.fed: list[tuple[Value, int]] = []
        self._unbound: Sequence[Any | None] = (None,) * len(outputs)
        self.bound: Sequence[Any | None] = self._unbound
        self.notes = Notes() if notes is None else notes
        self.allocate = self._allocate = allocate
        self.hosted: Collection[int] = ()
        self.allocator = 0
        self.stream: SyncStream | None = None
        self._logger = None if logger is None else Logger(logger)
        self._arrays = [
            (ctypes.c_void_p * max(1, len(values)))(
                *(None if value is None else value.address for value in values)
            )
            for values in (self.inputs, self.outputs)
        ]
        self.memory = placed(
            ContextMemory,
            CONTEXT_TAG,
            len(self.inputs),
            ctypes.addressof(self._arrays[0]),
            len(self.outputs),
            ctypes.addressof(self._arrays[1]),
        )
        super().__init__(self.memory)

    @property
    def logger(self) -> Logger:
        """Where the library may log."""
        if self._logger is None:
            self._logger = Logger(logging.getLogger("onnxplug.session"))
        return self._logger

    def output(self, index: int, shape: tuple[int, ...]) -> Value | None:
        """The tensor of an output, with room for *shape*; ``None`` if nobody wants it.

        Raises:
            InterfaceError: there is no such output, or no such shape.
            OutputMismatch: the caller bound an array of another shape.
            OutOfMemory: there is no room.
        """
        if index >= len(self.outputs):
            raise InterfaceError(
                Code.INVALID_ARGUMENT,
                f"there is no output {index} of {len(self.outputs)}",
            )
        value = self.outputs[index]
        if value is None:
            return None
        memory = value.memory
        if memory.state & READY:
            if value.shape == shape:
                memory.state |= GIVEN
                return value
            self.notes.is_off_plan |= value.is_planned
        assert value.dtype is not None
        bound = self.bound[index]
        if bound is not None and tuple(bound.shape) != shape:
            raise ep.OutputMismatch(
                f"output {index} is of shape {list(shape)}, and the array bound to it "
                f"of shape {list(bound.shape)}; bind one like the output"
            )
        if bound is not None and takes(bound, value.dtype):
            value.set(bound)
        else:
            try:
                allocate = new_array if index in self.hosted else self.allocate
                value.set(allocate(value.dtype, shape))
            except MemoryError as error:
                raise ep.OutOfMemory.of(error, f"output {index}") from error
        memory.state |= GIVEN
        return value

    def feed(self, places: Sequence[int | None]) -> None:
        """Say which of the inputs a run gives, by their places in what it is given."""
        self.fed = [
            (value, place)
            for value, place in zip(self.inputs, places, strict=True)
            if value is not None and place is not None
        ]

    @property
    def failure(self) -> Exception | None:
        """What went wrong in an entry that a library called."""
        return self.notes.failure

    @property
    def unmade(self) -> int | None:
        """The first output that is wanted, and that the library asked no room for."""
        for index, value in enumerate(self.outputs):
            if value is not None and not value.memory.state & GIVEN:
                return index
        return None

    def bind(self, arrays: Sequence[Any | None]) -> None:
        """Let the library write to the arrays that the caller bound."""
        self.bound = arrays

    def queue_on(self, stream: NativeStream, allocate: Allocate) -> None:
        """Let the library queue its work on *stream*, for which *allocate* makes
        arrays."""
        self.stream, self.allocate = stream.handle, allocate

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Those of the outputs that are wanted."""
        return [value.shape for value in self.outputs if value is not None]

    def clear(self, *, failed: bool = False) -> None:
        """Forget the arrays of a run; weights stay."""
        for fed, _ in self.fed:
            fed.array = None
        for value in self.outputs:
            if value is not None:
                value.clear()
        self.clear_run()

    def clear_run(self) -> None:
        """Forget what a run said besides its arrays."""
        self.notes.clear()
        self.memory.failed = 0
        self.bound, self.stream = self._unbound, None
        self.allocate = self._allocate

    def release(self) -> None:
        """Release it and the tensors."""
        self.memory.tag = 0
        for value in (*self.inputs, *self.outputs, self._logger):
            if value is not None:
                value.release()
        super().release()


def values_of(dtypes: Sequence[ep.DataType | None]) -> list[Value | None]:
    """Tensors without content; ``None`` for one that is left out."""
    return [None if dtype is None else Value(dtype) for dtype in dtypes]


def takes(array: Any, dtype: ep.DataType) -> bool:
    """Whether a library can write where *array* lies."""
    flags = getattr(array, "flags", None)
    return flags is None or bool(
        flags.c_contiguous
        and flags.writeable
        and flags.aligned
        and array.dtype == dtype.numpy
        and dtype.bits >= 8
    )


@implements("KernelContext_GetInputCount")
def context_get_input_count(context: int, out: int) -> None:
    """How many inputs."""
    put_size(out, len(find(KernelContext, context).inputs))


@implements("KernelContext_GetOutputCount")
def context_get_output_count(context: int, out: int) -> None:
    """How many outputs."""
    put_size(out, len(find(KernelContext, context).outputs))


@implements("KernelContext_GetInput")
def context_get_input(context: int, index: int, out: int) -> None:
    """An input, which lives as long as the run; null for one that is left out."""
    inputs = find(KernelContext, context).inputs
    if index >= len(inputs):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no input {index} of {len(inputs)}"
        )
    put_pointer(out, inputs[index])


@implements("KernelContext_GetOutput")
def context_get_output(
    context: int, index: int, shape: int, rank: int, out: int
) -> None:
    """An output with room for a shape, which lives as long as the run."""
    found = find(KernelContext, context)
    try:
        value = found.output(index, sizes(shape, rank))
    except Exception as error:
        # a library may turn the status into one of its own, which says less
        found.notes.failure, found.memory.failed = error, 1
        raise
    put_pointer(out, value)


@implements("KernelContext_GetPreallocatedOutput")
def context_get_preallocated_output(context: int, index: int, out: int) -> None:
    """Null: a library that finds another shape than the host expects would have to say
    so, and some leave such an output unwritten instead."""
    outputs = find(KernelContext, context).outputs
    if index >= len(outputs):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no output {index} of {len(outputs)}"
        )
    put_pointer(out, None)


@implements("KernelContext_GetLogger")
def context_get_logger(context: int, out: int) -> None:
    """Where the library may log."""
    put_pointer(out, find(KernelContext, context).logger)


@implements("KernelContext_GetAllocator")
def context_get_allocator(context: int, memory: int | None, out: int) -> None:
    """The allocator of a kind of memory."""
    found = find(KernelContext, context)
    is_host = not memory or find(MemoryInfo, memory).place.is_host
    if not is_host and not found.allocator:
        raise InterfaceError(Code.NOT_FOUND, "nothing allocates such memory")
    put_pointer(out, host_allocator().address if is_host else found.allocator)


@implements("KernelContext_GetSyncStream")
def context_get_stream(context: int, out: int) -> None:
    """The stream that work is queued on; null if there is none."""
    put_pointer(out, find(KernelContext, context).stream)


@implements("KernelContext_GetGPUComputeStream")
def context_get_compute_stream(context: int, out: int) -> None:
    """What the device's own API calls that stream; null if there is none."""
    stream = find(KernelContext, context).stream
    put_pointer(out, None if stream is None else stream.native_handle)


@implements("KernelContext_ParallelFor")
def context_parallel_for(
    context: int, function: int, total: int, _: int, data: int | None
) -> None:
    """Call a function for each number up to *total*, in the calling thread."""
    find(KernelContext, context)
    if not function:
        raise InterfaceError(Code.INVALID_ARGUMENT, "the function is null")
    call = guarded(".", "pn", function)
    for index in range(total):
        call(data, index)
        require_not_thrown("what is done in parallel")


class NodeComputeContext(Handle):
    """What a library may ask when it makes the state of a partition.

    Attributes:
        name: the fused node's.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@implements("NodeComputeContext_NodeName", "OrtEpApi")
def compute_context_get_name(context: int) -> int:
    """The fused node's name."""
    found = find(NodeComputeContext, context)
    return found.text(found.name)
