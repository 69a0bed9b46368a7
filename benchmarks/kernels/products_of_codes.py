"""Compares products and convolutions of 8-bit codes with ONNX Runtime and OpenVINO.

All runtimes take turns in one process.  Weights are normally distributed with a largest
code of 127, as trained ones are about; with ``--weights uniform`` all codes are as
frequent.  Times are of the processor, so that what else runs on the machine matters
less.  A ratio is the other's least time divided by onnxplug's: above 1, onnxplug is
faster; a runtime that does not load a model has none.  *steps* is the largest
difference between a result and the exact one, in codes of the result, or in units of
its sums.

    python benchmarks/kernels/products_of_codes.py [--only 128x768x3072 …]
        [--threads 1] [--seconds 3] [--weights normal|uniform] [--json FILE]

``128x768x3072`` is MatMulInteger of M×K×N, ``64x56x256k1s1`` QLinearConv of 64 channels
of 56 × 56 pixels to 256, windows of 1 × 1 and stride 1, and ``32x112x32k3s1d`` one of
each channel by itself.
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
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe_machine
from runtimes import Run, prepare

Array = np.ndarray[Any, Any]

CASES = (
    "1x768x768 1x768x3072 1x3072x768 128x768x768 128x768x3072 128x3072x768 "
    "197x768x768 197x768x3072 197x3072x768 512x768x768 512x768x3072 512x3072x768 "
    "3x224x64k7s2 64x56x64k1s1 64x56x64k3s1 64x56x256k1s1 256x56x64k1s1 "
    "128x28x128k3s1 256x14x256k3s1 256x14x1024k1s1 512x7x512k3s1 512x7x2048k1s1 "
    "32x112x16k1s1 96x56x24k1s1 24x56x144k1s1 160x7x960k1s1 "
    "32x112x32k3s1d 96x112x96k3s2d 144x56x144k3s1d 384x14x384k3s1d 960x7x960k3s1d"
).split()


class Case(NamedTuple):
    """A model of one node, its input, and how many products of codes it has."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    products: int


def weights(rng: np.random.Generator, kind: str, shape: Sequence[int]) -> Array:
    """Codes of int8."""
    if kind == "uniform":
        return rng.integers(-127, 128, shape).astype(np.int8)
    return np.clip(np.rint(rng.standard_normal(shape) * 30), -127, 127).astype(np.int8)


def case(text: str, kind: str) -> Case:
    """The case that *text* names."""
    rng = np.random.default_rng(0)
    product = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
    if product:
        rows, depth, columns = map(int, product.groups())
        constants = {
            "w": weights(rng, kind, (depth, columns)),
            "z": np.array(120, np.uint8),
        }
        x = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
        node = helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])
        return Case(_model(node, x, constants, np.int32), {"x": x}, x.size * columns)
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)k(\d+)s(\d+)(d?)", text)
    if found is None:
        raise SystemExit(f"{text!r} is no case such as 128x768x3072 or 64x56x256k1s1")
    channels, size, filters, window, stride = map(int, found.groups()[:5])
    groups = channels if found.group(6) else 1
    w = weights(rng, kind, (filters, channels // groups, window, window))
    # results of sums fill about the range of codes
    spread = 60 * 30 * math.sqrt(w[0].size)
    constants = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": w,
        "ws": np.full(filters, 0.01, np.float32),
        "wz": np.zeros(filters, np.int8),
        "ys": np.array(0.02 * 0.01 * spread / 40, np.float32),
        "yz": np.array(128, np.uint8),
        "b": rng.integers(-999, 1000, filters).astype(np.int32),
    }
    x = rng.integers(0, 256, (1, channels, size, size)).astype(np.uint8)
    pads = [window // 2] * 4
    node = helper.make_node(
        "QLinearConv", ["x", *constants], ["y"], pads=pads, strides=[stride] * 2,
        group=groups,
    )  # fmt: skip
    places = (size + 2 * (window // 2) - window) // stride + 1
    products = places * places * w.size
    return Case(_model(node, x, constants, np.uint8), {"x": x}, products)


def _model(
    node: onnx.NodeProto, x: Array, constants: dict[str, Array], result: Any
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        "codes",
        [helper.make_tensor_value_info("x", element(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", element(np.dtype(result)), None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def least_times(runs: Sequence[Run], seconds: float) -> list[float]:
    """The least time that each takes of the processor, in turns, over *seconds*."""
    least, counts = [math.inf] * len(runs), [1] * len(runs)
    for run in runs:
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, run in enumerate(runs):
            start = time.process_time()
            for _ in range(counts[number]):
                run()
            each = (time.process_time() - start) / counts[number]
            least[number] = min(least[number], each)
            # clocks of the processor have steps
            counts[number] = max(1, min(1000, round(4e-3 / max(each, 1e-6))))
    return least


def measure(
    text: str, kind: str, runtimes: Sequence[str], threads: int, seconds: float
) -> dict[str, Any]:
    """The runtimes' least times, and how far results are from exact ones."""
    model, feeds, products = case(text, kind)
    exact: Array
    (exact,) = ReferenceEvaluator(model).run(None, feeds)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "codes.onnx")
        onnx.save(model, path)
        loaded = {}
        for name in runtimes:
            try:
                loaded[name] = prepare(name, path, feeds, threads, {})
            except RuntimeError:  # OpenVINO's, for an operator that it does not have
                if name == "onnxplug":
                    raise
        results = [np.asarray(run()[0]) for run in loaded.values()]
        times = least_times([*loaded.values()], seconds)
    apart = [np.abs(r.astype(np.int64) - exact.astype(np.int64)).max() for r in results]
    return {
        "case": text,
        "weights": kind,
        "threads": threads,
        "products": products,
        "seconds": dict(zip(loaded, times, strict=True)),
        "ratios": {
            name: other / times[0]
            for name, other in zip(loaded, times, strict=True)
            if name != "onnxplug"
        },
        "steps": dict(zip(loaded, map(int, apart), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=CASES)
    parser.add_argument("--runtimes", nargs="+", default=["onnxruntime", "openvino"])
    parser.add_argument("--weights", choices=("normal", "uniform"), default="normal")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for text in options.only:
        runtimes = ["onnxplug", *options.runtimes]
        one = measure(text, options.weights, runtimes, options.threads, options.seconds)
        found.append(one)
        ours = one["seconds"]["onnxplug"]
        others = "  ".join(
            f"{name} {ratio:5.2f} ({one['steps'][name]})"
            for name, ratio in one["ratios"].items()
        )
        speed = one["products"] / ours / 1e9
        print(
            f"{text:>16}  {ours * 1e6:9.1f} µs  {speed:6.1f} G/s  "
            f"({one['steps']['onnxplug']})  {others}",
            flush=True,
        )
    if options.json:
        report = {"machine": describe_machine(), "cases": found}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
