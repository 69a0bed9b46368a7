"""A partition that a library has compiled, and its runs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound, usual_form
from onnxplug_native.device import NativeStream
from onnxplug_native.functions.environment import RunOptions
from onnxplug_native.functions.graph import ep_contiguous
from onnxplug_native.functions.kernel_context import (
    Allocate,
    KernelContext,
    NodeComputeContext,
    takes,
)
from onnxplug_native.functions.tensor import GIVEN, new_array
from onnxplug_native.interface.ending import call_begins, call_ends
from onnxplug_native.interface.status import raise_status

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure
    from onnxplug_native.provider import NativeProvider


class NativePartition(ep.CompiledPartition):
    """What a library runs of a graph: a context of inputs and outputs at a time.

    Runs may overlap: each takes a context that is idle, or makes another.
    """

    def __init__(self, provider: NativeProvider, partition: ep.Partition) -> None:
        self._provider = provider
        self.partition = partition
        self._who = f"{provider.factory.name} of {provider.factory.library.name}"
        self._inputs = [dtype_of(partition, each) for each in partition.inputs]
        # where arrays are the host's, those that libraries use where they lie
        self._dtypes = [
            dtype.numpy if provider.memory is None else None for dtype in self._inputs
        ]
        self._outputs = [dtype_of(partition, each) for each in partition.outputs]
        self._names = list(partition.outputs)
        self._shapes = [_static_shape(partition, each) for each in partition.outputs]
        self._is_static = None not in self._shapes
        self._last: tuple[Any, Any] | None = None
        self._memory = provider.memory
        self._allocate: Allocate = (
            new_array if provider.memory is None else provider.memory.allocate
        )
        self._notifies = [
            each for each in ("OnRunStart", "OnRunEnd") if provider.structure.has(each)
        ]
        self._turn: Any = contextlib.nullcontext()
        if not provider.is_concurrent:
            self.max_concurrent_runs = 1
            self._turn = provider.factory.library.turn
        self._idle: deque[KernelContext] = deque()
        self._is_closed = False

    def weight(self, name: str, is_hosted: bool = False) -> Any:
        """A constant, where the library's EP has its memory, or on the host."""
        array = ep_contiguous(self.partition.constant(name))
        if is_hosted or self._memory is None:
            return array
        return self._memory.moved(array)

    @abstractmethod
    def _make(self) -> KernelContext:
        """A context, with the weights in it.

        Raises:
            EPFail: the partition was closed.
        """

    @abstractmethod
    def _compute(self, context: int) -> int | None:
        """Let the library compute what the context at an address says; its status."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Compute; the GIL is released while the library does.

        Raises:
            OutputMismatch: a bound array is of another shape or type than its output.
            RunCancelled: the run was cancelled before it began.
            OnnxplugError: the library failed, and says why.
        """
        if context is not None and context.cancelled:
            raise ep.RunCancelled(f"the run was cancelled before {self._who} began")
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = self._make()
        try:
            return self._run(arguments, inputs, outputs, context)
        finally:
            arguments.clear()
            arguments.allocate = self._allocate
            self._idle.append(arguments)

    def _run(
        self,
        arguments: KernelContext,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        is_bound = False
        for each in outputs:  # which takes a third of the time of any()
            is_bound |= each is not None
        if is_bound:
            self._check(outputs)
            arguments.bound = outputs
        if self._memory is not None and context is not None:
            stream = context.stream
            if isinstance(stream, NativeStream):
                arguments.stream = stream.handle
                arguments.allocate = functools.partial(
                    self._memory.allocate, stream=stream
                )
        for value, place in arguments.fed:
            array, dtype = inputs[place], self._dtypes[place]
            value.set(array if dtype is None else usual_form(array, dtype))
        shapes: list[Any] | None = None
        expected = self._shapes if self._is_static else None
        if expected is None:
            shapes, last = [array.shape for array in inputs], self._last
            if last is not None and last[0] == shapes:
                expected = last[1]
        if expected is not None:
            self._expect(arguments, expected, outputs if is_bound else None)
        call_begins()
        try:
            with self._turn:
                if self._notifies:
                    status = self._notified(arguments)
                else:
                    status = self._compute(arguments.address)
        finally:
            call_ends()
        if status or arguments.failure is not None:
            self._fail(status, arguments.failure)
        results: list[Any] = []
        for output in arguments.outputs:
            if output is not None:
                if not output.memory.state & GIVEN:
                    self._fail_output(len(results))
                results.append(output.result())
        if shapes is not None and expected is None:
            # any thread's will do: it is no more than a guess
            self._last = shapes, [result.shape for result in results]
        return fill_bound(results, outputs) if is_bound else results

    def _check(self, outputs: Sequence[Any | None]) -> None:
        """Refuse arrays of other element types than the outputs.

        Raises:
            OutputMismatch: one is.
        """
        for wanted, bound in zip(self._outputs, outputs, strict=True):
            if bound is not None and bound.dtype != wanted.numpy:
                raise ep.OutputMismatch(
                    f"an output is {wanted}, and the array bound to it {bound.dtype}; "
                    "bind one like the output"
                )

    def _expect(
        self,
        arguments: KernelContext,
        shapes: Sequence[tuple[int, ...] | None],
        bound: Sequence[Any | None] | None,
    ) -> None:
        """Make room for outputs whose shapes are known, or were so the last time that
        inputs had the shapes that they have now."""
        for place, value in enumerate(arguments.outputs):
            shape, dtype = shapes[place], self._outputs[place]
            assert value is not None and shape is not None
            array = None if bound is None else bound[place]
            if array is None:
                value.set(arguments.allocate(dtype, shape))
            elif tuple(array.shape) == shape and takes(array, dtype):
                value.set(array)

    def _notified(self, arguments: KernelContext) -> Any:
        """Compute, with the library told that a run starts and ends."""
        options = RunOptions({})  # libraries do not say which they know
        structure = self._provider.structure
        try:
            if "OnRunStart" in self._notifies:
                structure.call("OnRunStart", options.address)
            status = self._compute(arguments.address)
            if "OnRunEnd" in self._notifies:
                structure.call("OnRunEnd", options.address, True)
            return status
        finally:
            options.release()

    def _fail_output(self, place: int) -> NoReturn:
        raise ep.EPFail(
            f"{self._who} did not compute the output {self._names[place]!r}"
        )

    def _fail(self, status: int | None, failure: Exception | None) -> None:
        """Raise what went wrong: in an entry of ours, or else in the library.

        A status that is none of ours is nothing to be followed, and says nothing.
        """
        try:
            raise_status(status, f"Compute of {self._who}")
        except ep.OnnxplugError as error:
            if failure is None:
                raise
            raise failure from error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Release the contexts."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().release()


class CompiledGroup(NativePartition):
    """Nodes that a library has compiled."""

    def __init__(
        self,
        provider: NativeProvider,
        compiled: Structure,
        partition: ep.Partition,
        inputs: Sequence[str],
        name: str,
    ) -> None:
        """*inputs* are what the library wants given in each run, weights among them.

        Raises:
            OnnxplugError: the library makes no state for runs.
        """
        super().__init__(provider, partition)
        self._compiled = compiled
        places = {name: place for place, name in enumerate(partition.inputs)}
        self._dtypes_given = [dtype_of(partition, each) for each in inputs]
        self._places = [places.get(each) for each in inputs]
        self._weights = {
            slot: self.weight(each)
            for slot, each in enumerate(inputs)
            if each not in places
        }
        self._address = compiled.address
        self._context = NodeComputeContext(name)
        self._state = ctypes.c_void_p()
        try:
            compiled.call(
                "CreateState", self._context.address, ctypes.addressof(self._state)
            )
            self._function = compiled.function("Compute")
        except BaseException:
            self._context.release()
            provider.release(compiled)
            raise

    def _make(self) -> KernelContext:
        if self._is_closed:
            raise ep.EPFail(f"a partition of {self._who} was closed")
        made = KernelContext(self._dtypes_given, self._outputs, allocate=self._allocate)
        made.feed(self._places)
        for slot, array in self._weights.items():
            value = made.inputs[slot]
            assert value is not None
            value.set(array)
        return made

    def _compute(self, context: int) -> int | None:
        status: int | None = self._function(self._address, self._state, context)
        return status

    def close(self) -> None:
        """Release the state of runs, and what was compiled."""
        if self._is_closed:
            return
        super().close()
        if self._compiled.has("ReleaseState"):
            self._compiled.call("ReleaseState", self._state)
        self._context.release()
        self._provider.release(self._compiled)


def dtype_of(partition: ep.Partition, name: str) -> ep.DataType:
    """The element type of a tensor, which is known."""
    dtype = partition.value(name).dtype
    assert dtype is not None, name
    return dtype


def _static_shape(partition: ep.Partition, name: str) -> tuple[int, ...] | None:
    """The shape of a value, if all of it is known."""
    shape = partition.value(name).shape
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return None if shape is None or len(sizes) < len(shape) else sizes
