"""Writes some cases of ONNX's backend suite to a folder, for a slower Python to run.

    python tests/arm64/write_cases.py FOLDER N

One in N of the cases of single operators whose values are tensors of numbers and bool:
models, and their inputs and outputs, as files of ONNX; and ``cases.json``, their names
and tolerances.  To make all cases takes an emulated processor minutes.
"""

from __future__ import annotations

import json
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

LISTED = Path(__file__).parents[1] / "onnx_backend" / "known_failures.toml"


def tensors(values: list[Any]) -> list[bytes] | None:
    """The values as tensors of ONNX; ``None`` if one is none, or is of strings."""
    if not all(isinstance(v, np.ndarray) and v.dtype.kind not in "OUS" for v in values):
        return None
    return [numpy_helper.from_array(value).SerializeToString() for value in values]


def write_cases(folder: Path, distance: int) -> None:
    """Write one in *distance* cases."""
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    refused = {
        name for each in listed.values() if isinstance(each, dict) for name in each
    }
    refused |= {name for name, each in listed.items() if isinstance(each, str)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    written = {}
    for case in cases[::distance]:
        values = case.data_sets[0] if case.data_sets else ([None], [])
        inputs, outputs = (tensors(list(each)) for each in values)
        random = case.name.startswith("test_bernoulli")
        if inputs is None or outputs is None or random:
            continue
        if {case.name, f"{case.name}_cpu"} & refused:
            continue
        where = folder / case.name
        where.mkdir()
        onnx.save(case.model, where / "model.onnx")
        for kind, files in (("input", inputs), ("output", outputs)):
            for number, content in enumerate(files):
                (where / f"{kind}{number}.pb").write_bytes(content)
        written[case.name] = [len(inputs), len(outputs), case.rtol, case.atol]
    (folder / "cases.json").write_text(json.dumps(written), "utf-8")


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]), int(sys.argv[2]))
