"""Compares onnxplug with ONNX Runtime and OpenVINO in f32, on models of random weights.

Each runtime is a fresh process on the same cores; they take turns, so that whatever
else the machine does meets all of them, and all is repeated with new processes.  A
ratio is the other's time divided by onnxplug's: above 1, onnxplug is faster.  One that
is not installed is left out.

    python benchmarks/compare.py [--models NAME …] [--threads 1,2] [--repeats 3]
        [--seconds 6] [--peers onnxruntime,openvino] [--option KEY=VALUE …]
        [--no-start] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from machine import describe_machine
from models import MODELS
from runtimes import RUNTIMES

OURS, *PEERS = RUNTIMES
START_MODEL = "bert-base"
ROUNDS = 6
TINY = 1e-3
"""Seconds of the fastest runtime below which a model measures the fixed cost."""


class Setting(NamedTuple):
    """How to measure.

    Attributes:
        runtimes: onnxplug and those it is compared with.
        repeats: how often to begin again with new processes.
        seconds: timed per runtime and repeat.
        options: onnxplug's provider options.
        cores: numbers of the cores that may be used.
        cache: where onnxplug keeps compiled kernels.
    """

    runtimes: tuple[str, ...]
    repeats: int
    seconds: float
    options: Mapping[str, str]
    cores: Sequence[int]
    cache: Path


class RuntimeFailed(Exception):
    """A runtime could not load or run a model."""


class Process:
    """A runtime that holds a model, in a process of its own."""

    def __init__(
        self, runtime: str, model: Path, threads: int, setting: Setting, cache: Path
    ) -> None:
        self.results = model.with_suffix(f".{runtime}.npz")
        command = [
            sys.executable,
            str(Path(__file__).with_name("runtimes.py")),
            runtime,
            str(model),
            str(model.with_suffix(".npz")),
            str(self.results),
            str(threads),
            ",".join(map(str, setting.cores[:threads])),
            json.dumps(dict(setting.options)),
        ]
        environment = dict(os.environ, ONNXPLUG_CACHE_DIR=str(cache))
        # installed packages have their modules compiled; so let editable ones be
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.runtime = runtime
        try:
            self.hello = self._answer()
        except RuntimeFailed:
            self.end()
            raise
        self.start = time.perf_counter() - started

    def time(self, seconds: float) -> float:
        """Seconds that a run takes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def end(self) -> dict[str, Any]:
        """End the process; what it says last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        last = [line for line in self._process.stdout if line.startswith("{")]
        self._process.stdout.close()
        self._process.wait()
        return json.loads(last[-1]) if last else {}

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print lines of their own
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeFailed(answer["error"])
                return dict(answer)
        raise RuntimeFailed(f"the process ended with status {self._process.wait()}")


def write_model(name: str, folder: Path) -> Path:
    """Build a model and its inputs as files."""
    case = MODELS[name]()
    path = folder / f"{name}.onnx"
    onnx.save(case.model, path)
    np.savez(path.with_suffix(".npz"), **case.feeds)
    return path


def measure(path: Path, threads: int, setting: Setting) -> dict[str, Any]:
    """Times, ratios and errors of one model."""
    times: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    failed: dict[str, str] = {}
    for _ in range(setting.repeats):
        running: list[Process] = []
        for runtime in setting.runtimes:
            try:
                running.append(Process(runtime, path, threads, setting, setting.cache))
            except RuntimeFailed as error:
                failed[runtime] = str(error)
        rounds: dict[str, list[float]] = {process.runtime: [] for process in running}
        for number in range(ROUNDS):
            first = number % max(len(running), 1)
            for process in [*running[first:], *running[:first]]:
                measured = process.time(setting.seconds / ROUNDS)
                rounds[process.runtime].append(measured)
        results = {process.runtime: process.results for process in running}
        for process in running:
            process.end()
        for runtime, measured_ in rounds.items():
            times.setdefault(runtime, []).append(statistics.median(measured_))
        for peer in [name for name in rounds if name != OURS and OURS in rounds]:
            pairs = zip(rounds[peer], rounds[OURS], strict=True)
            found = statistics.median(theirs / ours for theirs, ours in pairs)
            ratios.setdefault(peer, []).append(found)
            errors[peer] = _error(results[OURS], results[peer])
    return {
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "seconds of each repeat": times,
        "ratio": {name: statistics.median(values) for name, values in ratios.items()},
        "ratio of each repeat": ratios,
        "largest difference": errors,
        "failed": failed,
    }


def _error(ours: Path, theirs: Path) -> float:
    """The largest difference of an output, relative to its largest magnitude."""
    worst = 0.0
    with np.load(ours) as mine, np.load(theirs) as other:
        for name in other.files:
            a, b = mine[name].astype(np.float64), other[name].astype(np.float64)
            if a.shape != b.shape:
                return math.inf
            scale = float(np.abs(b).max(initial=0)) or 1.0
            difference = float(np.abs(a - b).max(initial=0)) / scale
            worst = max(worst, math.inf if math.isnan(difference) else difference)
    return worst


def measure_start(path: Path, threads: int, setting: Setting) -> dict[str, Any]:
    """From a process's start to the end of its first run, and its peak memory.

    *cold* is with nothing in onnxplug's cache, *warm* with all it puts there; files
    are in the system's cache both times.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for repeat in range(setting.repeats + 1):
        for runtime in setting.runtimes:
            for state in ("cold", "warm") if runtime == OURS else ("warm",):
                with tempfile.TemporaryDirectory() as empty:
                    cache = Path(empty) if state == "cold" else setting.cache
                    try:
                        process = Process(runtime, path, threads, setting, cache)
                    except RuntimeFailed as error:
                        print(f"  {runtime} failed: {error}")
                        continue
                    memory = process.end().get("peak_memory", 0)
                if repeat:  # the first one fills the caches
                    row = found.setdefault(f"{runtime}, {state}", {})
                    row.setdefault("start", []).append(process.start)
                    row.setdefault("load", []).append(process.hello["load"])
                    row.setdefault("first run", []).append(process.hello["first_run"])
                    row.setdefault("peak memory", []).append(memory)
    return {
        name: {key: statistics.median(values) for key, values in row.items()}
        for name, row in found.items()
    }


# what is printed


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.4g} ms"


def row(name: str, result: Mapping[str, Any], runtimes: Sequence[str]) -> str:
    """A line of the table."""
    text = f"{name:24}"
    for runtime in runtimes:
        text += f"{_milliseconds(result['seconds'].get(runtime)):>12}"
        if runtime != OURS:
            ratio = result["ratio"].get(runtime)
            text += f"  {'–' if ratio is None else f'{ratio:.2f}×':>7}"
            error = result["largest difference"].get(runtime)
            text += f"  {'–' if error is None else f'{error:.0e}':>6}"
    for runtime, error in result["failed"].items():
        text += f"\n  {runtime} failed: {error}"
    return text


def header(runtimes: Sequence[str]) -> str:
    """The table's first line."""
    text = f"{'model':24}"
    for runtime in runtimes:
        text += f"{runtime:>12}"
        if runtime != OURS:
            text += f"  {'ratio':>7}  {'error':>6}"
    return text


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The geometric means of ratios, of tiny models apart."""
    means: dict[str, dict[str, float]] = {}
    for kind, tiny in (("models of 1 ms and more", False), ("tiny models", True)):
        logs: dict[str, list[float]] = {}
        for result in results:
            if result["ratio"] and (min(result["seconds"].values()) < TINY) == tiny:
                for peer, ratio in result["ratio"].items():
                    logs.setdefault(peer, []).append(math.log(ratio))
                best = min(result["ratio"].values())
                logs.setdefault("the better one", []).append(math.log(best))
        if logs:
            means[kind] = {
                name: math.exp(statistics.fmean(values))
                for name, values in logs.items()
            }
    return means


def compare(
    names: Sequence[str],
    threads: Sequence[int],
    setting: Setting,
    folder: Path,
    start: bool,
) -> dict[str, Any]:
    """Measure and print; all that was found."""
    report: dict[str, Any] = {"threads": {}, "start": {}}
    paths = {name: write_model(name, folder) for name in names}
    for count in threads:
        print(f"\n{count} thread(s)\n{header(setting.runtimes)}", flush=True)
        results: dict[str, Any] = {}
        for name, path in paths.items():
            results[name] = measure(path, count, setting)
            print(row(name, results[name], setting.runtimes), flush=True)
        means = summary(list(results.values()))
        for kind, ratios in means.items():
            written = ", ".join(
                f"{name} {ratio:.3f}×" for name, ratio in ratios.items()
            )
            print(f"geometric mean, {kind}: {written}", flush=True)
        report["threads"][count] = {"models": results, "geometric means": means}
    if start and START_MODEL in paths:
        print(f"\n{START_MODEL}: process start to first result, 1 thread", flush=True)
        report["start"] = measure_start(paths[START_MODEL], 1, setting)
        for name, found in report["start"].items():
            print(
                f"{name:24}{found['start']:8.3f} s (load {found['load']:.3f} s, first "
                f"run {found['first run']:.3f} s)"
                f"{found['peak memory'] / 2**20:8.0f} MiB at most",
                flush=True,
            )
    return report


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), metavar="NAME")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-start", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON if that is asked for."""
    arguments = _parse(words)
    runtimes = [OURS]
    for peer in filter(None, arguments.peers.split(",")):
        if peer not in PEERS:
            sys.exit(f"compare.py: {peer!r} is none of {', '.join(PEERS)}")
        if importlib.util.find_spec(peer):
            runtimes.append(peer)
        else:
            print(f"{peer} is not installed, and left out; pip install {peer}")
    cores = sorted(os.sched_getaffinity(0))
    threads = [int(count) for count in arguments.threads.split(",")]
    for count in threads:
        if count > len(cores):
            print(f"{count} threads are left out: there are {len(cores)} cores")
    threads = [count for count in threads if count <= len(cores)]
    machine = describe_machine()
    print(json.dumps(machine, indent=2, ensure_ascii=False))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = folder / "cache"
        setting = Setting(
            tuple(runtimes),
            arguments.repeats,
            arguments.seconds,
            dict(option.split("=", 1) for option in arguments.option),
            cores,
            cache,
        )
        models = arguments.models or list(MODELS)
        report = compare(models, threads, setting, folder, not arguments.no_start)
    if arguments.json:
        about = {
            "runtimes": runtimes,
            "repeats": setting.repeats,
            "seconds per runtime and repeat": setting.seconds,
            "onnxplug's options": setting.options,
        }
        text = json.dumps(
            {"machine": machine, "settings": about, **report},
            indent=2,
            ensure_ascii=False,
        )
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
