"""Operators that select, order and count, one node each, beside ONNX Runtime.

And detections whose number differs from picture to picture: boxes that remain, and what
is gathered of them.

    python benchmarks/operators.py [--threads N] [--runs N] [--only NAME …]
        [--json FILE]

Both are in one process and take turns; a ratio above 1 means that onnxplug is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from machine import describe_machine
from onnx import helper, numpy_helper

import onnxplug

Array = np.ndarray[Any, Any]
F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


class Case(NamedTuple):
    """A model, and what is fed in turn."""

    name: str
    model: bytes
    feeds: Sequence[Mapping[str, Array]]


def one_node(
    name: str,
    op_type: str,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    kinds: Sequence[int],
    order: str = "",
    **attributes: Any,
) -> Case:
    """A node of these inputs, in the order given.

    Args:
        kinds: the element types of the outputs.
        order: names of the inputs; the fed ones, and then constants by default.
    """
    inputs = order.split() or [*feeds, *constants]
    outputs = [f"y{number}" for number in range(len(kinds))]
    node = helper.make_node(op_type, inputs, outputs, **attributes)
    return Case(name, model_of([node], feeds, constants, outputs, kinds), [feeds])


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    kinds: Sequence[int],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "operators",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outputs, kinds, strict=True)
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", 18)
    return bytes(
        helper.make_model(
            graph, opset_imports=[opset], ir_version=10
        ).SerializeToString()
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Typical sizes."""

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    for shape in ((1, 512, 32000), (1, 10)):
        name = f"ArgMax {shape}"
        yield one_node(name, "ArgMax", {"x": normal(*shape)}, {}, [I64], axis=-1)
    x = {"x": normal(1, 21, 256, 256)}
    yield one_node("ArgMax of channels", "ArgMax", x, {}, [I64], axis=1)
    for shape, count in (((1, 32000), 50), ((8400,), 300), ((1000, 10), 3)):
        k = {"k": np.array([count])}
        x = {"x": normal(*shape)}
        yield one_node(f"TopK {count} of {shape}", "TopK", x, k, [F32, I64])
    for shape, axis in (((1, 512), 1), ((512, 1000), 0)):
        axes = {"a": np.array(axis)}
        x = {"x": normal(*shape)}
        yield one_node(f"CumSum {shape} along {axis}", "CumSum", x, axes, [F32])
    i = {"i": rng.integers(0, 1000, (1, 512))}
    ends = {"d": np.array(1000), "v": np.array([0, 1], np.float32)}
    yield one_node("OneHot", "OneHot", i, ends, [F32])
    for equation, shapes in (
        ("bhqd,bhkd->bhqk", ((2, 12, 128, 64), (2, 12, 128, 64))),
        ("bij,bjk->bik", ((8, 128, 64), (8, 64, 128))),
        ("bhwc,hkc->bhwk", ((12, 14, 14, 64), (14, 14, 64))),
        ("i,j->ij", ((512,), (512,))),
    ):
        factors = {f"x{n}": normal(*shape) for n, shape in enumerate(shapes)}
        yield one_node(
            f"Einsum {equation}", "Einsum", factors, {}, [F32], equation=equation
        )
    yield one_node("Trilu", "Trilu", {"x": normal(1, 512, 512)}, {}, [F32])
    place = np.stack([np.arange(8), np.full(8, 100)], -1).reshape(8, 1, 2)
    cache = {"x": normal(8, 512, 64), "u": normal(8, 1, 64)}
    yield one_node("ScatterND", "ScatterND", cache, {"i": place}, [F32], "x i u")
    rows = {"x": normal(1000, 64), "i": rng.integers(0, 1000, (500, 1))}
    rows["u"] = normal(500, 64)
    yield one_node("ScatterND add", "ScatterND", rows, {}, [F32], reduction="add")
    kept = rng.random(8400) < 0.1
    yield one_node("NonZero", "NonZero", {"x": kept}, {}, [I64])
    parts = {"x": normal(8400, 4), "c": kept}
    yield one_node("Compress", "Compress", parts, {}, [F32], axis=0)
    few = {"x": rng.integers(0, 200, 1000)}
    yield one_node("Unique", "Unique", few, {}, [I64] * 4)
    for count, classes, power in ((8400, 80, 8), (8400, 80, 400), (1000, 1, 8)):
        name = f"NonMaxSuppression {count}×{classes}, p={power}"
        boxes = detections(rng, count, classes, power)
        yield one_node(name, "NonMaxSuppression", boxes, LIMITS, [I64])
    yield varying_boxes(rng)


LIMITS = {
    "m": np.array([100]),
    "o": np.array([0.5], np.float32),
    "l": np.array([0.25], np.float32),
}


def detections(
    rng: np.random.Generator, count: int, classes: int, power: float
) -> dict[str, Array]:
    """Boxes and their scores, of which fewer are high where *power* is."""
    corners = rng.uniform(0, 640, (1, count, 2))
    sizes = rng.uniform(5, 120, (1, count, 2))
    boxes = np.concatenate([corners, corners + sizes], -1).astype(np.float32)
    scores = rng.uniform(0, 1, (1, classes, count)) ** power
    return {"b": boxes, "s": scores.astype(np.float32)}


def varying_boxes(rng: np.random.Generator) -> Case:
    """The boxes, scores and classes of another number of objects in each picture."""
    nodes = [
        helper.make_node("NonMaxSuppression", ["b", "s", *LIMITS], ["n"]),
        helper.make_node("Gather", ["n", "two"], ["i"], axis=1),
        helper.make_node("Gather", ["n", "one"], ["c"], axis=1),
        helper.make_node("Squeeze", ["b", "first"], ["q"]),
        helper.make_node("Gather", ["q", "i"], ["p"]),
        helper.make_node("GatherND", ["s", "n"], ["g"]),
        helper.make_node("Unsqueeze", ["g", "second"], ["scores"]),
        helper.make_node("Cast", ["c"], ["f"], to=F32),
        helper.make_node("Unsqueeze", ["f", "second"], ["classes"]),
        helper.make_node("Concat", ["p", "scores", "classes"], ["y"], axis=1),
    ]
    constants = {**LIMITS, "one": np.array(1), "two": np.array(2)}
    constants |= {"first": np.array([0]), "second": np.array([1])}
    feeds = [detections(rng, 1000, 1, 6 + 0.2 * number) for number in range(100)]
    model = model_of(nodes, feeds[0], constants, ["y"], [F32])
    return Case("boxes of another number each time", model, feeds)


def measure(case: Case, threads: int, runs: int) -> dict[str, Any]:
    """The medians of both, in seconds, and their ratio."""
    ours, theirs = onnxplug.SessionOptions(), onnxruntime.SessionOptions()
    ours.intra_op_num_threads = theirs.intra_op_num_threads = threads
    provider = ["CPUExecutionProvider"]
    sessions = {
        "onnxplug": onnxplug.InferenceSession(case.model, ours, providers=provider),
        "onnxruntime": onnxruntime.InferenceSession(
            case.model, theirs, providers=provider
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(runs):
        feeds = dict(case.feeds[number % len(case.feeds)])
        for name, session in sessions.items():
            begin = time.perf_counter()
            session.run(None, feeds)
            times[name].append(time.perf_counter() - begin)
    # the first runs make plans, and fill caches
    found = {name: statistics.median(t[runs // 5 :]) for name, t in times.items()}
    return {**found, "ratio": found["onnxruntime"] / found["onnxplug"]}


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    report: dict[str, Any] = {"machine": describe_machine(), "threads": given.threads}
    for case in cases(np.random.default_rng(0)):
        if given.only and not any(part in case.name for part in given.only):
            continue
        found = report[case.name] = measure(case, given.threads, given.runs)
        print(
            f"{case.name}: onnxplug {1e6 * found['onnxplug']:.1f} µs, onnxruntime "
            f"{1e6 * found['onnxruntime']:.1f} µs, ratio {found['ratio']:.2f}",
            flush=True,
        )
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
