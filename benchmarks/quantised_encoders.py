"""Compares an encoder that ONNX Runtime's quantizer writes with the float one, and with
ONNX Runtime and OpenVINO.

All runtimes take turns in one process.  Times are medians, of the processor with one
thread.  A ratio is the other's time divided by onnxplug's.  *error* is the root of the
mean square of a result less that of the float model, relative to the latter's.

    python benchmarks/quantised_encoders.py [--only u8s8 …] [--layers 4]
        [--length 128] [--threads 1] [--seconds 5] [--json FILE]

The encoder is BERT with weights that are drawn.  ``u8s8`` and the like are QDQ with
activations and weights of these types, ``operators`` has QLinear operators (u8s8),
``dynamic`` quantises activations in each run.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe_machine
from models.encoders import bert
from models.graph import Exporter
from runtimes import Feeds, prepare

FORMS = ("u8s8", "u8u8", "s8s8", "operators", "dynamic")
TYPES = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
RUNTIMES = ("onnxplug", "onnxruntime", "openvino")

_WORDS = 1000


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """Some inputs like those that are measured."""

    def __init__(self, feeds: Feeds) -> None:
        shape = 3, *feeds["input_ids"].shape
        ids = np.random.default_rng(1).integers(0, _WORDS, shape)
        self._feeds: Iterator[dict[str, Any]] = (
            {**feeds, "input_ids": each} for each in ids
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def write(form: str, source: Path, target: Path, feeds: Feeds) -> None:
    """Quantise the model at *source*."""
    if form == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=TYPES["s8"])
        return
    kind = quantization.QuantFormat
    types = "u8s8" if form == "operators" else form
    quantization.quantize_static(
        source,
        target,
        Calibration(feeds),
        quant_format=kind.QOperator if form == "operators" else kind.QDQ,
        activation_type=TYPES[types[:2]],
        weight_type=TYPES[types[2:]],
    )


def measure(path: Path, feeds: Feeds, threads: int, seconds: float) -> dict[str, Any]:
    """Times of a run in ms, and results, by the runtime."""
    clock = time.process_time if threads == 1 else time.perf_counter
    runs = {}
    for runtime in RUNTIMES:
        try:
            runs[runtime] = prepare(runtime, str(path), feeds, threads, {})
            runs[runtime]()
        except RuntimeError as error:  # OpenVINO's, for an operator it does not have
            print(f"{runtime}: {str(error)[:100]}", file=sys.stderr)
            runs.pop(runtime, None)
    results = {name: np.asarray(run()[0]) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end:
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    medians = {name: 1e3 * statistics.median(each) for name, each in times.items()}
    return {"ms": medians, "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    sizes = {"layers": options.layers, "length": options.length, "words": _WORDS}
    model, feeds = bert(Exporter.TORCHSCRIPT, **sizes)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, target = (Path(folder, f"{n}.onnx") for n in ("float", "quantised"))
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        for form in ("float", *options.only):
            path = source
            if form != "float":
                path = target
                write(form, source, target, feeds)
            one = measure(path, feeds, options.threads, options.seconds)
            results, ms = one.pop("results"), one["ms"]
            if form == "float":
                exact = results["onnxruntime"]
            scale = float(np.sqrt(np.mean(exact**2)))
            one["errors"] = {
                name: float(np.sqrt(np.mean((each - exact) ** 2))) / scale
                for name, each in results.items()
            }
            found[form] = one
            ours = ms["onnxplug"]
            line = f"{form:>10}  {ours:8.2f} ms (error {one['errors']['onnxplug']:.1e})"
            for name in RUNTIMES[1:]:
                if name in ms:
                    line += (
                        f"  {name} {ms[name] / ours:.2f} ({one['errors'][name]:.1e})"
                    )
            print(f"{line}  of float {found['float']['ms']['onnxplug'] / ours:.2f}")
    if options.json:
        report = {"machine": describe_machine(), "options": sizes, "forms": found}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
