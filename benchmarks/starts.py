"""What the first result of a process takes: import, load and run, beside ONNX Runtime.

Processes run one after the other, the runtimes in turn; what they keep on disk is
there, as it is from the second process on.  Prints the medians of the clock and of the
processor's time, which other processes disturb less, and writes them as JSON.

    python benchmarks/starts.py [--models add logistic forest mobilenetv2 ...]
        [--threads N] [--starts 15] [--output FILE]

``logistic`` and ``forest`` are pipelines of scikit-learn, which they need, with
skl2onnx; all but ``add`` of the others are of the zoo, which needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from machine import describe_machine
from models.tiny import CASES

_RUN = """
feeds = {
    each.name: np.ones([d if type(d) is int else 1 for d in each.shape], np.float32)
    for each in session.get_inputs()
}
session.run(None, feeds)
"""

PROGRAMS: Mapping[str, str] = {
    "onnxplug": f"""
import sys, numpy as np, onnxplug
options = onnxplug.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = onnxplug.InferenceSession(sys.argv[1], options)
{_RUN}""",
    "onnxruntime": f"""
import sys, numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
{_RUN}""",
    "numpy alone": "import numpy",
}


def write_model(name: str, folder: Path) -> Path:
    """The file of a model."""
    path = folder / f"{name}.onnx"
    if name == "add":
        onnx.save(CASES["one Add"]().model, path)
    elif name in ("logistic", "forest"):
        onnx.save(pipeline(name), path)
    else:
        import zoo

        path = zoo.export(zoo.ZOO[name], folder, name).model
    return path


def pipeline(kind: str) -> onnx.ModelProto:
    """Scaled features, then ``logistic`` regression or a ``forest`` of 100 trees."""
    from skl2onnx import to_onnx
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, classes = make_classification(
        1000, 20, n_informative=10, n_classes=3, random_state=0
    )
    features = features.astype(np.float32)
    models = {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(100, random_state=0),
    }
    fitted = make_pipeline(StandardScaler(), models[kind]).fit(features, classes)
    model: onnx.ModelProto = to_onnx(fitted, features[:1])
    return model


def measure(path: Path, threads: int, starts: int) -> dict[str, Any]:
    """Milliseconds from the start of a process to its end, of each program."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    # installed wheels have their modules compiled; so let editable ones be
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for turn in range(starts + 2):
        for name, program in PROGRAMS.items():
            words = [sys.executable, "-c", program, str(path), str(threads)]
            before, started = _taken(), time.perf_counter()
            subprocess.run(words, check=True, env=environment)
            clock = time.perf_counter() - started
            if turn > 1:  # the first ones fill caches
                times[name].append((1e3 * clock, 1e3 * (_taken() - before)))
    found: dict[str, Any] = {}
    for number, unit in enumerate(("clock", "processor")):
        each = {name: [pair[number] for pair in took] for name, took in times.items()}
        pairs = zip(each["onnxplug"], each["onnxruntime"], strict=True)
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        found[unit] = {
            **{name: round(statistics.median(took), 1) for name, took in each.items()},
            "onnxruntime / onnxplug": round(ratio, 3),
        }
    return found


def _taken() -> float:
    """Seconds of the processor that children took so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=["add"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("starts.json"))
    given = parser.parse_args()
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "unit": "ms",
        "threads": given.threads,
    }
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models:
            path = write_model(name, Path(folder))
            report[name] = measure(path, given.threads, given.starts)
            print(name, json.dumps(report[name]), flush=True)
    text = json.dumps(report, indent=2, ensure_ascii=False)
    given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
