"""What Ray Data costs: a session by itself in one process, and behind Ray's actors.

    python benchmarks/ray_data.py [OUTPUT.json] [--models NAME …] [--seconds 8]

needs onnxplug-ray.  A run of the session, with one thread, on the batch that actors
get, takes turns with pipelines of one and of two actors of one core each, on the same
rows, which are in Ray's object store before.  A pipeline counts from its first batch to
its last: starting actors and opening sessions is told apart.  Rows a second of
processor time are of the processes that run sessions, with all that Ray has them do;
they say the same on a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
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
STORED: Final = 256 << 20
"""Bytes of rows in the object store, at most."""

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
    the processor its process had used by then."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        found = super().__call__(batch)
        count = len(found["eps"])
        return {
            "began": np.full(count, began),
            "ended": np.full(count, time.monotonic()),
            "used": np.full(count, time.process_time()),
            "actor": np.full(count, os.getpid()),
        }


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


def pipeline(dataset: Any, model: Any, batch: int, actors: int) -> dict[str, float]:
    """Rows a second of so many actors, and how much of their time they ran."""
    began = time.monotonic()
    table = dataset.map_batches(
        Timed,
        fn_constructor_kwargs={"model": model, "options": options},
        batch_size=batch,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
    ).to_pandas()
    # the first batch of each has plans made, and is none of the steady state
    first = table.groupby("actor")["ended"].min().max()
    steady = table[table["began"] >= first]
    span = steady["ended"].max() - first
    # what a process had used after its first batch is not of those that follow
    used = table.groupby("actor")["used"].agg(["min", "max"])
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
        block = 4 * case.batch
        row_bytes = sum(values[0].nbytes for values in rows.values())
        count = min(round(2 * speed * seconds), STORED // row_bytes) // block * block
        dataset = repeated(rows, max(count, 4 * block), block)
        model = onnxplug_ray.share(path)
        alone, one, two = [], [], []
        for _ in range(ROUNDS):
            alone.append(bare(session, rows, case.batch, seconds))
            one.append(pipeline(dataset, model, case.batch, 1))
            two.append(pipeline(dataset, model, case.batch, 2))
    found = {"one actor": medians(one), "two actors": medians(two)}
    for actors, (each, runs) in enumerate(
        zip(found.values(), (one, two), strict=True), 1
    ):
        pairs = list(zip(runs, alone, strict=True))
        each["rows_per_second_and_core"] = each["rows_per_second"] / actors
        each["of_the_session"] = statistics.median(
            run["rows_per_second"] / actors / by_itself["rows_per_second"]
            for run, by_itself in pairs
        )
        each["of_the_session_by_cpu_time"] = statistics.median(
            run["rows_per_cpu_second"] / by_itself["rows_per_cpu_second"]
            for run, by_itself in pairs
        )
    return {
        "batch": case.batch,
        "rows": dataset.count(),
        "session": medians(alone),
        "rounds": {"session": alone, "one actor": one, "two actors": two},
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
