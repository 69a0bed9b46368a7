"""Runs of a program that may be cancelled, and may be measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.words import Command
    from onnxplug_cpu.compiler.runtime.jit import Library
    from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
    from onnxplug_cpu.compiler.runtime.profile import Peaks, Timing

_WORTH_TELLING: Final = 1_000_000
"""ns that measuring the machine takes when it was not measured before."""


class WatchedProgram:
    """A program in runs that have a context.

    Args:
        program: what to run.
        library: has the machine code of kernels.
        workers: threads of a run.
        nodes: the graph's nodes, by index.
    """

    def __init__(
        self,
        program: LinkedProgram,
        library: Library,
        workers: int,
        nodes: Mapping[int, ep.Node],
    ) -> None:
        self._program = program
        self._library = library
        self._workers = workers
        self._nodes = nodes
        self._overhead: int | None = None
        self._facts: list[dict[str, object]] = []

    def run(
        self,
        inputs: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        context: ep.RunContext,
    ) -> None:
        """Compute the outputs, as :meth:`LinkedProgram.run` does.

        A long run ends soon after it was cancelled, at the end of a part.

        Raises:
            RunCancelled: the run was cancelled before its last part ended.
        """

        def look() -> None:
            if context.cancelled:
                raise ep.RunCancelled("the run was cancelled within a program")

        look()
        if context.profiler is not None:
            self._run_profiled(inputs, outputs, context.profiler, look)
        elif not self._program.looks:
            self._program.run(inputs, outputs)
        else:
            self._program.run_in_parts(
                inputs,
                outputs,
                self._program.division.parts,
                lambda part: look(),
                look,
            )

    def _run_profiled(
        self,
        inputs: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        profiler: ep.Profiler,
        look: Any,
    ) -> None:
        # seldom needed, and slow to import for what it takes of statistics
        from onnxplug_cpu.compiler.runtime.profile import overhead_of, profile

        peaks = self._peaks(profiler)
        if self._overhead is None:
            self._overhead = overhead_of(self._program, inputs, outputs)
            self._facts = [self._known_of(c) for c in self._program.commands]
        timings = profile(
            self._program, inputs, outputs, overhead=self._overhead, between=look
        )
        for timing, facts in zip(timings, self._facts, strict=True):
            profiler.record(
                timing.label or timing.kernel,
                category="Node",
                start_ns=timing.start,
                duration_ns=timing.duration,
                details=facts | _rates(timing, peaks),
            )

    def _peaks(self, profiler: ep.Profiler) -> Peaks:
        from onnxplug_cpu.compiler.runtime.profile import measured_peaks

        started = time.perf_counter_ns()
        peaks = measured_peaks(self._library, self._workers)
        taken = time.perf_counter_ns() - started
        if taken > _WORTH_TELLING:
            profiler.record(
                "measure what this machine can do",
                category="Profiling",
                start_ns=started,
                duration_ns=taken,
                details={"GFLOP/s": peaks.gflops, "GB/s": peaks.gbytes},
            )
        return peaks

    def _known_of(self, command: Command) -> dict[str, object]:
        """What is the same of a command in every run."""
        nodes = [self._nodes[index] for index in command.nodes if index in self._nodes]
        operators = "+".join(dict.fromkeys(node.op_type for node in nodes))
        facts: dict[str, object] = {
            "op_name": operators or command.label,
            "tier": "compiled",
            "kernel": command.kernel.key,
            "nodes": [node.name or describe(node) for node in nodes],
        }
        if command.flops:
            facts["flops"] = command.flops
        if command.nbytes:
            facts["bytes"] = command.nbytes
        if command.note:
            facts["note"] = command.note
        return facts


def _rates(timing: Timing, peaks: Peaks) -> dict[str, object]:
    rates: dict[str, object] = {}
    if timing.flops:
        rates["GFLOP/s"] = timing.gflops
    if timing.nbytes:
        rates["GB/s"] = timing.gbytes
    if rates:
        rates["share_of_peak"] = peaks.share(timing)
    return rates
