"""Compares the errors of operators with ONNX Runtime's, against float64.

Every operator runs in both runtimes on the same float32 arrays, and in onnx's reference
implementation on these arrays as float64.  The error of a function of single elements
is the largest one in units in the last place of the float32 result; that of others is
the largest difference relative to the largest result.  A ratio is onnxplug's error
divided by ONNX Runtime's: below 1, onnxplug is nearer.

    python benchmarks/kernels/accuracy.py [--operators Tan MatMul …] [--limit 2]
        [--json FILE]

It fails if a ratio is above the limit and the error worth mentioning: above 2 ulp, or a
relative 1e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parents[1]))

from machine import describe_machine
from runtimes import prepare

Array = np.ndarray[Any, Any]

MENTIONED = {"ulp": 2.0, "relative": 1e-6}


class Case(NamedTuple):
    """An operator with inputs.

    Attributes:
        label: for the table.
        inputs: arrays, float32 or integers.
        constants: how many of the last inputs the model has as constants.
        unit: of the error, ``ulp`` or ``relative``.
    """

    label: str
    operator: str
    inputs: Sequence[Array]
    constants: int = 0
    unit: str = "relative"
    attributes: dict[str, Any] = {}  # noqa: RUF012


def _spread(rng: np.random.Generator, low: float, high: float) -> Array:
    """Numbers between two, and small ones of all magnitudes."""
    even = rng.uniform(low, high, 150_000)
    size = np.exp(rng.uniform(np.log(1e-6), np.log(max(abs(low), high)), 50_000))
    signed = size * (rng.choice([-1, 1], size.shape) if low < 0 else 1)
    both = np.append(even, signed)
    return both[(both >= low) & (both <= high)].astype(np.float32)


FUNCTIONS = {
    "Acos": (-1, 1), "Acosh": (1, 1000.0), "Asin": (-1, 1),
    "Asinh": (-1000.0, 1000.0), "Atan": (-1000.0, 1000.0),
    "Atanh": (-0.9999, 0.9999), "Celu": (-20, 20), "Cos": (-10000.0, 10000.0),
    "Cosh": (-80, 80), "Elu": (-20, 20), "Erf": (-5, 5), "Exp": (-80, 80),
    "Gelu": (-3, 10), "HardSigmoid": (-5, 5), "HardSwish": (-5, 5),
    "Log": (1e-06, 1000000.0), "Mish": (-20, 20), "Reciprocal": (0.001, 1000.0),
    "Selu": (-20, 20), "Sigmoid": (-18, 80), "Sin": (-10000.0, 10000.0),
    "Sinh": (-80, 80), "Softplus": (-20, 20), "Softsign": (-1000.0, 1000.0),
    "Sqrt": (0, 1000000.0), "Tan": (-10000.0, 10000.0), "Tanh": (-12, 12),
}  # fmt: skip
"""Functions of one number, and where they are looked at."""


def cases() -> list[Case]:
    """All that is compared."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    found = [
        Case(name, name, [_spread(rng, *limits)], unit="ulp")
        for name, limits in FUNCTIONS.items()
    ]
    found.append(
        Case(
            "Gelu of tanh",
            "Gelu",
            [_spread(rng, -3, 10)],
            unit="ulp",
            attributes={"approximate": "tanh"},
        )
    )
    base, power = np.abs(_spread(rng, 0, 50)), _spread(rng, -4, 4)
    size = min(len(base), len(power))
    found.append(Case("Pow", "Pow", [base[:size], power[:size]], unit="ulp"))
    for m, n, k in ((1, 70, 3072), (3, 65, 100), (33, 1, 769), (70, 200, 3072)):
        factors = [normal(m, k), normal(k, n)]
        for constants in (0, 1):
            kind = "constant" if constants else "dynamic"
            label = f"MatMul {m}×{n}×{k} {kind}"
            found.append(Case(label, "MatMul", factors, constants))
    batched = [normal(5, 17, 64), normal(5, 64, 33)]
    found.append(Case("MatMul 5×17×33×64", "MatMul", batched))
    attributes = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}
    gemm = [normal(300, 30), normal(50, 300), normal(50)]
    found.append(Case("Gemm", "Gemm", gemm, attributes=attributes))
    for size in (7, 768, 5000):
        x = normal(40, size) + 3
        found.append(Case(f"Softmax {size}", "Softmax", [4 * x]))
        found.append(Case(f"LogSoftmax {size}", "LogSoftmax", [4 * x]))
        row = normal(size)
        label = f"LayerNormalization {size}"
        found.append(Case(label, "LayerNormalization", [x, row, row], 2))
        found.append(Case(f"RMSNormalization {size}", "RMSNormalization", [x, row], 1))
        for kind in "Sum Mean L1 L2 SumSquare LogSumExp Prod".split():
            data = 1 + x / 1e3 if kind == "Prod" else x
            for axis in (0, 1):
                label = f"Reduce{kind} {size} along {axis}"
                axes = np.array([axis], np.int64)
                found.append(Case(label, f"Reduce{kind}", [data, axes], 1))
        found.append(Case(f"CumSum {size}", "CumSum", [x, np.int64(1)], 1))
    for queries, keys in ((1, 300), (40, 300)):
        heads = [normal(2, 3, n, 64) for n in (queries, keys, keys)]
        found.append(Case(f"Attention {queries} of {keys}", "Attention", heads))
    return found


def model(case: Case, dtype: Any) -> onnx.ModelProto:
    """The model of one node, its floats of *dtype*."""
    names = [f"x{n}" for n in range(len(case.inputs))]
    arrays = [_cast(array, dtype) for array in case.inputs]
    fed = len(arrays) - case.constants
    graph = helper.make_graph(
        [helper.make_node(case.operator, names, ["y"], **case.attributes)],
        "operator",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names[:fed], arrays[:fed], strict=True)
        ],
        [
            helper.make_tensor_value_info(
                "y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None
            )
        ],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in zip(names[fed:], arrays[fed:], strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _cast(array: Array, dtype: Any) -> Array:
    array = np.asarray(array)
    return array.astype(dtype) if array.dtype == np.float32 else array


def error(unit: str, found: Array, true: Array) -> float:
    """The largest error of *found*."""
    apart = np.abs(found.astype(np.float64) - true)
    if unit == "ulp":
        normal = np.abs(true) > 1e-30
        last = np.spacing(np.abs(true[normal]).astype(np.float32))
        return float((apart[normal] / last).max())
    return float(apart.max() / np.abs(true).max())


def measure(case: Case) -> dict[str, Any]:
    """Both runtimes' errors."""
    names = [f"x{n}" for n in range(len(case.inputs) - case.constants)]
    feeds = dict(zip(names, case.inputs, strict=False))
    wide = {name: _cast(array, np.float64) for name, array in feeds.items()}
    (true,) = ReferenceEvaluator(model(case, np.float64)).run(None, wide)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "operator.onnx")
        onnx.save(model(case, np.float32), path)
        ours, theirs = (
            error(case.unit, prepare(name, path, feeds, 1, {})()[0], true)
            for name in ("onnxplug", "onnxruntime")
        )
    return {
        "operator": case.label,
        "unit": case.unit,
        "onnxplug": ours,
        "onnxruntime": theirs,
        "ratio": ours / theirs if theirs else float(ours > 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operators", nargs="+")
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for case in cases():
        if options.operators and case.operator not in options.operators:
            continue
        one = measure(case)
        found.append(one)
        print(
            f"{one['operator']:>28}  {one['onnxplug']:10.3g}  "
            f"{one['onnxruntime']:10.3g} {case.unit:8}  ratio {one['ratio']:.2f}",
            flush=True,
        )
    if options.json:
        report = {"machine": describe_machine(), "operators": found}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    worse = [
        one["operator"]
        for one in found
        if one["ratio"] > options.limit and one["onnxplug"] > MENTIONED[one["unit"]]
    ]
    if worse:
        raise SystemExit(f"further from float64 than it may be: {', '.join(worse)}")


if __name__ == "__main__":
    main()
