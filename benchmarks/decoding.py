"""A decoder with weights of 4 bits: how long a token takes, and a prompt.

Caches have room and stay where they are (IOBinding), in ONNX Runtime, too; OpenVINO is
given those of before. Runtimes take turns, token by token.

    python benchmarks/decoding.py [--runtimes onnxplug onnxruntime openvino]
        [--threads 1 2] [--layers 16] [--levels 0 4] [--past 128] [--tokens 16]
        [--prompts 128 1024] [--repeats 3] [--cpu-time] [--json FILE]

Bytes a second are those of codes and scales, which one token reads all of; the largest
that memory gives is measured beside. --cpu-time takes the processor's time instead of
the clock's; it is of all threads. Peak memory is that of a process that has one runtime
only: --runtimes with one name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

import numpy as np
from machine import describe_machine
from models.decoder_of_few_bits import Sizes, feeds, save_decoder

Clock: TypeAlias = Callable[[], float]
Feeds: TypeAlias = dict[str, np.ndarray[Any, Any]]


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


def read_bandwidth(threads: int, nbytes: int = 1 << 28) -> float:
    """Bytes a second that so many threads read from memory, the best of ten times."""
    parts = np.ones(nbytes // 8, np.uint64).reshape(threads, -1)
    best = float("inf")
    for _ in range(10):
        workers = [Thread(target=part.max) for part in parts]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - started)
    return nbytes / best


def timed(run: Callable[[Feeds], object], given: Feeds, clock: Clock) -> float:
    """Seconds of one run."""
    started = clock()
    run(given)
    return clock() - started


def few_feeds(sizes: Sizes, new: int, past: int) -> Feeds:
    """What is fed but for the caches."""
    small = feeds(sizes._replace(layers=0), new, past)
    return {name: small[name] for name in ("input_ids", "attention_mask")}


def measure(
    model: Path, sizes: Sizes, threads: int, given: argparse.Namespace, clock: Clock
) -> dict[str, Any]:
    """Medians of seconds, of each runtime."""
    longest = max([given.past + given.tokens + 8, *given.prompts])
    runs: dict[str, Callable[[Feeds], np.ndarray[Any, Any]]] = {}
    for runtime in given.runtimes:
        if runtime == "openvino":
            runs[runtime] = Fed(model, sizes, threads).run
        else:
            runs[runtime] = Bound(runtime, model, sizes, threads, longest).run
    report: dict[str, Any] = {"seconds": {}, "differences": {}}
    work = [("token", given.tokens, 1, given.past)]
    work += [(f"prompt of {n}", given.repeats, n, 0) for n in given.prompts]
    for name, repeats, new, past in work:
        first: np.ndarray[Any, Any] | None = None
        for runtime, run in runs.items():
            logits = run(few_feeds(sizes, new, past))
            if not past:  # with what other caches have, others come of it
                first = logits if first is None else first
                apart = np.abs(logits - first).max() / np.abs(first).max()
                report["differences"][f"{name}, {runtime}"] = float(apart)
        times: dict[str, list[float]] = {runtime: [] for runtime in runs}
        for step in range(repeats):
            for runtime, run in runs.items():
                behind = past + step if new == 1 else past
                fed = few_feeds(sizes, new, behind)
                times[runtime].append(timed(run, fed, clock))
        report["seconds"][name] = {
            runtime: statistics.median(each) for runtime, each in times.items()
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return report | {"peak": peak, "read for a token": sizes.read_for_a_token}


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtimes", nargs="+", default=["onnxplug", "onnxruntime"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--levels", nargs="+", type=int, default=[0, 4])
    parser.add_argument("--past", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompts", nargs="*", type=int, default=[128, 1024])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    report: dict[str, Any] = {"machine": describe_machine(), "measured": []}
    report["arguments"] = {k: str(v) for k, v in vars(given).items()}
    with tempfile.TemporaryDirectory() as folder:
        for level in given.levels:
            sizes = Sizes(layers=given.layers, level=level)
            model = Path(folder, f"level{level}.onnx")
            save_decoder(sizes, model)
            files = Path(folder).glob(f"{model.stem}.*")
            size = sum(each.stat().st_size for each in files)
            print(f"{size / 2**20:.0f} MiB of files")
            for threads in given.threads:
                found = measure(model, sizes, threads, given, clock)
                found |= {"level": level, "threads": threads}
                found["bandwidth"] = read_bandwidth(threads)
                report["measured"].append(found)
                show(found)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


def show(found: dict[str, Any]) -> None:
    """Print what was measured of one level and number of threads."""
    print(f"level {found['level']}, {found['threads']} threads:")
    for name, times in found["seconds"].items():
        each = (f"{runtime} {1e3 * t:.1f} ms" for runtime, t in times.items())
        print(f"  {name}: {', '.join(each)}")
    best = found["bandwidth"]
    for runtime, seconds in found["seconds"]["token"].items():
        rate = found["read for a token"] / seconds
        share = f"{rate / 1e9:.1f} GB/s, {rate / best:.2f} of {best / 1e9:.1f}"
        print(f"  {runtime} reads for a token: {share}")
    print(f"  peak {found['peak'] / 2**20:.0f} MiB; apart by {found['differences']}")


if __name__ == "__main__":
    main()
