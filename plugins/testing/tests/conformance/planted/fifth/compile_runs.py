"""Ten mistakes in the EP that compiles: how it runs, fails and describes itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep

from .. import program
from ..compile_ep import (
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
    GeneratedSerialiser,
    check,
)
from ..mistake import planted
from ..operators import Operator
from ..program import Program

SPI: Final = "core/src/onnxplug/ep/"
STREAMS: Final = "docs/explanation/memory-and-streams.md"


# time


class SharingValues(GeneratedPartition):
    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._values = super().values([None] * made.inputs)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        # no list is made in runs
        self._values[: len(inputs)] = inputs
        return self._values


@planted(
    "shares-slots-among-runs",
    "time",
    breaks="``None``: ``run`` may be called from any number of threads at once",
    source=SPI + "compiled.py",
    finding="runs at once get each other's values",
    blames=("concurrent", "at once", "threads", "max_concurrent_runs", "overlap"),
)
class SharesSlots(GeneratedFactory):
    partition = SharingValues


# failure


class Stopping(GeneratedPartition):
    def compute(self, values: list[Any], check: Any) -> None:
        for function in self.functions:
            try:
                function(values, self.kernels, check)
            except ep.RunCancelled:
                return  # nobody wants the rest


@planted(
    "returns-what-it-has-when-cancelled",
    "failure",
    breaks="The run was cancelled; an EP that looks raises ``RunCancelled``.",
    source=SPI + "compiled.py",
    finding="a cancelled run returns, with results that were not computed",
    blames=("cancelled", "RunCancelled", "cancel"),
)
class ReturnsWhenCancelled(GeneratedFactory):
    partition = Stopping


class Assigning(GeneratedPartition):
    def finish(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        filled = []
        for result, bound in zip(results, outputs, strict=True):
            if bound is None:
                filled.append(np.asarray(result))
            else:
                bound[...] = result
                filled.append(bound)
        return filled


@planted(
    "fills-bound-arrays-of-any-shape",
    "failure",
    breaks="a bound array has not the output's shape or dtype; raised before anything "
    "is written.",
    source=SPI + "compiled.py",
    finding="a bound array of another shape or element type is filled, by broadcasting "
    "and casting, instead of OutputMismatch",
    blames=("OutputMismatch", "bound"),
)
class FillsBoundArraysOfAnyShape(GeneratedFactory):
    partition = Assigning


class Busy(GeneratedPartition):
    # the functions are not made to be called twice at once
    max_concurrent_runs = 1
    _is_busy = False

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        if self._is_busy:
            raise RuntimeError("a run is going on")
        self._is_busy = True
        results = super().run(inputs, outputs, context)
        self._is_busy = False
        return results


@planted(
    "stays-busy-after-a-failure",
    "failure",
    breaks="A value whose run failed can be filled again; only what reads it fails.",
    source=STREAMS,
    finding="after a run that failed, or was cancelled, all later ones fail",
    blames=(
        "after a run",
        "after a failure",
        "after an error",
        "next run",
        "later run",
        "going on",
    ),
)
class StaysBusy(GeneratedFactory):
    partition = Busy


# EPContext


class Trusting(GeneratedSerialiser):
    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        # the host has compared the checksum
        made = program.read(data, self._provider.operators)
        return self._provider.make(made)


@planted(
    "raises-what-parsing-raises",
    "EPContext",
    breaks="Declined: the data is not of use; says why.",
    source=SPI + "serialiser.py",
    finding="restoring what is damaged or cut off raises ValueError, not Declined",
    blames=("Declined", "restore", "damaged", "ValueError"),
)
class RaisesWhatParsingRaises(GeneratedFactory):
    make_serialiser = Trusting


# options


class LookingAtTheFactory(GeneratedExecutionProvider):
    def make(self, made: Program) -> GeneratedPartition:
        assert isinstance(self.factory, KeepsOptionsOnTheFactory)
        self.options = self.factory.settings
        return super().make(made)


@planted(
    "keeps-options-on-the-factory",
    "options",
    breaks="An EP for one session on *devices* (at least one, all of this factory).",
    source=SPI + "factory.py",
    finding="a session that is open compiles with the options of the one made last",
    blames=("option", "steps_per_function", "accumulate", "another session"),
)
class KeepsOptionsOnTheFactory(GeneratedFactory):
    provider = LookingAtTheFactory
    settings: Mapping[str, ep.OptionValue] = {}

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        self.settings = options
        return super().create(devices, options, session)


# costs


class CountingUnknownSizes(ep.CostModel):
    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = 0.0
        for node in nodes:
            for name in filter(None, node.outputs):
                shape = graph.value(name).shape or ()
                # -1 stands for a size that is not known
                sizes = [size if isinstance(size, int) else -1 for size in shape]
                seconds += 1e-9 * math.prod(sizes)
        return seconds


class EstimatingAnyway(GeneratedExecutionProvider):
    cost_model = CountingUnknownSizes()


@planted(
    "counts-unknown-sizes-as-minus-one",
    "costs",
    breaks="finite and not less than 0; ``None`` if that is not known, such as without "
    "the shapes.",
    source=SPI + "costs.py",
    finding="the estimate for nodes of unknown sizes is a number, and less than 0",
    blames=("estimate", "cost_model", "CostModel", "negative", "less than 0"),
)
class CountsUnknownSizes(GeneratedFactory):
    provider = EstimatingAnyway


# profiling


class ByTheWallClock(GeneratedPartition):
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
    "times-by-the-wall-clock",
    "profiling",
    breaks="when it began, by :func:`time.perf_counter_ns`.",
    source=SPI + "profiler.py",
    finding="recorded events begin outside of the run: by another clock",
    blames=("start_ns", "perf_counter", "clock", "outside", "began"),
)
class TimesByTheWallClock(GeneratedFactory):
    partition = ByTheWallClock


# speed


class GeneratingAnew(GeneratedPartition):
    def __init__(
        self, made: Program, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        self._limit = limit

    def compute(self, values: list[Any], check: Any) -> None:
        source = program.source_of(self.program, self._limit)
        for function in program.generate(source):
            function(values, self.kernels, check)


@planted(
    "generates-functions-in-each-run",
    "speed",
    breaks="Make *partition* ready to run.",
    source=SPI + "provider.py",
    finding="each run generates and compiles the functions, and takes much longer than "
    "its operators do",
    blames=("each run", "every run", "per run", "per node", "compiles again", "slow"),
)
class GeneratesInEachRun(GeneratedFactory):
    partition = GeneratingAnew


# factory


@planted(
    "drives-whatever-is-there",
    "factory",
    breaks="What is no device of the EP's kind, such as a GPU for an EP of processors, "
    "is just left out.",
    source=SPI + "refused.py",
    finding="it offers itself on GPUs and NPUs, which it does not use",
    blames=("supported_devices", "GPU", "gpu", "NPU", "npu"),
)
class DrivesWhateverIsThere(GeneratedFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for device in devices:
            yield ep.EpDevice(
                ep_name=self.name,
                device=device,
                metadata={"version": self.version},
                by_name_only=True,
            )
