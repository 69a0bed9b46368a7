"""Compares networks for pictures as ONNX Runtime's quantizer writes them with the
float ones, and with ONNX Runtime and OpenVINO.

All runtimes take turns in one process.  Times are medians, of the processor with one
thread.  A ratio is the other's time divided by onnxplug's.

    python benchmarks/quantised_images.py [--models resnet50 …] [--only u8s8 …]
        [--threads 1] [--seconds 5] [--json FILE]

``u8s8`` and the like are QDQ with activations and weights of these types, weights of
int8 with a scale for each channel; ``operators`` has QLinear operators (u8s8).  Weights
are drawn, and pictures are of noise.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe_machine
from quantised_encoders import RUNTIMES, TYPES, measure
from runtimes import Feeds
from zoo import IN_GROUPS, ZOO, exported

NETWORKS = ZOO | IN_GROUPS
MODELS = ("resnet50", "mobilenetv2", "efficientnet-b0", *IN_GROUPS)
FORMS = ("u8s8", "s8s8", "u8u8", "operators")


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """The picture that is measured, and others like it."""

    def __init__(self, feeds: Feeds) -> None:
        random = np.random.default_rng(1)
        more = (
            {
                name: random.standard_normal(each.shape).astype(each.dtype)
                for name, each in feeds.items()
            }
            for _ in range(2)
        )
        self._feeds: Iterator[dict[str, Any]] = iter([dict(feeds), *more])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def write(form: str, source: Path, target: Path, feeds: Feeds) -> None:
    """Quantise the model at *source*."""
    kind = quantization.QuantFormat
    types = "u8s8" if form == "operators" else form
    quantization.quantize_static(
        source,
        target,
        Calibration(feeds),
        quant_format=kind.QOperator if form == "operators" else kind.QDQ,
        activation_type=TYPES[types[:2]],
        weight_type=TYPES[types[2:]],
        per_channel=types[2:] == "s8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--only", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {}
    for name in options.models:
        network = NETWORKS[name]._replace(exporter="torchscript")
        files = exported(network, f"{name}-torchscript")
        with np.load(files.feeds) as stored, tempfile.TemporaryDirectory() as folder:
            feeds = {key: stored[key] for key in stored.files}
            source, target = (Path(folder, f"{n}.onnx") for n in ("float", "quantised"))
            quant_pre_process(str(files.model), str(source))
            for form in ("float", *options.only):
                path = source
                if form != "float":
                    path = target
                    write(form, source, target, feeds)
                one = measure(path, feeds, options.threads, options.seconds)
                found[f"{name} {form}"] = ms = one["ms"]
                ours = ms["onnxplug"]
                others = "".join(
                    f"  {each} {ms[each] / ours:.2f}"
                    for each in RUNTIMES[1:]
                    if each in ms
                )
                print(f"{name} {form:>10}  {ours:8.2f} ms{others}", flush=True)
    if options.json:
        report = {"machine": describe_machine(), "ms": found}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
