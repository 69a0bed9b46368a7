"""Mistakes in how what the EP compiled is run, kept and made."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound

from .. import program
from ..compile_ep import (
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
    check,
)
from ..mistake import planted
from ..operators import Array, Operator
from ..program import Program

SPI: Final = "core/src/onnxplug/ep/"
STREAMS: Final = "docs/explanation/memory-and-streams.md"


# memory


class _WithBuffers(GeneratedPartition):
    """Results are in buffers, which are made where a shape is new."""

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._buffers: dict[tuple[int, tuple[int, ...]], Array] = {}

    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        filled = []
        for position, result in enumerate(map(np.asarray, results)):
            buffer = self._buffers.setdefault(
                (position, result.shape), np.empty(result.shape, result.dtype)
            )
            np.copyto(buffer, result)
            filled.append(buffer)
        return super().finish(filled, outputs)


@planted(
    "the-next-run-overwrites-results",
    "memory",
    breaks="``None`` (allocate it; the array then belongs to the host, and the EP "
    "never writes to it again)",
    source=SPI + "compiled.py",
    finding="results of one run change in the next one",
    blames=("buffer", "overwrites", "overwritten", "changed", "changes", "earlier"),
)
class TheNextRunOverwritesResults(GeneratedFactory):
    partition = _WithBuffers


class _OfMemory(GeneratedPartition):
    """Takes an input for its memory, as a library that is given the address."""

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        return super().values([x.ravel(order="K").reshape(x.shape) for x in inputs])


@planted(
    "takes-inputs-as-they-lie-in-memory",
    "memory",
    breaks="Those on the host are numpy's, of the graph's element type in the "
    "machine's order of bytes, with any strides;",
    source=SPI + "compiled.py",
    finding="wrong numbers of inputs that are not C-contiguous",
    blames=("strides", "strided", "contiguous", "transposed", "layout"),
)
class TakesInputsAsTheyLie(GeneratedFactory):
    partition = _OfMemory


# time


class _WithSlots(GeneratedPartition):
    """Has its slots once, for all runs."""

    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._slots = super().values([None] * made.inputs)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        self._slots[: len(inputs)] = inputs
        return self._slots


@planted(
    "runs-share-their-values",
    "time",
    breaks="``None``: ``run`` may be called from any number of threads at once;",
    source=SPI + "compiled.py",
    finding="runs that overlap mix their values",
    blames=("at once", "concurrent", "threads", "overlap", "max_concurrent_runs"),
)
class RunsShareTheirValues(GeneratedFactory):
    partition = _WithSlots


# failure


class _TimingOut(GeneratedPartition):
    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        try:
            return super().run(inputs, outputs, context)
        except ep.RunCancelled as error:
            raise TimeoutError("the engine was stopped") from error


@planted(
    "a-cancelled-run-is-a-failure",
    "failure",
    breaks="The run was cancelled; an EP that looks raises ``RunCancelled``.",
    source=SPI + "compiled.py",
    finding="a run that is cancelled raises another error than RunCancelled",
    blames=("RunCancelled", "cancelled", "TimeoutError"),
)
class ACancelledRunIsAFailure(GeneratedFactory):
    partition = _TimingOut


class _FillingOneByOne(GeneratedPartition):
    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        filled: list[Any] = []
        for position, (result, bound) in enumerate(zip(results, outputs, strict=True)):
            array = np.asarray(result)
            if bound is not None:
                check_bound(f"output {position}", array, bound)
                np.copyto(bound, array)
                array = bound
            filled.append(array)
        return filled


@planted(
    "fills-one-output-before-it-looks-at-the-next",
    "failure",
    breaks="a bound array has not the output's shape or dtype; raised before anything "
    "is written.",
    source=SPI + "compiled.py",
    finding="where the second bound array does not fit, the first was written to",
    blames=("OutputMismatch", "bound", "was written"),
)
class FillsOneOutputBefore(GeneratedFactory):
    partition = _FillingOneByOne


# EPContext


class _Believing(GeneratedSerialiser):
    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        program.read(data, self._provider.operators)
        return super().restore(partition, data)


@planted(
    "bytes-that-are-no-use-are-a-failure",
    "EPContext",
    breaks="Declined: the data is not of use; says why.",
    source=SPI + "serialiser.py",
    finding="restore raises ValueError, and not Declined, for bytes that are damaged",
    blames=("restore", "Declined"),
)
class BytesOfNoUse(GeneratedFactory):
    make_serialiser = _Believing


class _Exporting(GeneratedExecutionProvider):
    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        made = program.program_of(partition)
        compiled = self.make(made)
        compiled.exported = program.write(made)  # type: ignore[attr-defined]
        return compiled


class _OfExported(GeneratedSerialiser):
    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        exported: bytes = compiled.exported  # type: ignore[attr-defined]
        return exported


@planted(
    "what-was-restored-cannot-be-serialised",
    "EPContext",
    breaks="What the EP compiled or restored, as bytes for :meth:`restore`.",
    source=SPI + "serialiser.py",
    finding="serialise raises AttributeError for what was restored",
    blames=("serialise", "serialised", "AttributeError", "exported"),
)
class WhatWasRestored(GeneratedFactory):
    provider = _Exporting
    make_serialiser = _OfExported


# profiling


class _ByTheWallClock(GeneratedPartition):
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
    "events-begin-by-the-wall-clock",
    "profiling",
    breaks="when it began, by :func:`time.perf_counter_ns`.",
    source=SPI + "profiler.py",
    finding="events are years away from the run that they are of",
    blames=("start_ns", "perf_counter_ns", "clock", "began", "begin"),
)
class EventsByTheWallClock(GeneratedFactory):
    partition = _ByTheWallClock


# speed


class _OneAtATime(GeneratedPartition):
    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._lock = threading.Lock()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        with self._lock:
            return super().run(inputs, outputs, context)


@planted(
    "runs-wait-for-a-lock",
    "speed",
    breaks="``None``: ``run`` may be called from any number of threads at once; "
    "otherwise by this many",
    source=SPI + "compiled.py",
    finding="runs of several threads are done one after the other, which "
    "max_concurrent_runs does not say",
    blames=("lock", "max_concurrent_runs", "threads", "at once", "concurrent"),
)
class RunsWaitForALock(GeneratedFactory):
    partition = _OneAtATime


# factory


@planted(
    "all-sessions-have-the-first-ones-ep",
    "factory",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=SPI + "factory.py",
    finding="create gives the EP of an earlier session, with the options of that",
    blames=("create", "accumulate", "steps_per_function", "same EP", "same object"),
)
class AllSessionsHaveTheFirst(GeneratedFactory):
    def __init__(self) -> None:
        self._made: ep.ExecutionProvider | None = None

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        if self._made is None:
            self._made = super().create(devices, options, session)
        return self._made
