"""Times, errors and memory of runtimes on one model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .errors import error
from .processes import OURS, Files, Process, Runtime, RuntimeFailed

ROUNDS = 6


class Setting(NamedTuple):
    """How to measure.

    Attributes:
        runtimes: onnxplug, and what it is compared with.
        repeats: how often to begin again with new processes.
        seconds: timed per runtime and repeat.
        cores: numbers of the cores that may be used.
        folder: for results and for compiled kernels.
        clock: one of ``runtimes.CLOCKS``.
    """

    runtimes: Sequence[Runtime]
    repeats: int
    seconds: float
    cores: Sequence[int]
    folder: Path
    clock: str


class Found:
    """What was measured of a model."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.ratios: dict[str, dict[str, list[float]]] = {}
        self.starts: dict[str, dict[str, list[float]]] = {}
        self.errors: dict[str, Mapping[str, float]] = {}
        self.differences: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def started(self, name: str, process: Process, last: Mapping[str, Any]) -> None:
        """Keep what a process took to its first result, and its memory."""
        row = self.starts.setdefault(name, {})
        row.setdefault("start", []).append(process.start)
        row.setdefault("load", []).append(process.hello["load"])
        row.setdefault("first run", []).append(process.hello["first_run"])
        row.setdefault("peak memory", []).append(last.get("peak_memory", 0))

    def timed(self, rounds: Mapping[Runtime, Sequence[float]]) -> None:
        """Keep the times of a repeat, of each runtime in each round."""
        for runtime, times in rounds.items():
            self.times.setdefault(runtime.name, []).append(statistics.median(times))
            if runtime.is_peer:
                continue
            ratios = self.ratios.setdefault(runtime.name, {})
            for other, theirs in rounds.items():
                if other is not runtime:
                    pairs = zip(theirs, times, strict=True)
                    ratio = statistics.median(their / our for their, our in pairs)
                    ratios.setdefault(other.name, []).append(ratio)

    def compared(self, results: Mapping[Runtime, Path], expected: Path | None) -> None:
        """Keep how far results are from *expected*, or else from the peers'."""
        for runtime, path in results.items():
            if expected is not None:
                self.errors[runtime.name] = error(path, expected)._asdict()
            elif runtime.is_peer:
                for ours, found in results.items():
                    if ours.name == OURS:
                        self.differences[runtime.name] = error(found, path).largest

    def report(self, with_starts: bool) -> dict[str, Any]:
        """Medians, and what they are of."""
        median = statistics.median
        found: dict[str, Any] = {
            "seconds": {name: median(times) for name, times in self.times.items()},
            "seconds of each repeat": self.times,
            "ratio": {
                name: {other: median(values) for other, values in ratios.items()}
                for name, ratios in self.ratios.items()
            },
            "ratio of each repeat": self.ratios,
            "failed": self.failed,
        }
        if self.errors:
            found["error"] = self.errors
        if self.differences:
            found["largest difference"] = self.differences
        if with_starts:
            found["start"] = {
                name: {key: median(values) for key, values in row.items()}
                for name, row in self.starts.items()
            }
        return found


def measure(
    files: Files, threads: int, setting: Setting, start: bool
) -> dict[str, Any]:
    """Measure all runtimes on one model.

    ``ratio`` has for each of onnxplug's a ratio to all others: their time divided by
    its own.

    Args:
        start: measure also from the start of a process to its first result, with an
            empty cache of compiled kernels and with a filled one, and peak memory.
    """
    found = Found()
    cores = setting.cores[:threads]
    caches = {
        runtime: setting.folder / "caches" / files.model.stem / str(number)
        for number, runtime in enumerate(setting.runtimes)
    }
    results = {
        runtime: setting.folder / f"results{number}.npz"
        for number, runtime in enumerate(setting.runtimes)
    }

    def process(runtime: Runtime, cache: Path) -> Process:
        return Process(runtime, files, results[runtime], cores, cache, setting.clock)

    for repeat in range(setting.repeats if start else 0):
        for runtime in [some for some in setting.runtimes if not some.is_peer]:
            # the last one is what later processes find
            last = repeat == setting.repeats - 1
            cache = caches[runtime]
            if not last:
                cache = cache.with_name(f"{cache.name}-{repeat}")
            try:
                cold = process(runtime, cache)
            except RuntimeFailed as failure:
                found.failed[runtime.name] = str(failure)
                continue
            found.started(f"{runtime.name}, cold", cold, cold.end())
    for _ in range(setting.repeats):
        running: list[Process] = []
        for runtime in setting.runtimes:
            try:
                running.append(process(runtime, caches[runtime]))
            except RuntimeFailed as failure:
                found.failed[runtime.name] = str(failure)
        found.timed(_turns(running, setting.seconds))
        for one in running:
            found.started(one.runtime.name, one, one.end())
        found.compared({one.runtime: one.results for one in running}, files.expected)
    return found.report(start)


def _turns(
    running: Sequence[Process], seconds: float
) -> dict[Runtime, Sequence[float]]:
    """Seconds of a run, of each process in each round; another begins each time."""
    rounds: dict[Runtime, list[float]] = {process.runtime: [] for process in running}
    for number in range(ROUNDS):
        first = number % max(len(running), 1)
        for process in [*running[first:], *running[:first]]:
            rounds[process.runtime].append(process.time(seconds / ROUNDS))
    return dict(rounds)
