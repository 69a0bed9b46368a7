"""What a run costs before any work is done, beside ONNX Runtime.

Four figures: a run of a one-element ``Add`` with fresh values each call, both runtimes
interleaved in one process; the core's part of a run, through an EP that computes
nothing; the same of a run on values bound to a device; and a fresh process from its
start to its first result (import, load, run).  Prints the medians and their ratios, and
writes them as JSON.

    python benchmarks/fixed_cost.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from machine import describe_machine
from onnx import TensorProto, helper

RUNS_PER_ROUND = 2000
ROUNDS = 25
STARTS = 15

START = {
    "onnxplug": """
import sys, numpy as np, onnxplug
session = onnxplug.InferenceSession(sys.argv[1])
x = np.ones(1, np.float32)
assert session.run(None, {"a": x, "b": x})[0][0] == 2
""",
    "onnxruntime": """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(
    sys.argv[1], providers=["CPUExecutionProvider"]
)
x = np.ones(1, np.float32)
assert session.run(None, {"a": x, "b": x})[0][0] == 2
""",
    "numpy alone": "import numpy",
}


def add_model(path: Path) -> None:
    """Write a model of one ``Add`` of two one-element vectors."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "abc"
    ]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "add", values[:2], values[2:]
    )
    imports = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)


def measure_runs(path: Path) -> dict[str, list[float]]:
    """Microseconds per run, one figure per round, the runtimes in turn."""
    import onnxruntime

    import onnxplug

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions: dict[str, Any] = {
        "onnxplug": onnxplug.InferenceSession(path),
        "onnxruntime": onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        ),
    }
    generator = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            feeds = [
                {"a": a, "b": b}
                for a, b in generator.random((RUNS_PER_ROUND, 2, 1), np.float32)
            ]
            times[name].append(_time_runs(session.run, feeds))
    return times


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


def measure_starts(path: Path) -> dict[str, list[float]]:
    """Milliseconds from the start of a process to its end, the programs in turn."""
    times: dict[str, list[float]] = {name: [] for name in START}
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    # installed wheels have their modules compiled; so let editable ones be
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for round in range(STARTS + 1):
        for name, program in START.items():
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", program, str(path)], check=True, env=environment
            )
            if round:  # the first one fills the caches of the file system
                times[name].append((time.perf_counter() - started) * 1e3)
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
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        summary["onnxplug / onnxruntime"] = round(ratio, 3)
    return summary


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("fixed_cost.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "add.onnx"
        add_model(path)
        result = {
            "machine": describe_machine(),
            "run of one-element Add": _summary(measure_runs(path), "µs"),
            "the core's part of a run": _summary(measure_core(), "µs"),
            "the core's part of a bound run": _summary(measure_bound(), "µs"),
            "process start to first result": _summary(measure_starts(path), "ms"),
        }
    text = json.dumps(result, indent=2, ensure_ascii=False)
    arguments.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
