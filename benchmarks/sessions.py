"""Several sessions at once: throughput and the slowest runs, beside ONNX Runtime.

One, two and four sessions run at the same time, as threads of one process and as
processes, with fewer and with more threads than there are cores, and within limits: one
core of the process's affinity, or a quota of its control group.

    python benchmarks/sessions.py [--models mlp] [--sessions 1 2 4] [--threads 1 2 4]
        [--limits none affinity quota] [--seconds 1] [--rounds 3] [--json FILE]

The runtimes take turns.  Of each setting, the table has the runs a second of all
sessions and the 99th percentile of the time of a run, in ms, and the processor's time
that a run takes; then ONNX Runtime's p99 and throughput in proportion, above 1 where
onnxplug is better.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from machine import describe_machine
from models.concurrent import MODELS
from runtimes import prepare

RUNTIMES = ("onnxplug", "onnxruntime")
QUANTILES = 1000
"""Times of runs that a process tells: so many quantiles."""

QUOTA = 1.0
"""Processors that a control group may use, in periods of a tenth of a second."""


class Setting(NamedTuple):
    """What is measured.

    Attributes:
        kind: whether sessions are ``threads`` of one process or ``processes``.
        threads: of each session.
        limit: ``none``, ``affinity`` or ``quota``.
    """

    model: str
    kind: str
    sessions: int
    threads: int
    limit: str


# a process that is measured


def serve(runtime: str, model: str, threads: int, sessions: int) -> None:
    """Hold sessions; for each line, a number of seconds, run all as long, and tell."""
    with np.load(f"{model}.npz") as file:
        feeds = dict(file)
    path = f"{model}.onnx"
    runs = [prepare(runtime, path, feeds, threads, {}) for _ in range(sessions)]
    for run in runs:
        run(), run()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(runs, float(line))), flush=True)


def measure(runs: Sequence[Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """Do all *runs* again and again, each in a thread of its own."""
    barrier = threading.Barrier(len(runs))
    times: list[list[float]] = [[] for _ in runs]

    def again(run: Callable[[], Any], taken: list[float]) -> None:
        barrier.wait()
        now = time.perf_counter()
        end = now + seconds
        while now < end:
            run()
            before, now = now, time.perf_counter()
            taken.append(now - before)

    used = time.process_time()
    began = time.perf_counter()
    others = [
        threading.Thread(target=again, args=each)
        for each in zip(runs[1:], times[1:], strict=True)
    ]
    for thread in others:
        thread.start()
    again(runs[0], times[0])
    for thread in others:
        thread.join()
    every = np.concatenate([np.array(each) for each in times])
    return {
        "runs": every.size / (time.perf_counter() - began),
        "cpu": (time.process_time() - used) / every.size,
        "times": np.quantile(every, np.linspace(0, 1, QUANTILES)).tolist(),
    }


# the one that measures


class Processes:
    """The processes of one runtime in one setting."""

    def __init__(
        self, runtime: str, setting: Setting, folder: Path, group: Group
    ) -> None:
        apart = setting.sessions if setting.kind == "processes" else 1
        each = setting.sessions // apart
        model = str(folder / setting.model)
        arguments = [runtime, model, str(setting.threads), str(each)]

        def limited() -> None:
            if setting.limit == "affinity":
                os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
            if setting.limit == "quota":
                group.enter()

        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=limited,
            )
            for _ in range(apart)
        ]
        for process in self._processes:
            self._answer(process)

    def measure(self, seconds: float) -> dict[str, float]:
        """What all of them do together for about so long."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        told = [self._answer(process) for process in self._processes]
        times = np.concatenate([each["times"] for each in told])
        return {
            "runs": sum(each["runs"] for each in told),
            "p50": float(np.quantile(times, 0.5)) * 1e3,
            "p99": float(np.quantile(times, 0.99)) * 1e3,
            "longest": float(times.max()) * 1e3,
            "cpu": statistics.fmean(each["cpu"] for each in told) * 1e3,
        }

    def _answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with {process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


class Group:
    """A control group with a quota of processors, where one can be made."""

    def __init__(self) -> None:
        old = Path("/sys/fs/cgroup/cpu")
        self._folder = (old if old.is_dir() else old.parent) / "onnxplug-benchmark"
        self.exists = False
        period = 100_000
        with contextlib.suppress(OSError):
            self._folder.mkdir()
            self.exists = True
            if old.is_dir():
                (self._folder / "cpu.cfs_period_us").write_text(str(period))
                quota = self._folder / "cpu.cfs_quota_us"
                quota.write_text(str(int(QUOTA * period)))
            else:
                limit = f"{int(QUOTA * period)} {period}"
                (self._folder / "cpu.max").write_text(limit)
            return
        self.close()

    def enter(self) -> None:
        """Put the calling process into it."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        """Remove it, which no process is in any more."""
        if self.exists:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
            self.exists = False


def measure_setting(
    setting: Setting, folder: Path, group: Group, seconds: float, rounds: int
) -> dict[str, Any]:
    """Medians of the rounds for each runtime, and of their proportions."""
    processes = {
        runtime: Processes(runtime, setting, folder, group) for runtime in RUNTIMES
    }
    found: dict[str, list[dict[str, float]]] = {runtime: [] for runtime in RUNTIMES}
    try:
        for turn in range(rounds):
            for runtime in RUNTIMES[:: 1 if turn % 2 else -1]:
                processes[runtime].measure(seconds / 10)
                found[runtime].append(processes[runtime].measure(seconds))
    finally:
        for each in processes.values():
            each.close()
    pairs = list(zip(*(found[runtime] for runtime in RUNTIMES), strict=True))
    return {
        **setting._asdict(),
        **{
            runtime: {
                key: round(statistics.median(each[key] for each in found[runtime]), 4)
                for key in found[runtime][0]
            }
            for runtime in RUNTIMES
        },
        "throughput": _median([one["runs"] / other["runs"] for one, other in pairs]),
        "p99": _median([other["p99"] / one["p99"] for one, other in pairs]),
    }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2)


def settings(arguments: argparse.Namespace) -> Iterator[Setting]:
    """Those that are asked for; a single session is one process, whatever its kind."""
    for model, limit, sessions, threads, kind in itertools.product(
        arguments.models,
        arguments.limits,
        arguments.sessions,
        arguments.threads,
        ("threads", "processes"),
    ):
        if sessions > 1 or kind == "threads":
            yield Setting(model, kind, sessions, threads, limit)


def write_models(names: Sequence[str], folder: Path) -> None:
    """Build the models, and their inputs."""
    for name in names:
        case = MODELS[name]()
        onnx.save(case.model, folder / f"{name}.onnx")
        np.savez(folder / f"{name}.npz", **case.feeds)


def line_of(found: Mapping[str, Any]) -> str:
    """A line of the table."""
    ours, theirs = (found[runtime] for runtime in RUNTIMES)
    return (
        f"{found['model']:12} {found['limit']:8} {found['sessions']} {found['kind']:9} "
        f"{found['threads']} threads: {ours['runs']:10.1f}/s {ours['p99']:8.3f} ms "
        f"cpu {ours['cpu']:8.3f}  ort {theirs['runs']:10.1f}/s {theirs['p99']:8.3f} ms "
        f"cpu {theirs['cpu']:8.3f}  throughput {found['throughput']:5.2f} "
        f"p99 {found['p99']:5.2f}"
    )


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 4])
    limits = ["none", "affinity", "quota"]
    parser.add_argument("--limits", nargs="+", choices=limits, default=limits)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("sessions.json"))
    arguments = parser.parse_args()
    group = Group()
    if not group.exists and "quota" in arguments.limits:
        print("no control group can be made here: the quota is left out")
        arguments.limits.remove("quota")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(arguments.models, folder)
        try:
            for setting in settings(arguments):
                results.append(
                    measure_setting(
                        setting, folder, group, arguments.seconds, arguments.rounds
                    )
                )
                print(line_of(results[-1]), flush=True)
        finally:
            group.close()
    document = {"machine": describe_machine(), "results": results}
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        kind, path, threads, sessions = sys.argv[2:]
        serve(kind, path, int(threads), int(sessions))
    else:
        main()
