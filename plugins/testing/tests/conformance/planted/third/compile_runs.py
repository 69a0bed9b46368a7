"""Mistakes in the EP that compiles: in when it does what, and in what it tells."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxplug import ep

from .. import program
from ..compile_ep import (
    GeneratedCosts,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
    check,
)
from ..compile_mistakes import SPI
from ..mistake import planted

# time


class SharesScratchWithAll(GeneratedPartition):
    """Has one list of values for all partitions, each of which has a run at a time."""

    max_concurrent_runs = 1
    scratch: ClassVar[list[Any]] = []

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        self.scratch[:] = super().values(inputs)
        return self.scratch


@planted(
    "shares-scratch-between-sessions",
    "time",
    breaks="what is shared (plans, compiled partitions) is not written to",
    source="docs/explanation/memory-and-streams.md",
    finding="sessions that run in several threads give each other's numbers, or fail",
    blames=("thread", "concurrent", "sessions", "at once"),
)
class SharesScratchBetweenSessions(GeneratedFactory):
    partition = SharesScratchWithAll


class LooksAtTheCalendar(GeneratedPartition):
    """Begins no run that is too late."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        deadline = None if context is None else context.deadline
        if deadline is not None and time.time() > deadline:
            raise ep.RunCancelled("the deadline has passed")
        return super().run(inputs, outputs, context)


@planted(
    "compares-deadlines-with-the-calendar",
    "time",
    breaks="``time.monotonic()`` after which the result is no longer wanted.",
    source=f"{SPI}compiled.py",
    finding="a run with a deadline that is far off is cancelled at once",
    blames=("deadline", "timeout", "cancel"),
)
class ComparesDeadlinesWithTheCalendar(GeneratedFactory):
    partition = LooksAtTheCalendar


# failure


class KeepsItsLock(GeneratedPartition):
    """Has one run at a time, and lets the next one begin when it is done."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        self._lock.acquire()
        results = super().run(inputs, outputs, context)
        self._lock.release()
        return results


@planted(
    "keeps-its-lock-when-a-run-fails",
    "failure",
    breaks="In no case is a thread killed, and the session can be used afterwards",
    source="docs/how-to/cancel-a-run.md",
    finding="after a run that was cancelled, or failed, the next one does not end",
    blames=("hang", "not end", "never", "cancel", "next run", "lock"),
)
class KeepsItsLockWhenARunFails(GeneratedFactory):
    partition = KeepsItsLock


# options


class ReadsTheLatest(GeneratedExecutionProvider):
    """Has its options from the factory, where the latest session left them."""

    latest: ClassVar[Mapping[str, ep.OptionValue]] = {}

    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        super().__init__(factory, options)
        ReadsTheLatest.latest = options

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        self.options = self.latest
        return super().compile(partition)


@planted(
    "reads-the-options-of-the-latest-session",
    "options",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=f"{SPI}factory.py",
    finding="what is compiled in a run has the options of a session that was made "
    "meanwhile",
    blames=("accumulate", "steps_per_function"),
)
class ReadsTheOptionsOfTheLatestSession(GeneratedFactory):
    provider = ReadsTheLatest


# EPContext


class WritesFourDigits(GeneratedSerialiser):
    """Writes numbers as people do."""

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, GeneratedPartition)
        steps = [
            step._replace(attributes={k: _short(v) for k, v in step.attributes.items()})
            for step in compiled.program.steps
        ]
        return program.write(compiled.program._replace(steps=steps))


def _short(value: Any) -> Any:
    return float(f"{value:.4f}") if isinstance(value, float) else value


@planted(
    "rounds-the-attributes-that-it-writes",
    "EPContext",
    breaks="What :meth:`serialise` gave, ready to run.",
    source=f"{SPI}serialiser.py",
    finding="what is restored computes with attributes of four decimals, such as alpha "
    "of LeakyRelu",
    blames=("restore", "alpha", "LeakyRelu", "Gemm"),
)
class RoundsTheAttributesThatItWrites(GeneratedFactory):
    make_serialiser = WritesFourDigits


class RestoresTheNewest(GeneratedSerialiser):
    """Restores operators as they are now."""

    def __init__(self, provider: GeneratedExecutionProvider) -> None:
        super().__init__(provider)
        self._of = provider

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        restored = super().restore(partition, data)
        assert isinstance(restored, GeneratedPartition)
        newest = [
            step._replace(version=self._of.operators[step.op].versions[1])
            for step in restored.program.steps
        ]
        return self._of.make(restored.program._replace(steps=newest))


@planted(
    "restores-operators-in-their-newest-version",
    "EPContext",
    breaks="What :meth:`serialise` gave, ready to run.",
    source=f"{SPI}serialiser.py",
    finding="Softmax before opset 13 is computed as the newest where it is restored",
    blames=("restore", "Softmax"),
)
class RestoresOperatorsInTheirNewestVersion(GeneratedFactory):
    make_serialiser = RestoresTheNewest


# costs


class OfNumbers(GeneratedCosts):
    """Multiplies sizes, of which each is taken for a number."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = 0.0
        for node in nodes:
            for name in filter(None, node.outputs):
                shape: Any = graph.value(name).shape
                if shape is None:
                    return None
                seconds += 2e-6 + 1e-9 * math.prod(shape)
        return seconds


@planted(
    "fails-to-estimate-sizes-with-names",
    "costs",
    breaks="finite and not less than 0; ``None`` if that is not known, such as without "
    "the shapes.",
    source=f"{SPI}costs.py",
    finding="CostModel.estimate raises where a size is not known",
    blames=("estimate", "CostModel"),
)
class FailsToEstimateSizesWithNames(GeneratedFactory):
    class provider(GeneratedExecutionProvider):
        cost_model = OfNumbers()


# profiling


class TellsOfBytes(GeneratedPartition):
    """Tells how many bytes each operator made, by numpy's product."""

    def _profiled(
        self, values: list[Any], context: ep.RunContext, profiler: ep.Profiler
    ) -> None:
        for step, kernel in zip(self.program.steps, self.kernels, strict=True):
            check(context)
            given = [None if slot is None else values[slot] for slot in step.inputs]
            start = time.perf_counter_ns()
            result = values[step.output] = kernel(*given)
            duration = time.perf_counter_ns() - start
            nbytes = np.prod(np.shape(result)) * np.asarray(result).itemsize
            profiler.record(
                f"{step.op}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=duration,
                details={"op_name": step.op, "tier": "generated", "bytes": nbytes},
            )


@planted(
    "records-what-JSON-cannot-hold",
    "profiling",
    breaks="facts that JSON can hold, never changed afterwards.",
    source=f"{SPI}profiler.py",
    finding="bytes in the details of what is recorded are an integer of numpy's",
    blames=("JSON", "details", "bytes", "int64"),
)
class RecordsWhatJsonCannotHold(GeneratedFactory):
    partition = TellsOfBytes


# speed


class WalksAllWays(GeneratedExecutionProvider):
    """Looks which nodes its outputs need, by all ways that lead to them."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        makers = {name: node for node in partition.nodes for name in node.outputs}
        left: list[str | None] = [*partition.outputs]
        needed = set()
        while left:
            node = makers.get(left.pop())
            if node is not None:
                needed.add(node.index)
                left.extend(node.inputs)
        assert needed <= {node.index for node in partition.nodes}
        return super().compile(partition)


@planted(
    "walks-all-ways-through-a-graph",
    "speed",
    breaks="Make *partition* ready to run. The partition may be kept.",
    source=f"{SPI}provider.py",
    finding="compiling takes twice as long for each node more in a row that reads one "
    "value twice, as residual networks have",
    blames=("compile", "compiling", "exponential", "session", "seconds"),
)
class WalksAllWaysThroughAGraph(GeneratedFactory):
    provider = WalksAllWays
