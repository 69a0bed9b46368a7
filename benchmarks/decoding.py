"""A decoder with weights of 4 bits: how long a token takes, and a prompt.

Each runtime has a process of its own; they take turns.  Caches have room and stay where
they are (IOBinding), in ONNX Runtime, too; OpenVINO is given those of before.

    python benchmarks/decoding.py [--runtimes onnxplug onnxruntime openvino]
        [--threads 1 2] [--layers 16] [--levels 0 4] [--past 128] [--tokens 16]
        [--prompts 128 1024] [--repeats 3] [--cpu-time] [--json FILE]

Times are medians of a process, and of processes; ratios are those of each turn, and
their median.  Long prompts are run once, in the first turn, and a plan is made then.
Bytes a second are those of codes and scales, which one token reads all of; the largest
that memory gives is measured beside.  --cpu-time takes the processor's time instead of
the clock's; it is of all threads, and ratios are best told of one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeAlias

import numpy as np
from machine import describe_machine
from models.decoder_of_few_bits import Sizes, feeds, save_decoder
from runtimes import peak_memory

Clock: TypeAlias = Callable[[], float]
Feeds: TypeAlias = dict[str, np.ndarray[Any, Any]]

OURS: Final = "onnxplug"
_LONG: Final = 512
"""From so many tokens on a prompt is run once, in the first turn, and not before."""


class Bound:
    """A session of a runtime with ONNX Runtime's interface, and its caches.

    Args:
        runtime: its module.
        capacity: rows of the caches.
    """

    def __init__(
        self, runtime: str, model: Path, sizes: Sizes, threads: int, capacity: int
    ) -> None:
        self.module: Any = importlib.import_module(runtime)
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = self.module.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        found = feeds(sizes, 1, capacity)
        self.caches = {
            name: self.module.OrtValue.ortvalue_from_numpy(array)
            for name, array in found.items()
            if name.startswith("past")
        }

    def run(self, given: Feeds) -> np.ndarray[Any, Any]:
        """The logits, of what is fed but for the caches."""
        binding = self.session.io_binding()
        for name in ("input_ids", "attention_mask"):
            binding.bind_cpu_input(name, given[name])
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(f"present{name[4:]}", value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        found: np.ndarray[Any, Any] = binding.get_outputs()[-1].numpy()
        return found


class Fed:
    """OpenVINO, which is given the caches."""

    def __init__(self, model: Path, sizes: Sizes, threads: int) -> None:
        import openvino

        self.sizes = sizes
        how = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(str(model), "CPU", how)
        self.request = compiled.create_infer_request()

    def run(self, given: Feeds) -> np.ndarray[Any, Any]:
        """The logits."""
        new = given["input_ids"].shape[1]
        past = given["attention_mask"].shape[1] - new
        whole = {**feeds(self.sizes, new, past), **given}
        found: np.ndarray[Any, Any] = self.request.infer(whole)["logits"]
        return found


def read_bandwidth(threads: int, nbytes: int = 1 << 30) -> float:
    """Bytes a second that so many threads read from memory, the best of five times."""
    parts = np.ones(nbytes // 8, np.uint64).reshape(threads, -1)
    best = float("inf")
    for _ in range(5):
        workers = [Thread(target=part.max) for part in parts]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - started)
    return nbytes / best


def few_feeds(sizes: Sizes, new: int, past: int) -> Feeds:
    """What is fed but for the caches."""
    small = feeds(sizes._replace(layers=0), new, past)
    return {name: small[name] for name in ("input_ids", "attention_mask")}


def timed(run: Callable[[Feeds], object], given: Feeds, clock: Clock) -> float:
    """Seconds of one run."""
    started = clock()
    run(given)
    return clock() - started


def alone(given: argparse.Namespace) -> None:
    """Measure a runtime in this process, and print what was found as JSON; the logits
    of the first prompt are written to a file."""
    threads, (level,), (runtime,) = given.threads[0], given.levels, given.runtimes
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    clock = time.process_time if given.cpu_time else time.perf_counter
    sizes = Sizes(layers=given.layers, level=level)
    started = clock()
    longest = max([given.past + given.tokens + 8, *given.prompts])
    if runtime == "openvino":
        run = Fed(given.alone, sizes, threads).run
    else:
        run = Bound(runtime, given.alone, sizes, threads, longest).run
    found: dict[str, Any] = {"load": clock() - started, "seconds": {}}
    run(few_feeds(sizes, 1, given.past))
    found["seconds"]["token"] = statistics.median(
        timed(run, few_feeds(sizes, 1, given.past + step), clock)
        for step in range(given.tokens)
    )
    for number, length in enumerate(given.prompts):
        fed = few_feeds(sizes, length, 0)
        if number == 0:
            np.save(given.logits, run(fed)[0, -1])
        elif length < _LONG:
            run(fed)
        times = [timed(run, fed, clock) for _ in range(1 if length >= _LONG else 3)]
        found["seconds"][f"prompt of {length}"] = statistics.median(times)
    found["peak"] = peak_memory()
    print(json.dumps(found))


def logits_of(runtime: str, model: Path) -> Path:
    """Where a runtime writes its logits."""
    return model.with_name(f"{runtime}.npy")


def in_its_process(
    runtime: str,
    model: Path,
    threads: int,
    prompts: Sequence[int],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """What :func:`alone` finds of a runtime."""
    logits = logits_of(runtime, model)
    command = [sys.executable, __file__, "--alone", str(model), "--logits", str(logits)]
    for name in ("layers", "past", "tokens"):
        command += [f"--{name}", str(getattr(given, name))]
    level = model.stem.removeprefix("level")
    command += ["--runtimes", runtime, "--threads", str(threads), "--levels", level]
    command += ["--prompts", *map(str, prompts)]
    command += ["--cpu-time"] * given.cpu_time
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(model: Path, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Medians of seconds and of ratios, of all runtimes."""
    turns: list[dict[str, dict[str, Any]]] = []
    for turn in range(given.repeats):
        prompts = [each for each in given.prompts if each < _LONG or not turn]
        turns.append(
            {
                name: in_its_process(name, model, threads, prompts, given)
                for name in given.runtimes
            }
        )
    names = turns[0][given.runtimes[0]]["seconds"]
    report: dict[str, Any] = {"turns": turns, "threads": threads}
    report["seconds"] = {
        work: {
            name: statistics.median(
                turn[name]["seconds"][work]
                for turn in turns
                if work in turn[name]["seconds"]
            )
            for name in given.runtimes
        }
        for work in names
    }
    report["ratio"] = ratios(turns, names, given.runtimes)
    report["peak"] = {
        name: statistics.median(turn[name]["peak"] for turn in turns)
        for name in given.runtimes
    }
    if given.prompts:
        report["differences"] = differences(
            {name: logits_of(name, model) for name in given.runtimes}
        )
    report["bandwidth"] = read_bandwidth(threads)
    return report


def ratios(
    turns: Sequence[Mapping[str, Mapping[str, Any]]],
    names: Sequence[str],
    runtimes: Sequence[str],
) -> dict[str, dict[str, float]]:
    """How many times as long others take, the median of turns."""
    if OURS not in runtimes:
        return {}
    return {
        work: {
            name: statistics.median(
                turn[name]["seconds"][work] / turn[OURS]["seconds"][work]
                for turn in turns
                if work in turn[name]["seconds"]
            )
            for name in runtimes
            if name != OURS
        }
        for work in names
    }


def differences(logits: Mapping[str, Path]) -> dict[str, float]:
    """How far each runtime's logits are from those of the first, of the largest."""
    found = {name: np.load(path) for name, path in logits.items()}
    first = next(iter(found.values()))
    return {
        name: float(np.abs(each - first).max() / np.abs(first).max())
        for name, each in found.items()
    }


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    runtimes = [OURS, "onnxruntime", "openvino"]
    parser.add_argument("--runtimes", nargs="+", default=runtimes)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 4])
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompts", nargs="*", type=int, default=[128, 1024])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--logits", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        alone(given)
        return
    report: dict[str, Any] = {"machine": describe_machine(), "measured": []}
    report["arguments"] = {k: str(v) for k, v in vars(given).items()}
    with tempfile.TemporaryDirectory() as folder:
        for level in given.levels:
            sizes = Sizes(layers=given.layers, level=level)
            model = Path(folder, f"level{level}.onnx")
            save_decoder(sizes, model)
            for threads in given.threads:
                found = measure(model, threads, given)
                found |= {"level": level, "read for a token": sizes.read_for_a_token}
                report["measured"].append(found)
                show(found)
                if given.json:  # what there is, should the next one fail
                    given.json.write_text(json.dumps(report, indent=1), "utf-8")


def show(found: dict[str, Any]) -> None:
    """Print what was measured of one level and number of threads."""
    print(f"level {found['level']}, threads: {found['threads']}")
    for work, times in found["seconds"].items():
        each = [f"{name} {1e3 * t:.1f} ms" for name, t in times.items()]
        others = found["ratio"].get(work, {}).items()
        each += [f"{name} / {OURS} {ratio:.2f}" for name, ratio in others]
        print(f"  {work}: {', '.join(each)}")
    best = found["bandwidth"]
    for name, seconds in found["seconds"]["token"].items():
        rate = found["read for a token"] / seconds
        share = f"{rate / 1e9:.1f} GB/s, {rate / best:.2f} of {best / 1e9:.1f}"
        print(f"  {name} reads for a token: {share}")
    peaks = (f"{name} {peak / 2**20:.0f} MiB" for name, peak in found["peak"].items())
    print(
        f"  peak: {', '.join(peaks)}; apart by {found.get('differences')}", flush=True
    )


if __name__ == "__main__":
    main()
