"""What Ray Data costs: a session by itself in one process, and behind Ray's actors.

    python benchmarks/ray_data.py [OUTPUT.json] [--models NAME …] [--seconds 8]

needs onnxplug-ray.  A run of the session, with one thread, on the batch that actors
get, takes turns with pipelines of one and of two actors of one core each, on the same
rows, which are in Ray's object store before, in blocks of about a second.  Sessions in
two processes, without Ray, tell what two cores lose to each other.  A pipeline counts
from its first batch to the last while all actors have some: starting is told apart.
Rows a second of processor time are of the processes that run sessions, with all that
Ray has them do.  As a machine's speed drifts by more than Ray takes, two actors also
run each batch once more by their session alone, and tell that time's share of all that
the first took.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import onnx
import ray
from machine import describe_machine
from models.varying import varying_bert
from onnx import helper, numpy_helper

import onnxplug
import onnxplug_ray

ROUNDS: Final = 3
LENGTH: Final = 128
STORED: Final = 512 << 20
"""Bytes of rows in the object store, at most."""
BLOCK_SECONDS: Final = 1.0
"""Of a session's work in a block, about: a task of Ray has a cost of its own."""

LAYERS: Final = (3, 4, 6, 3)
"""Of ResNet-50, by stage."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, rows of its inputs, and how many rows are in a batch."""

    model: Callable[[], onnx.ModelProto]
    row: Callable[[np.random.Generator, int], dict[str, Any]]
    batch: int


def perceptron() -> onnx.ModelProto:
    """Four layers of 1024 by 1024 float32."""
    build = _Builder()
    last = "x"
    for _ in range(4):
        last = build.add("MatMul", last, build.weight(1024, 1024, fan=1024))
        last = build.add("Relu", last)
    return build.finish("perceptron", {"x": ["N", 1024]}, {last: ["N", 1024]})


def resnet50() -> onnx.ModelProto:
    """ResNet-50 v1.5 with its batch normalisations folded, as exporters leave it."""
    build = _Builder()

    def conv(x: str, inner: int, outer: int, size: int, stride: int = 1) -> str:
        weight = build.weight(outer, inner, size, size, fan=inner * size * size)
        return build.add(
            "Conv", x, weight, build.weight(outer, fan=1e6),
            strides=[stride] * 2, pads=[size // 2] * 4,
        )  # fmt: skip

    x = build.add("Relu", conv("x", 3, 64, 7, 2))
    x = build.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for stage, blocks in enumerate(LAYERS):
        middle = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = build.add("Relu", conv(x, width, middle, 1))
            y = build.add("Relu", conv(y, middle, middle, 3, stride))
            y = conv(y, middle, 4 * middle, 1)
            if not block:
                x = conv(x, width, 4 * middle, 1, stride)
            width = 4 * middle
            x = build.add("Relu", build.add("Add", x, y))
    x = build.add("Flatten", build.add("GlobalAveragePool", x))
    x = build.add("MatMul", x, build.weight(width, 1000, fan=width))
    return build.finish("resnet50", {"x": ["N", 3, 224, 224]}, {x: ["N", 1000]})


class _Builder:
    """A graph of random weights, which are small enough for values to stay finite."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int, fan: float) -> str:
        name = f"w{len(self._weights)}"
        values = self._rng.standard_normal(shape, np.float32) / np.float32(fan**0.5)
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def finish(
        self, name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> onnx.ModelProto:
        def infos(values: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
            return [
                helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape)
                for key, shape in values.items()
            ]

        graph = helper.make_graph(
            self._nodes, name, infos(inputs), infos(outputs), self._weights
        )
        opset = helper.make_opsetid("", 21)
        return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def _floats(*shape: int) -> Callable[[np.random.Generator, int], dict[str, Any]]:
    return lambda rng, count: {"x": rng.standard_normal((count, *shape), np.float32)}


def _tokens(rng: np.random.Generator, count: int) -> dict[str, Any]:
    return {
        "input_ids": rng.integers(0, 30522, (count, LENGTH)),
        "attention_mask": np.ones((count, LENGTH), np.int64),
    }


CASES: Final = {
    "perceptron": Case(perceptron, _floats(1024), 64),
    "perceptron, larger batches": Case(perceptron, _floats(1024), 512),
    "resnet50": Case(resnet50, _floats(3, 224, 224), 4),
    "bert-base": Case(varying_bert, _tokens, 4),
}


def options() -> onnxplug.SessionOptions:
    """One thread, in whatever process."""
    made = onnxplug.SessionOptions()
    made.intra_op_num_threads = 1
    return made


class Timed(onnxplug_ray.Predictor):
    """Tells when a batch was begun and done, by the machine's clock, and how much of
    the processor its process had used by then.

    Args:
        again: run each batch once more, by the session alone, and tell what such runs
            used of the processor so far.
    """

    def __init__(self, *, again: bool, **options: Any) -> None:
        super().__init__(**options)
        self._again = again
        self._alone = 0.0

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        found = super().__call__(batch)
        ended = time.monotonic()
        if self._again:
            # other threads make the next batch meanwhile, which is not the session's
            start = time.thread_time()
            self.session.run(None, dict(batch))
            self._alone += time.thread_time() - start
        told = {
            "began": began,
            "ended": ended,
            "used": time.process_time(),
            "alone": self._alone,
            "actor": os.getpid(),
        }
        return {name: np.full(len(found["eps"]), each) for name, each in told.items()}


def bare(
    session: Any, rows: Mapping[str, Any], batch: int, seconds: float
) -> dict[str, float]:
    """Rows a second of the session by itself, which runs batch after batch."""
    count = len(next(iter(rows.values())))
    done, began, used = 0, time.monotonic(), time.process_time()
    while (elapsed := time.monotonic() - began) < seconds:
        at = done % count
        feeds = {name: values[at : at + batch] for name, values in rows.items()}
        session.run(None, feeds)
        done += batch
    return {
        "rows_per_second": done / elapsed,
        "rows_per_cpu_second": done / (time.process_time() - used),
    }


def alone_in_process(
    path: Path, case: str, seconds: float, start: Any
) -> dict[str, float]:
    """What `bare` finds in a process of its own, once all parties of *start* wait."""
    batch = CASES[case].batch
    rows = CASES[case].row(np.random.default_rng(1), 8 * batch)
    with onnxplug.InferenceSession(str(path), options()) as session:
        bare(session, rows, batch, 1.0)
        start.wait()
        return bare(session, rows, batch, seconds)


def two_processes(path: Path, case: str, seconds: float) -> dict[str, float]:
    """Rows a second of two sessions at the same time, each in a process."""
    spawned = multiprocessing.get_context("spawn")
    with spawned.Manager() as shared, ProcessPoolExecutor(2, spawned) as pool:
        start = shared.Barrier(2)
        runs = [
            pool.submit(alone_in_process, path, case, seconds, start) for _ in range(2)
        ]
        found = [run.result() for run in runs]
    return {
        "rows_per_second": sum(each["rows_per_second"] for each in found),
        "rows_per_cpu_second": statistics.mean(
            each["rows_per_cpu_second"] for each in found
        ),
    }


def pipeline(
    dataset: Any, model: Any, batch: int, actors: int, again: bool = False
) -> dict[str, float]:
    """Rows a second of so many actors, or, of batches that are run *again*, the share
    of their processor time that sessions alone take."""
    began = time.monotonic()
    table = dataset.map_batches(
        Timed,
        fn_constructor_kwargs={"model": model, "options": options, "again": again},
        batch_size=batch,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
    ).to_pandas()
    # the first batch of each has plans made, and once one has no more, others are alone
    first = table.groupby("actor")["ended"].min().max()
    last = table.groupby("actor")["ended"].max().min()
    steady = table[(table["ended"] > first) & (table["ended"] <= last)]
    span = last - first
    # what a process had used after its first batch is not of those that follow
    used = table.groupby("actor")["used"].agg(["min", "max"])
    if again:
        alone = table.groupby("actor")["alone"].agg(["min", "max"])
        by_sessions = (alone["max"] - alone["min"]).sum()
        with_ray = (used["max"] - used["min"]).sum() - by_sessions
        return {"cpu_time_of_the_session": by_sessions / with_ray}
    sizes = table.groupby("actor")["used"].agg(lambda each: (each > each.min()).sum())
    return {
        "rows_per_second": len(steady) / span,
        "rows_per_cpu_second": sizes.sum() / (used["max"] - used["min"]).sum(),
        "actors_that_ran": float(table["actor"].nunique()),
        "seconds_until_the_first_batch": table["began"].min() - began,
    }


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    """Of each number."""
    return {key: statistics.median(each[key] for each in found) for key in found[0]}


def repeated(rows: Mapping[str, Any], count: int, block: int) -> Any:
    """A dataset of *count* rows, *rows* again and again, in blocks of *block*."""
    length = len(next(iter(rows.values())))

    def take(batch: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[batch["id"] % length] for name, values in rows.items()}

    numbers = ray.data.range(count, override_num_blocks=count // block)
    return numbers.map_batches(take).materialize()


def measure(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """All that is measured of a model."""
    case = CASES[name]
    path = folder / f"{name}.onnx"
    onnx.save(case.model(), path)
    rows = case.row(np.random.default_rng(1), 8 * case.batch)
    with onnxplug.InferenceSession(str(path), options()) as session:
        bare(session, rows, case.batch, 1.0)
        speed = bare(session, rows, case.batch, 2.0)["rows_per_second"]
        block = max(1, round(speed * BLOCK_SECONDS / case.batch)) * case.batch
        row_bytes = sum(values[0].nbytes for values in rows.values())
        count = min(round(2 * speed * seconds), STORED // row_bytes) // block * block
        dataset = repeated(rows, max(count, 12 * block), block)
        model = onnxplug_ray.share(path)
        rounds: dict[str, list[dict[str, float]]] = {
            "session": [], "two processes": [], "one actor": [], "two actors": [],
            "each batch again": [],
        }  # fmt: skip
        for _ in range(ROUNDS):
            rounds["session"].append(bare(session, rows, case.batch, seconds))
            rounds["two processes"].append(two_processes(path, name, seconds))
            rounds["one actor"].append(pipeline(dataset, model, case.batch, 1))
            rounds["two actors"].append(pipeline(dataset, model, case.batch, 2))
            rounds["each batch again"].append(
                pipeline(dataset, model, case.batch, 2, again=True)
            )
    found = {kind: medians(runs) for kind, runs in rounds.items()}
    for kind, runs in rounds.items():
        if kind == "each batch again":
            continue
        cores = 2 if kind.startswith("two") else 1
        for key, parts in ("rows_per_second", cores), ("rows_per_cpu_second", 1):
            found[kind][f"{key}_of_the_session"] = statistics.median(
                run[key] / parts / alone[key]
                for run, alone in zip(runs, rounds["session"], strict=True)
            )
    return {
        "batch": case.batch,
        "rows": dataset.count(),
        "rows_of_a_block": block,
        "rounds": rounds,
        **found,
    }


def main() -> None:
    """Measure, and write what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", nargs="?", type=Path)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": describe_machine(), "ray": ray.__version__}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=1 << 30,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in arguments.models:
                found[name] = measure(name, Path(folder), arguments.seconds)
                text = json.dumps(found, indent=1)
                if arguments.output:
                    arguments.output.write_text(text + "\n", encoding="utf-8")
    finally:
        ray.shutdown()
    print(text)


if __name__ == "__main__":
    main()
