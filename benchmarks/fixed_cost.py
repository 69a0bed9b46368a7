"""What a run costs before any work is done, beside ONNX Runtime.

Runs of models whose kernels take next to nothing, with one thread, both runtimes
interleaved in one process, by the processor's time of the calling thread; the ways to
run one of them; the core's part of a run, through an EP that computes nothing; and the
same of a run on values bound to a device.  Prints the medians and their ratios, and
writes them as JSON.

    python benchmarks/fixed_cost.py [--output FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from machine import describe_machine
from models.tiny import CASES

RUNS_PER_ROUND = 2000
ROUNDS = 25


def _sessions(model: bytes) -> dict[str, Any]:
    import onnxruntime

    import onnxplug

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    own = onnxplug.SessionOptions()
    own.intra_op_num_threads = 1
    return {
        "onnxplug": onnxplug.InferenceSession(model, own),
        "onnxruntime": onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        ),
    }


def _in_turn(
    calls: Mapping[str, Callable[[Any], object]], feeds: Sequence[Any]
) -> dict[str, list[float]]:
    """Microseconds of a call, one figure per round, the runtimes in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeated = list(feeds) * -(-RUNS_PER_ROUND // len(feeds))
    for round in range(ROUNDS + 1):
        for name, call in calls.items():
            began = time.thread_time()
            for feed in repeated:
                call(feed)
            taken = time.thread_time() - began
            if round:  # the first makes plans
                times[name].append(taken / len(repeated) * 1e6)
    return times


def measure_runs() -> dict[str, dict[str, list[float]]]:
    """Of each small model, for each runtime the microseconds of a run."""
    found = {}
    for name, case in CASES.items():
        tiny = case()
        sessions = _sessions(tiny.model.SerializeToString())
        calls = {
            runtime: functools.partial(session.run, None)
            for runtime, session in sessions.items()
        }
        found[name] = _in_turn(calls, tiny.feeds)
    return found


def measure_ways() -> dict[str, dict[str, list[float]]]:
    """Of each way to run a perceptron, for each runtime the microseconds of a run."""
    import onnxruntime

    import onnxplug

    tiny = CASES["a perceptron"]()
    sessions = _sessions(tiny.model.SerializeToString())
    modules = {"onnxplug": onnxplug, "onnxruntime": onnxruntime}
    (feed,) = tiny.feeds
    found = {}
    for way, prepare in WAYS.items():
        calls = {
            runtime: prepare(modules[runtime], session, feed)
            for runtime, session in sessions.items()
        }
        found[way] = _in_turn(calls, [feed])
    return found


Way: TypeAlias = Callable[[Any, Any, Mapping[str, Any]], Callable[[Any], object]]


def _names(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    return lambda feed: session.run(["y"], feed)


def _options(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    options = module.RunOptions()
    return lambda feed: session.run(None, feed, options)


def _lists(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    lists = {name: array.tolist() for name, array in feed.items()}
    return lambda feed: session.run(None, lists)


def _values(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    values = {
        name: module.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()
    }
    return lambda feed: session.run_with_ort_values(["y"], values)


def _bound(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    binding = session.io_binding()
    binding.bind_cpu_input("x", feed["x"])
    target = module.OrtValue.ortvalue_from_numpy(np.zeros((1, 3), np.float32))
    binding.bind_ortvalue_output("y", target)
    return lambda feed: session.run_with_iobinding(binding)


def _bound_anew(module: Any, session: Any, feed: Mapping[str, Any]) -> Any:
    def run(feed: Mapping[str, Any]) -> object:
        binding = session.io_binding()
        binding.bind_cpu_input("x", feed["x"])
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return run


WAYS: Final[Mapping[str, Way]] = {
    "names of outputs": _names,
    "run options": _options,
    "lists": _lists,
    "OrtValues": _values,
    "bound once": _bound,
    "bound anew": _bound_anew,
}


def _time_runs(run: Callable[..., Any], feeds: list[Mapping[str, Any]]) -> float:
    started = time.perf_counter()
    for feed in feeds:
        run(None, feed)
    return (time.perf_counter() - started) / len(feeds) * 1e6


def measure_core() -> dict[str, list[float]]:
    """Microseconds per run that are not an EP's, one figure per round."""
    from core_alone import CASES, prepare_run

    runs = {name: prepare_run(case) for name, case in CASES.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            feeds = [CASES[name].feed] * RUNS_PER_ROUND
            times[name].append(_time_runs(run, feeds))
    return times


def measure_bound() -> dict[str, list[float]]:
    """Microseconds per run on bound values that are not an EP's, one per round."""
    from bound_alone import prepare_runs

    runs = prepare_runs()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            started = time.perf_counter()
            for _ in range(RUNS_PER_ROUND):
                run()
            times[name].append((time.perf_counter() - started) / RUNS_PER_ROUND * 1e6)
    return times


def _summary(times: Mapping[str, list[float]], unit: str) -> dict[str, Any]:
    medians = {name: statistics.median(values) for name, values in times.items()}
    summary: dict[str, Any] = {
        "unit": unit,
        "medians": {name: round(value, 2) for name, value in medians.items()},
        "minima": {name: round(min(values), 2) for name, values in times.items()},
    }
    if "onnxruntime" in times:
        pairs = zip(times["onnxplug"], times["onnxruntime"], strict=True)
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        summary["onnxruntime / onnxplug"] = round(ratio, 3)
    return summary


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("fixed_cost.json"))
    arguments = parser.parse_args()
    result = {
        "machine": describe_machine(),
        "runs": {n: _summary(each, "µs") for n, each in measure_runs().items()},
        "ways": {n: _summary(each, "µs") for n, each in measure_ways().items()},
        "the core's part of a run": _summary(measure_core(), "µs"),
        "the core's part of a bound run": _summary(measure_bound(), "µs"),
    }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    arguments.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
