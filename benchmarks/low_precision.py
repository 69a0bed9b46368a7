"""Compares networks in int8 and float16 with ONNX Runtime and OpenVINO, in processes of
their own that take turns.

    python benchmarks/low_precision.py [--models resnet50-u8s8 …] [--threads 1,2]
        [--repeats 3] [--seconds 6] [--peers onnxruntime,openvino] [--json FILE]

The arguments are those of ``compare.py``.  Networks are those of
``quantised_images.py`` and ``quantised_encoders.py``, as ONNX Runtime's quantizer
writes them, and some that are exported in float16.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import quantised_encoders
import quantised_images
import torch
from comparison import Files, main
from models.encoders import bert
from models.graph import Exporter
from onnxruntime.quantization.shape_inference import quant_pre_process
from zoo import SEQUENCES, ZOO, exported

FORMS: Final = ("u8s8", "s8s8", "u8u8", "operators")
HALF: Final = {
    "resnet50": ZOO["resnet50"],
    "mobilenetv2": ZOO["mobilenetv2"],
    "bert-base": SEQUENCES["bert-base"],
}


def _quantised_image(name: str, form: str, folder: Path) -> Files:
    network = quantised_images.NETWORKS[name]._replace(exporter="torchscript")
    source = exported(network, f"{name}-torchscript")
    ready, target = folder / f"{name}-float.onnx", folder / f"{name}-{form}.onnx"
    if not ready.exists():
        quant_pre_process(str(source.model), str(ready))
    feeds = dict(np.load(source.feeds))
    quantised_images.write(form, ready, target, feeds)
    return Files(target, source.feeds)


def _quantised_encoder(form: str, folder: Path) -> Files:
    source, target = folder / "encoder.onnx", folder / f"encoder-{form}.onnx"
    model, feeds = bert(Exporter.TORCHSCRIPT, layers=4, length=128, words=1000)
    onnx.save(onnx.shape_inference.infer_shapes(model), source)
    quantised_encoders.write(form, source, target, feeds)
    np.savez(folder / "encoder.npz", **feeds)
    return Files(target, folder / "encoder.npz")


def _half(name: str, _: Path) -> Files:
    network = HALF[name]._replace(dtype=torch.float16)
    return Files(*exported(network, f"{name}-f16"))


def networks() -> dict[str, Callable[[Path], Files]]:
    """What writes their files, by name."""
    found: dict[str, Callable[[Path], Files]] = {}
    for name in quantised_images.MODELS:
        for form in FORMS:
            found[f"{name}-{form}"] = functools.partial(_quantised_image, name, form)
    for form in quantised_encoders.FORMS:
        found[f"encoder-{form}"] = functools.partial(_quantised_encoder, form)
    for name in HALF:
        found[f"{name}-f16"] = functools.partial(_half, name)
    return found


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(__doc__, networks())
