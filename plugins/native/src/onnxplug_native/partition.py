"""A partition that a library runs, whatever it made of it."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound, usual_form
from onnxplug_native.capture import MOST_RUNS, DoneStream, Trial, is_captured
from onnxplug_native.device import NativeStream
from onnxplug_native.functions.environment import (
    GRAPH_ID,
    NOT_CAPTURED,
    RunOptions,
)
from onnxplug_native.functions.graph import ep_contiguous
from onnxplug_native.functions.kernel_context import Allocate
from onnxplug_native.functions.tensor import Value, new_array
from onnxplug_native.interface.ending import call_begins, call_ends
from onnxplug_native.interface.status import raise_status

if TYPE_CHECKING:
    from onnxplug_native.capture import NativeCapture
    from onnxplug_native.provider import NativeProvider


class Arguments(Protocol):
    """What a library is given in a run: one at a time, made once for many.

    Attributes:
        fed: the tensors that each run gives, and their places in what it is given.
        failure: what went wrong in an entry that the library called.
        shapes: those of all that the library made.
        graph: the number under which the library is to capture the run.
        is_kept: what lies between its nodes stays until it is released.
    """

    fed: list[tuple[Value, int]]
    graph: int

    @property
    def is_kept(self) -> bool: ...

    @property
    def failure(self) -> Exception | None: ...

    @property
    def shapes(self) -> list[tuple[int, ...]]: ...

    def bind(self, arrays: Sequence[Any | None], /) -> None:
        """Let the library write to the arrays that the caller bound."""

    def queue_on(self, stream: NativeStream, allocate: Allocate) -> None:
        """Let the library queue its work on a stream."""

    def clear(self, *, failed: bool = False) -> None:
        """Forget the arrays of a run."""

    def release(self) -> None:
        """Release all of it."""


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
        self._capture = provider.capture
        self._notifies = [
            each for each in ("OnRunStart", "OnRunEnd") if provider.structure.has(each)
        ]
        self._options = provider.run_options
        self._turn: Any = contextlib.nullcontext()
        if not provider.is_concurrent:
            self.max_concurrent_runs = 1
            self._turn = provider.factory.library.turn
        self._idle: deque[Arguments] = deque()
        self._is_closed = False

    def weight(self, name: str, is_hosted: bool = False) -> Any:
        """A constant, where the library's EP has its memory, or on the host."""
        array = ep_contiguous(self.partition.constant(name))
        if is_hosted or self._memory is None:
            return array
        return self._memory.weight(array)

    @abstractmethod
    def _make(self) -> Arguments:
        """What a run at a time is given, with the weights in it.

        Raises:
            EPFail: the partition was closed.
        """

    @abstractmethod
    def _compute(self, arguments: Any) -> int | None:
        """Let the library compute; the status that it returned."""

    @abstractmethod
    def _expect(
        self,
        arguments: Any,
        shapes: Sequence[Any],
        bound: Sequence[Any | None] | None,
    ) -> None:
        """Make room for what is made.

        Args:
            shapes: those that are known, or those that ``arguments.shapes`` were the
                last time that inputs had the shapes that they have now.
            bound: what the caller wants outputs in.
        """

    @abstractmethod
    def _results(self, arguments: Any) -> list[Any]:
        """The outputs.

        Raises:
            EPFail: the library made not all of them.
        """

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
        if self._capture is not None and is_captured(context):
            return self._captured(inputs, outputs, context, self._capture)
        try:
            arguments = self._idle.pop()
        except IndexError:
            arguments = self._make()
        failed = True
        try:
            results = self._run(arguments, inputs, outputs, context)
            failed = False
            return results
        finally:
            arguments.clear(failed=failed)
            self._idle.append(arguments)

    def _run(
        self,
        arguments: Arguments,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
        known: Sequence[Any] | None = None,
    ) -> Sequence[Any]:
        """Compute with *arguments*.

        Args:
            known: what ``arguments.shapes`` are to be.
        """
        is_bound = False
        for each in outputs:  # which takes a third of the time of any()
            is_bound |= each is not None
        if is_bound:
            self._check(outputs)
            arguments.bind(outputs)
        if self._memory is not None and context is not None:
            stream = context.stream
            if isinstance(stream, NativeStream):
                allocate = functools.partial(self._memory.allocate, stream=stream)
                arguments.queue_on(stream, allocate)
        for value, place in arguments.fed:
            array, dtype = inputs[place], self._dtypes[place]
            value.set(array if dtype is None else usual_form(array, dtype))
        shapes: list[Any] | None = None
        expected = known or (self._shapes if self._is_static else None)
        if expected is None:
            shapes, last = [array.shape for array in inputs], self._last
            if last is not None and last[0] == shapes:
                expected = last[1]
        if expected is not None:
            self._expect(arguments, expected, outputs if is_bound else None)
        call_begins()
        try:
            with self._turn:
                if context is not None and context.profiler is not None:
                    status = self._profiled(arguments, context.profiler)
                elif self._notifies:
                    status = self._notified(arguments)
                else:
                    status = self._compute(arguments)
        finally:
            call_ends()
        if status or arguments.failure is not None:
            self._fail(status, arguments)
        results = self._results(arguments)
        if shapes is not None and expected is None:
            # any thread's will do: it is no more than a guess
            self._last = shapes, arguments.shapes
        return fill_bound(results, outputs) if is_bound else results

    def _captured(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
        capture: NativeCapture,
    ) -> Sequence[Any]:
        """Have the library capture a run, and try what it replays.

        Raises:
            EPFail: it captures nothing, or what computes something else.
            OnnxplugError: it fails, and says why.
        """
        self._require_capturable(outputs, capture)
        assert context is not None and self._memory is not None
        stream, transfer = context.stream, self._memory.transfer
        assert isinstance(stream, DoneStream) and stream.work is not None
        arguments = self._make()
        try:
            results = self._run(arguments, inputs, outputs, context)
            shapes = arguments.shapes
            arguments.clear()
            trial = Trial(transfer, results)
            number = arguments.graph = stream.work.begin()
            for _ in range(MOST_RUNS):
                self._run(arguments, inputs, results, context, shapes)
                arguments.clear()
                if not arguments.is_kept:
                    raise capture.failed("makes other shapes of the same inputs")
                if capture.has_captured(number):
                    break
            else:
                raise capture.failed(f"has captured nothing in {MOST_RUNS} runs")
            trial.spoil()
            capture.replay(number)
            if not trial.is_right():
                raise capture.failed(
                    "replays what it has captured, and that computes something else "
                    "than the run did"
                )
        except BaseException:
            arguments.clear(failed=True)
            arguments.release()
            raise
        stream.work.keep(arguments, [*inputs, *results])
        return results

    def _require_capturable(
        self, outputs: Sequence[Any | None], capture: NativeCapture
    ) -> None:
        """Check that what a run writes stays where it is.

        Raises:
            EPFail: it does not, and why.
        """
        wanted = set(self.partition.graph.outputs)
        for name, array in zip(self._names, outputs, strict=True):
            if array is None and name in wanted:
                raise capture.failed(
                    f"is to capture a run whose output {name!r} is bound to the array "
                    "of an input, to which it is copied afterwards; bind it to another"
                )

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

    def _profiled(self, arguments: Any, profiler: ep.Profiler) -> Any:
        """Compute, with what the library records of it in the session's trace."""
        compute = functools.partial(
            self._notified if self._notifies else self._compute, arguments
        )
        own = self._provider.profiler
        if own is None:
            return compute()
        return own.run(compute, self.partition.label, profiler)

    def _notified(self, arguments: Arguments) -> Any:
        """Compute, with the library told that a run starts and ends."""
        structure, options = self._provider.structure, self._options
        if arguments.graph != NOT_CAPTURED:
            options = RunOptions({GRAPH_ID: str(arguments.graph)})
        try:
            if "OnRunStart" in self._notifies:
                structure.call("OnRunStart", options.address)
            try:
                return self._compute(arguments)
            finally:
                if "OnRunEnd" in self._notifies:
                    structure.call("OnRunEnd", options.address, True)
        finally:
            if options is not self._options:
                options.release()

    def _fail_output(self, name: str | None) -> NoReturn:
        raise ep.EPFail(f"{self._who} did not compute the output {name!r}")

    def _fail(self, status: int | None, arguments: Any) -> None:
        """Raise what went wrong: in an entry of ours, or else in the library.

        A status that is none of ours is nothing to be followed, and says nothing.
        """
        failure = arguments.failure
        try:
            raise_status(status, self._where(arguments))
        except ep.OnnxplugError as error:
            if failure is None:
                raise
            raise failure from error
        if failure is not None:
            raise failure

    def _where(self, arguments: Any) -> str:
        """What failed, in words."""
        return f"Compute of {self._who}"

    def close(self) -> None:
        """Release the contexts."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().release()


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
