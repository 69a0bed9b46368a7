"""Twenty mistakes in the EP with a device: half of what it computes, half of when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from .device_ep import DeviceExecutionProvider, DeviceFactory
from .device_memory import DeviceAllocator, DeviceArray, DeviceTransfer
from .device_partition import Call, DevicePartition, compute, timed
from .device_streams import Capture, DeviceCapture, DeviceStream, own
from .mistake import planted
from .operators import OPERATORS, Array, Operator, softmax_along

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""


def changed(**operators: Any) -> Mapping[str, Operator]:
    """The operators, of which some are made otherwise."""
    return {
        **OPERATORS,
        **{
            name: OPERATORS[name]._replace(make=make)
            for name, make in operators.items()
        },
    }


# operators


def _repeated(attributes: Any, version: int) -> Any:
    # element i of the smaller one is taken for i modulo its size, as of a bias
    def multiply(a: Array, b: Array) -> Any:
        shape = np.broadcast_shapes(a.shape, b.shape)
        if 0 in shape:
            return np.empty(shape, a.dtype)
        return np.resize(a, shape) * np.resize(b, shape)

    return multiply


@planted(
    "broadcasts-by-modulo",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Mul where a dimension of 1 is not the first",
    blames=("Mul",),
)
class BroadcastsByModulo(DeviceFactory):
    operators_taken = changed(Mul=_repeated)


def _along_last(attributes: Any, version: int) -> Any:
    axis = attributes.get("axis", -1)
    return softmax_along(axis if axis >= 0 else -1)


@planted(
    "takes-negative-axes-for-the-last",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Softmax where its axis is negative and not -1",
    blames=("Softmax",),
)
class TakesNegativeAxesForTheLast(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **OPERATORS,
        "Softmax": OPERATORS["Softmax"]._replace(make=_along_last, versions=(13, 13)),
    }


class LaunchesNothingOfNothing(DevicePartition):
    """Skips the kernel where an input is empty, though the result need not be."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        if any(each is not None and 0 in each.shape for each in arguments):
            return _nothing
        return super().work(call, arguments, result)


def _nothing() -> None:
    return None


@planted(
    "leaves-results-of-empty-inputs-unwritten",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="MatMul over no elements, or ReduceSum of none, gives what was in memory",
    blames=("MatMul", "Gemm", "ReduceSum", "Concat", "Shape"),
)
class LeavesResultsOfEmptyInputsUnwritten(DeviceFactory):
    partition = LaunchesNothingOfNothing


def _floored(attributes: Any, version: int) -> Any:
    return lambda a, b: a / b if a.dtype.kind == "f" else a // b


@planted(
    "rounds-quotients-down",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong quotients of integers of which one is negative",
    blames=("Div",),
)
class RoundsQuotientsDown(DeviceFactory):
    operators_taken = changed(Div=_floored)


# memory


class RectifiesInPlace(DevicePartition):
    """Saves memory: the result of Relu takes the place of what it is of."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        if call.node.op_type != "Relu":
            return super().work(call, arguments, result)
        return partial(_rectify, arguments[0].content, result.content)


def _rectify(x: Array, result: Array) -> None:
    np.maximum(x, 0, out=x)
    np.copyto(result, x)


@planted(
    "writes-to-inputs",
    "memory",
    breaks="Never written to; may be read-only.",
    source=f"{SPI}compiled.py",
    finding="an input, or a value that another node reads, has changed after Relu",
    blames=("Relu", "input"),
)
class WritesToInputs(DeviceFactory):
    partition = RectifiesInPlace


class ReshapesByView(DevicePartition):
    """Gives the same memory in another shape."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = list(super().run(inputs, outputs, context))
        given = dict(zip(self.partition.inputs, inputs, strict=True))
        for call in self.calls:
            source = given.get(call.inputs[0] or "")
            if call.node.op_type != "Reshape" or source is None:
                continue
            for position, name in enumerate(self.partition.outputs):
                if name == call.output and outputs[position] is None:
                    shape = results[position].shape
                    results[position] = DeviceArray(source.content.reshape(shape))
        return results


@planted(
    "returns-views-of-inputs",
    "memory",
    breaks="An output may be an input itself or, on the host, a view of one, which is "
    "copied for the caller; a new array that owns its memory need not be.",
    source=f"{SPI}compiled.py",
    finding="a result of Reshape changes when the input is filled anew",
    blames=("Reshape", "view", "input"),
)
class ReturnsViewsOfInputs(DeviceFactory):
    partition = ReshapesByView


class AllocatesAlways(DevicePartition):
    """Returns arrays of its own, whatever was bound."""

    def result(
        self,
        call: Call,
        facts: ep.TensorFacts,
        bound: Mapping[str, Any],
        stream: ep.Stream | None,
    ) -> Any:
        return super().result(call, facts, {}, stream)


@planted(
    "ignores-bound-outputs",
    "memory",
    breaks="allocate it; the array then belongs to the host, and the EP never writes "
    "to it again) or an array that the caller bound: fill it and return it.",
    source=f"{SPI}compiled.py",
    finding="an array that was bound is not filled, or not what is returned",
    blames=("bound",),
)
class IgnoresBoundOutputs(DeviceFactory):
    partition = AllocatesAlways


class HandsOutAtOnce(DeviceAllocator):
    """Takes memory for free when its array is gone, whatever is queued."""

    def is_free(self, free: Any, stream: ep.Stream | None) -> bool:
        return True


@planted(
    "hands-memory-out-too-early",
    "memory",
    breaks="That may be before work queued on *its* stream has run, so memory is "
    "handed out again in the order of that stream",
    source=f"{SPI}memory.py",
    finding="with two streams, wrong numbers, or memory that is handed out while work "
    "of another stream uses it",
    blames=("Allocator", "empty", "memory", "stream"),
)
class HandsMemoryOutTooEarly(DeviceFactory):
    allocator = HandsOutAtOnce


class OnTheHost(DevicePartition):
    """Computes shapes where they are known, on the host, and leaves them there."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = list(super().run(inputs, outputs, context))
        shapes = {
            call.output: call.kernel
            for call in self.calls
            if call.node.op_type == "Shape" and call.inputs[0] in self.partition.inputs
        }
        given = dict(zip(self.partition.inputs, inputs, strict=True))
        for position, name in enumerate(self.partition.outputs):
            if name in shapes and outputs[position] is None:
                (call,) = (call for call in self.calls if call.output == name)
                results[position] = shapes[name](given[call.inputs[0]])
        return results


@planted(
    "leaves-results-on-the-host",
    "memory",
    breaks="Where each output is left; ``None``: all in the EP's location.",
    source=f"{SPI}compiled.py",
    finding="a result of Shape is an array of the host, not of the device",
    blames=("Shape", "location", "host"),
)
class LeavesResultsOnTheHost(DeviceFactory):
    partition = OnTheHost


class KeepsRuns(DevicePartition):
    """Keeps what each run has made, to have it in the next."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._runs: list[Sequence[Any]] = []

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = super().run(inputs, outputs, context)
        self._runs.append(results)
        return results


@planted(
    "leaks-in-each-run",
    "memory",
    breaks="An array's memory is free again when the array is gone.",
    source="docs/explanation/memory-and-streams.md",
    finding="memory of the device grows from run to run",
    blames=("run", "live_bytes", "leak"),
)
class LeaksInEachRun(DeviceFactory):
    partition = KeepsRuns


class KeepsConstants(DevicePartition):
    """Keeps constants on the device for sessions to come, by no key that they have."""

    kept: ClassVar[list[Mapping[str, DeviceArray]]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept.append(self.constants)


@planted(
    "leaks-in-each-session",
    "memory",
    breaks="(optional) Release resources. Idempotent; before the EP's own ``close``.",
    source=f"{SPI}compiled.py",
    finding="memory of the device grows with each session that is made and closed",
    blames=("session", "close", "live_bytes", "leak"),
)
class LeaksInEachSession(DeviceFactory):
    partition = KeepsConstants


class ClearsTheDevice(DeviceExecutionProvider):
    """Cleans up when the session is closed: all that runs have made is void."""

    def __init__(self, factory: DeviceFactory, context: Any) -> None:
        super().__init__(factory, context)
        self.made: list[Array] = []

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        compiled = super().compile(partition)
        assert isinstance(compiled, NotesMemory)
        compiled.made = self.made
        return compiled

    def close(self) -> None:
        for memory in self.made:
            memory.view(np.uint8)[...] = 0xFF
        self.made = []


class NotesMemory(DevicePartition):
    """Notes what it returned last, for the EP to clear."""

    made: list[Array]

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        results = super().run(inputs, outputs, context)
        self.made[:] = [array.content for array in results if array.shape]
        return results


@planted(
    "clears-results-with-the-session",
    "memory",
    breaks="A context is open as long as something uses it: an EP that asked for it, "
    "until its session is closed; a session with values there; an `OrtValue`",
    source="docs/explanation/memory-and-streams.md",
    finding="a value on the device is another after its session was closed",
    blames=("session", "close", "closed"),
)
class ClearsResultsWithTheSession(DeviceFactory):
    provider = ClearsTheDevice
    partition = NotesMemory


# time


class WaitsForNothing(DeviceStream):
    """Forgets to queue the wait."""

    def wait(self, event: ep.Event) -> bool:
        return True


@planted(
    "does-not-wait-for-events",
    "time",
    breaks="Let work queued here from now on start only after *event*.",
    source=f"{SPI}streams.py",
    finding="work queued after Stream.wait starts before the event",
    blames=("wait", "Stream"),
)
class DoesNotWaitForEvents(DeviceFactory):
    stream = WaitsForNothing


class CopiesLater(DeviceTransfer):
    """Copies on a stream of its own where it is given none, and returns at once."""

    def __init__(self) -> None:
        self._stream = DeviceStream()

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        super().copy(pairs, self._stream if stream is None else stream)


@planted(
    "returns-before-copies-are-done",
    "time",
    breaks="With ``None`` they are done when the call returns.",
    source=f"{SPI}memory.py",
    finding="DataTransfer.copy without a stream returns before the target is filled",
    blames=("copy", "DataTransfer"),
)
class ReturnsBeforeCopiesAreDone(DeviceFactory):
    transfer = CopiesLater


class ComputesAside(DevicePartition):
    """Computes on a stream of its own, for which the run's does not wait."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._aside = DeviceStream()

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        work = super().work(call, arguments, result)
        return partial(self._aside.enqueue, work)

    def close(self) -> None:
        super().close()
        self._aside.close()


@planted(
    "computes-on-another-stream",
    "time",
    breaks="With a stream, arrays of the EP's memory may still be computed by work "
    "queued on it, but have their final shape and dtype; host arrays are ready.",
    source=f"{SPI}compiled.py",
    finding="results are not there when the run's stream is done",
    blames=("run", "stream"),
)
class ComputesOnAnotherStream(DeviceFactory):
    partition = ComputesAside


class ReadsIndicesNow(DevicePartition):
    """Hands indices to the kernel by value, as they are when it is queued."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        if call.node.op_type != "Gather":
            return super().work(call, arguments, result)
        x, indices = (each.content for each in arguments)
        return partial(compute, call.kernel, [x, indices.copy()], result.content)


@planted(
    "reads-inputs-before-the-stream-has-made-them",
    "time",
    breaks="Work on one stream runs in order; work on two runs in any order unless one "
    "waits.",
    source=f"{SPI}streams.py",
    finding="Gather has indices as they were before queued work made them",
    blames=("Gather",),
)
class ReadsInputsBeforeTheStreamHasMadeThem(DeviceFactory):
    partition = ReadsIndicesNow


class FreesCapturedMemory(DeviceCapture):
    """Lets the memory between captured kernels go when the capture ends."""

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        capture: Capture | None = own(stream).capture
        graph = super().end(stream)
        assert capture is not None
        capture.memory.clear()
        return graph


@planted(
    "captures-memory-that-goes",
    "time",
    breaks="If it is capturing, the memory belongs to the captured graph until that is "
    "closed.",
    source=f"{SPI}memory.py",
    finding="replays of a captured graph write into memory that others have by then",
    blames=("capture", "CapturedGraph", "graph", "replay", "launch"),
)
class CapturesMemoryThatGoes(DeviceFactory):
    graph_capture = FreesCapturedMemory


# failure


class SwallowsFailures(DevicePartition):
    """Goes on when a kernel fails, as the next one may not."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        return partial(_try, super().work(call, arguments, result))


def _try(work: Any) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - which is the mistake
        return


@planted(
    "swallows-failures-of-queued-work",
    "failure",
    breaks="A failure in queued work comes out where its result is waited for, as the "
    "EP's failure in `run`",
    source="docs/explanation/memory-and-streams.md",
    finding="Gather with an index out of range gives numbers, and no error",
    blames=("Gather", "synchronize", "failure", "index"),
)
class SwallowsFailuresOfQueuedWork(DeviceFactory):
    partition = SwallowsFailures


class CountsWhatItRefuses(DeviceAllocator):
    """Counts bytes before it looks whether they are there."""

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        try:
            return super().empty(shape, dtype, stream)
        except MemoryError:
            self._live += math.prod(shape) * dtype.numpy.itemsize
            raise


@planted(
    "counts-memory-that-it-refused",
    "failure",
    breaks="what cannot be had is `OutOfMemory`, also a `MemoryError`, with node and "
    "bytes; the session goes on",
    source="docs/explanation/robustness.md",
    finding="after one allocation that is too large, small ones fail, too",
    blames=("memory", "MemoryError", "OutOfMemory", "empty", "Allocator"),
)
class CountsMemoryThatItRefused(DeviceFactory):
    allocator = CountsWhatItRefuses


# profiling


class TellsOfQueueing(DevicePartition):
    """Times how long it takes to queue a kernel, not how long that takes."""

    def tell(
        self,
        profiler: ep.Profiler,
        times: Sequence[Sequence[int]],
        stream: ep.Stream | None,
    ) -> None:
        super().tell(profiler, [_moment() for _ in times], None)


def _moment() -> list[int]:
    times: list[int] = []
    timed(_nothing, times)
    return times


@planted(
    "profiles-the-time-of-the-host",
    "profiling",
    breaks="how long it took, in ns.",
    source=f"{SPI}profiler.py",
    finding="times of kernels that are those of queueing, not of computing",
    blames=("duration", "profil", "time"),
)
class ProfilesTheTimeOfTheHost(DeviceFactory):
    partition = TellsOfQueueing
