"""Compares onnxplug with ONNX Runtime and OpenVINO in f32, on models of random weights.

Each runtime is a fresh process on the same cores; they take turns, so that whatever
else the machine does meets all of them, and all is repeated with new processes.  A
ratio is the other's time divided by onnxplug's: above 1, onnxplug is faster.  One that
is not installed is left out.

    python benchmarks/compare.py [--models NAME …] [--threads 1,2] [--repeats 3]
        [--seconds 6] [--peers onnxruntime,openvino] [--option KEY=VALUE …]
        [--against CHECKOUT …] [--clock wall|cpu] [--no-start] [--json FILE]

CHECKOUT is a folder with another version of onnxplug and its ``.venv``, which takes
its turns among the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from comparison import Files, main
from models import MODELS, Case


def write(name: str, build: Callable[[], Case], folder: Path) -> Files:
    """Build a model and its inputs as files."""
    case = build()
    files = Files(folder / f"{name}.onnx", folder / f"{name}.npz")
    onnx.save(case.model, files.model)
    np.savez(files.feeds, **case.feeds)
    return files


if __name__ == "__main__":
    main(
        __doc__,
        {
            name: lambda folder, name=name, build=build: write(name, build, folder)
            for name, build in MODELS.items()
        },
    )
