"""Compares one matrix product with ONNX Runtime, shape by shape.

Both runtimes take turns in one process, so that whatever else the machine does meets
both.  A ratio is ONNX Runtime's least time divided by onnxplug's: above 1, onnxplug is
faster.  The fixed cost of a call is part of both.

    python benchmarks/kernels/matmul.py [--shapes 128x768x768 12*128x128x64t …]
        [--threads 1] [--seconds 3] [--json FILE]

A shape is M×N×K with a constant B; with a batch before it, both factors are inputs,
and with a ``t`` behind it B is transposed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe_machine
from runtimes import Run, prepare

SHAPES = (
    "1x3072x768 1x768x3072 4x768x768 8x768x768 32x768x768 64x1024x1024 128x768x768 "
    "128x3072x768 128x768x3072 197x768x768 197x3072x768 512x768x768 1024x1024x1024 "
    "12*128x128x64t 12*128x64x128 12*1x128x64t 12*1x64x128"
).split()


class Shape(NamedTuple):
    """One product."""

    text: str
    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    transposed: bool

    @classmethod
    def read(cls, text: str) -> Shape:
        """The shape that *text* names."""
        match = re.fullmatch(r"(?:(\d+)\*)?(\d+)x(\d+)x(\d+)(t?)", text)
        if match is None:
            raise SystemExit(f"{text!r} is not a shape such as 12*128x128x64t")
        batch, *sizes, transposed = match.groups()
        return cls(
            text, (int(batch),) if batch else (), *map(int, sizes), bool(transposed)
        )

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return 2 * math.prod(self.batch) * self.rows * self.columns * self.depth


def model(shape: Shape, rng: np.random.Generator) -> tuple[onnx.ModelProto, Any]:
    """A model of the product, and its inputs."""
    b_shape = (*shape.batch, shape.depth, shape.columns)
    if shape.transposed:
        b_shape = (*shape.batch, shape.columns, shape.depth)
    arrays = {
        "a": rng.standard_normal((*shape.batch, shape.rows, shape.depth), np.float32),
        "b": rng.standard_normal(b_shape, np.float32),
    }
    constants = [] if shape.batch else [onnx.numpy_helper.from_array(arrays["b"], "b")]
    nodes, right = [], "b"
    if shape.transposed:
        axes = [*range(len(b_shape))]
        axes[-2:] = axes[:-3:-1]
        nodes.append(helper.make_node("Transpose", ["b"], ["bt"], perm=axes))
        right = "bt"
    nodes.append(helper.make_node("MatMul", ["a", right], ["c"]))
    feeds = {n: x for n, x in arrays.items() if n == "a" or not constants}
    result = (*shape.batch, shape.rows, shape.columns)
    graph = helper.make_graph(
        nodes,
        "product",
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape)
            for n, x in feeds.items()
        ],
        [helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, result)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


def least_times(runs: Sequence[Run], seconds: float) -> list[float]:
    """The least time of each, in turns, over *seconds* in all."""
    least = [math.inf] * len(runs)
    for run in runs:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            least[number] = min(least[number], time.perf_counter() - start)
    return least


def measure(shape: Shape, threads: int, seconds: float) -> dict[str, Any]:
    """Both runtimes' least times, and how far the results are apart."""
    proto, feeds = model(shape, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "product.onnx")
        onnx.save(proto, path)
        runs = [
            prepare(runtime, path, feeds, threads, {})
            for runtime in ("onnxplug", "onnxruntime")
        ]
        ours, theirs = (np.asarray(run()[0]) for run in runs)
        times = least_times(runs, seconds)
    return {
        "shape": shape.text,
        "threads": threads,
        "onnxplug_seconds": times[0],
        "onnxruntime_seconds": times[1],
        "ratio": times[1] / times[0],
        "gflops": shape.flops / times[0] / 1e9,
        "difference": float(np.abs(ours - theirs).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for shape in map(Shape.read, options.shapes):
        one = measure(shape, options.threads, options.seconds)
        found.append(one)
        print(
            f"{one['shape']:>18}  {one['onnxplug_seconds'] * 1e6:9.1f} µs  "
            f"{one['gflops']:6.1f} GFLOP/s  ratio {one['ratio']:.2f}",
            flush=True,
        )
    if options.json:
        report = {"machine": describe_machine(), "products": found}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
