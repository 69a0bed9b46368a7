"""Mistakes in the EP that compiles: in when it does what, and in what it tells."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
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
from ..operators import Array

# time


class GeneratesLate(GeneratedPartition):
    """Generates its functions in the first run, as if no other began then."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.functions = []
        self._begun = False

    def compute(self, values: list[Any], check: Any) -> None:
        if not self._begun:
            self._begun = True
            self.functions = program.generate(program.source_of(self.program, 32))
        super().compute(values, check)


@planted(
    "is-ready-before-it-is",
    "time",
    breaks="``None``: ``run`` may be called from any number of threads at once",
    source=f"{SPI}compiled.py",
    finding="of several threads that run a session for the first time, some have no "
    "results",
    blames=("thread", "concurrent", "at once", "max_concurrent_runs"),
)
class IsReadyBeforeItIs(GeneratedFactory):
    partition = GeneratesLate


# failure


class FailsIfCancelled(GeneratedPartition):
    """Says in its own words that it was cancelled."""

    def compute(self, values: list[Any], check: Any) -> None:
        try:
            super().compute(values, check)
        except ep.RunCancelled:
            raise RuntimeError("generated code was interrupted") from None


@planted(
    "fails-if-it-is-cancelled",
    "failure",
    breaks="The run was cancelled; an EP that looks raises ``RunCancelled``.",
    source=f"{SPI}compiled.py",
    finding="a run that was cancelled is a failure of the EP, and no RunCancelled",
    blames=("cancel",),
)
class FailsIfItIsCancelled(GeneratedFactory):
    partition = FailsIfCancelled


class ClosesOnce(GeneratedPartition):
    """Lets go of its functions, which it cannot do a second time."""

    def close(self) -> None:
        super().close()
        del self.functions


@planted(
    "fails-if-it-is-closed-again",
    "failure",
    breaks="(optional) Release resources. Idempotent; before the EP's own ``close``.",
    source=f"{SPI}compiled.py",
    finding="CompiledPartition.close raises when it is called a second time",
    blames=("close", "idempotent"),
)
class FailsIfItIsClosedAgain(GeneratedFactory):
    partition = ClosesOnce


# options


class KeepsTheFirst(GeneratedExecutionProvider):
    """Reads its options once in a process."""

    first: ClassVar[Mapping[str, ep.OptionValue]] = {}

    def __init__(
        self, factory: GeneratedFactory, options: Mapping[str, ep.OptionValue]
    ) -> None:
        KeepsTheFirst.first = KeepsTheFirst.first or options
        super().__init__(factory, KeepsTheFirst.first)


@planted(
    "keeps-the-options-of-the-first-session",
    "options",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=f"{SPI}factory.py",
    finding="a session has the options of another, which was made before it",
    blames=("accumulate", "steps_per_function"),
)
class KeepsTheOptionsOfTheFirstSession(GeneratedFactory):
    provider = KeepsTheFirst


# EPContext


class KeepsWeightsHere(GeneratedSerialiser):
    """Leaves weights out of the bytes, as they are in memory, by their types."""

    kept: ClassVar[dict[Any, list[Array]]] = {}

    def __init__(self, provider: GeneratedExecutionProvider) -> None:
        super().__init__(provider)
        self._of = provider

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        assert isinstance(compiled, GeneratedPartition)
        made = compiled.program
        self.kept[_types_of(made.constants)] = made.constants
        left_out = [np.empty(0, each.dtype) for each in made.constants]
        types = str(_types_of(made.constants)).encode()
        written = program.write(made._replace(constants=left_out))
        return len(types).to_bytes(4) + types + written

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        length = int.from_bytes(data[:4])
        types = bytes(data[4 : 4 + length]).decode(errors="replace")
        restored = super().restore(partition, data[4 + length :])
        assert isinstance(restored, GeneratedPartition)
        for key, constants in self.kept.items():
            if str(key) == types:
                return self._of.make(restored.program._replace(constants=constants))
        reason = ep.Reason(ep.RefusalCode.OTHER, "its weights are not in memory")
        raise ep.Declined(reason)


def _types_of(constants: Sequence[Array]) -> tuple[Any, ...]:
    return tuple((each.shape, str(each.dtype)) for each in constants)


@planted(
    "leaves-weights-in-memory",
    "EPContext",
    breaks="Makes bytes of an EP's compiled partitions, for later sessions and "
    "processes.",
    source=f"{SPI}serialiser.py",
    finding="what was compiled is restored with the weights of another model whose "
    "weights are as large, and in another process not at all",
    blames=("restore", "serialise", "weight", "process"),
)
class LeavesWeightsInMemory(GeneratedFactory):
    make_serialiser = KeepsWeightsHere


class WritesAsItCompiles(GeneratedSerialiser):
    """Has the bytes of what it compiled, and none of what it restored."""

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        written: bytes = compiled.written  # type: ignore[attr-defined]
        return written


class CompilesAndWrites(GeneratedExecutionProvider):
    """Writes what it compiles at once."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        compiled: Any = super().compile(partition)
        compiled.written = program.write(compiled.program)
        return compiled  # type: ignore[no-any-return]


@planted(
    "serialises-only-what-it-compiled",
    "EPContext",
    breaks="What the EP compiled or restored, as bytes for :meth:`restore`.",
    source=f"{SPI}serialiser.py",
    finding="serialise fails for a partition that restore gave",
    blames=("serialise", "restored"),
)
class SerialisesOnlyWhatItCompiled(GeneratedFactory):
    provider = CompilesAndWrites
    make_serialiser = WritesAsItCompiles


# costs


class InMicroseconds(GeneratedCosts):
    """Has measured in microseconds."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = super().estimate(graph, nodes)
        return None if seconds is None else 1e6 * seconds


@planted(
    "estimates-microseconds",
    "costs",
    breaks="How long *nodes* of *graph* take, in seconds, without copies.",
    source=f"{SPI}costs.py",
    finding="CostModel.estimate is a million times what running the nodes takes",
    blames=("estimate", "seconds"),
)
class EstimatesMicroseconds(GeneratedFactory):
    class provider(GeneratedExecutionProvider):
        cost_model = InMicroseconds()


# profiling


class TimesByTheCalendar(GeneratedPartition):
    """Says when something began by the time of day."""

    def _profiled(
        self, values: list[Any], context: ep.RunContext, profiler: ep.Profiler
    ) -> None:
        for step, kernel in zip(self.program.steps, self.kernels, strict=True):
            check(context)
            given = [None if slot is None else values[slot] for slot in step.inputs]
            start = time.time_ns()
            values[step.output] = kernel(*given)
            profiler.record(
                f"{step.op}_kernel_time",
                category="Node",
                start_ns=start,
                duration_ns=time.time_ns() - start,
                details={"op_name": step.op, "tier": "generated"},
            )


@planted(
    "profiles-by-another-clock",
    "profiling",
    breaks="when it began, by :func:`time.perf_counter_ns`.",
    source=f"{SPI}profiler.py",
    finding="what is recorded began long before or after the run",
    blames=("start", "clock", "perf_counter_ns", "began"),
)
class ProfilesByAnotherClock(GeneratedFactory):
    partition = TimesByTheCalendar


# speed


class Tidies(GeneratedPartition):
    """Has garbage collected when it is done."""

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        finished = super().finish(results, outputs)
        gc.collect()
        return finished


@planted(
    "collects-garbage-in-each-run",
    "speed",
    breaks="Make *partition* ready to run. The partition may be kept.",
    source=f"{SPI}provider.py",
    finding="the fixed cost of a run is many times what its kernels take",
    blames=("fixed cost", "per node", "of a run", "of a node", "µs"),
)
class CollectsGarbageInEachRun(GeneratedFactory):
    partition = Tidies


# factory


@planted(
    "lists-versions-that-it-refuses",
    "factory",
    breaks="since: the first version of the operator that is meant, as "
    "``Node.since_version`` counts.",
    source=f"{SPI}operators.py",
    finding="operators tells of versions of operators whose nodes are refused",
    blames=("operators", "version", "since", "until"),
)
class ListsVersionsThatItRefuses(GeneratedFactory):
    def operators(self) -> Iterable[ep.OperatorSupport]:
        for each in super().operators():
            yield ep.OperatorSupport(op_type=each.op_type, domain=each.domain)
