"""Compares onnxplug with ONNX Runtime on tables: pipelines, and ensembles of trees.

Pipelines of scikit-learn, LightGBM and XGBoost, fitted here to made-up tables, for 1,
10 and 1000 rows, and ensembles of 100 and 500 trees for 1000 and 100 000 rows.  Beside
them are the libraries' own predictions (*library*) and, for ensembles, lleaves and
tl2cgen, which are left out where they are not installed.  They are measured as
``compare.py`` says, with the same arguments.

    python benchmarks/tables.py [--models NAME …] [--threads 1,2] [--repeats 3]
        [--seconds 6] [--peers onnxruntime,library,lleaves,tl2cgen] [--no-start]
        [--json FILE] …
    python benchmarks/tables.py --tiers

*NAME* is a pipeline and a number of rows, as in ``logistic-10``.  ``--tiers`` writes
the nodes of each that are on arrays, and why, as JSON.  lleaves wants another llvmlite
than onnxplug: ``LLEAVES_PYTHON`` names an interpreter that has it.  Models are fitted
once, into ``$XDG_CACHE_HOME/onnxplug-benchmarks`` or ``~/.cache/onnxplug-benchmarks``.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from comparison import Files, Runtime, main
from tabular.forests import FEATURES, FORESTS, write_forest
from tabular.pipelines import PIPELINES, Feeds, Pipeline, numbers

FEW: Final = (1, 10, 1000)
MANY: Final = (1000, 100_000)
PEERS: Final = (
    Runtime("onnxruntime", "onnxruntime"),
    Runtime("library", "tabular"),
    Runtime(
        "lleaves",
        "lleaves",
        python=Path(os.environ.get("LLEAVES_PYTHON", sys.executable)),
    ),
    Runtime("tl2cgen", "tl2cgen"),
)


def kept() -> Path:
    """The folder of what was fitted."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "onnxplug-benchmarks" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def built(name: str) -> Pipeline:
    """A pipeline, fitted."""
    return PIPELINES[name]()


def write_pipeline(name: str, count: int, folder: Path) -> Files:
    """A pipeline, and feeds of *count* rows."""
    path = kept() / f"{name}.onnx"
    feeds = kept() / f"{name}-{count}.npz"
    if not path.exists() or not feeds.exists():
        pipeline = built(name)
        path.with_suffix(".pickle").write_bytes(pickle.dumps(pipeline.fitted))
        write_feeds(feeds, pipeline.rows(count))
        onnx.save(pipeline.model, path)
    return Files(path, feeds)


def write_ensemble(name: str, count: int, folder: Path) -> Files:
    """An ensemble, and feeds of *count* rows."""
    path = write_forest(name, kept())
    feeds = kept() / f"{name}-{count}.npz"
    if not feeds.exists():
        write_feeds(feeds, {"x": numbers(count, FEATURES, 99)})
    return Files(path, feeds)


def write_feeds(path: Path, feeds: Feeds) -> None:
    """Texts as of one length, as files have them."""
    np.savez(
        path,
        **{
            name: array.astype(str) if array.dtype == object else array
            for name, array in feeds.items()
        },
    )


def tiers() -> dict[str, Any]:
    """Of each pipeline how many nodes it has, and those that are on arrays."""
    import onnxplug

    found = {}
    for name in PIPELINES:
        model = write_pipeline(name, 1, kept()).model
        nodes = onnxplug.InferenceSession(model).explain().nodes
        on_arrays = [node for node in nodes if node.tier != "compiled"]
        found[name] = {
            "nodes": len(nodes),
            "on arrays": {node.op_type: node.note for node in on_arrays},
        }
    return found


def writers() -> dict[str, Callable[[Path], Files]]:
    """What may be measured."""
    found: dict[str, Callable[[Path], Files]] = {}
    for name in PIPELINES:
        for count in FEW:
            write = functools.partial(write_pipeline, name, count)
            found[f"{name}-{count}"] = write
    for name in FORESTS:
        for count in MANY:
            write = functools.partial(write_ensemble, name, count)
            found[f"{name}-trees-{count}"] = write
    return found


if __name__ == "__main__":
    for needed in ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost"):
        if importlib.util.find_spec(needed) is None:
            sys.exit(f"tables.py needs {needed}: make .venv/exporters.stamp")
    if sys.argv[1:] == ["--tiers"]:
        print(json.dumps(tiers(), indent=2))
    else:
        main(__doc__, writers(), peers=PEERS)
