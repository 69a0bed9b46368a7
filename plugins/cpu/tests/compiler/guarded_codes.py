"""Multiplies and convolves random codes with pages around each buffer that nobody may
touch.

    python -m plugins.cpu.tests.compiler.guarded_codes FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does random graphs.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxplug_cpu import quantised_weights

from . import tiled
from .guarded import Guarded
from .integer_isas import NAMES, arm_here
from .kernels.test_coded_integers import codes, trained
from .test_integer_products import of_one_node
from .test_quantization import model_of
from .test_quantized_rows import model as rows_between
from .test_weights_of_codes import TYPES, Form, case, expected

Array = np.ndarray[Any, Any]
Case = tuple[onnx.ModelProto, Array]


def product(rng: np.random.Generator) -> Case:
    """A product of any sizes, of weights with few large pairs or many, or of two
    computed factors."""
    rows, depth, columns = (int(n) for n in rng.integers(1, 90, 3))
    dtype = rng.choice([np.uint8, np.int8])
    if rng.random() < 0.2:
        x, zero = codes(rng, dtype, 2, depth, depth), {"a": codes(rng, dtype)}
        return of_one_node("MatMulInteger", {"x": x}, zero, "x,x,a,a", np.int32), x
    make = trained if rng.random() < 0.7 else lambda rng, *s: codes(rng, np.int8, *s)
    x = codes(rng, dtype, int(rng.integers(1, 3)), rows, depth)
    constants = {"w": make(rng, depth, columns), "a": codes(rng, dtype)}
    constants["b"] = codes(rng, np.int8) * np.int8(rng.integers(2))
    return of_one_node("MatMulInteger", {"x": x}, constants, "x,w,a,b", np.int32), x


def convolution(rng: np.random.Generator) -> Case:
    """A convolution of any windows, of all channels or of each by itself."""
    groups = int(rng.choice([1, 1, 2, 12]))
    depth = 1 if groups == 12 else int(rng.choice([1, 3, 4, 16]))
    kernel = [int(n) for n in rng.integers(1, 4, 2)]
    dtype = rng.choice([np.uint8, np.int8])
    sizes = (int(n) for n in rng.integers(6, 20, 2))
    x = codes(rng, dtype, int(rng.integers(1, 3)), groups * depth, *sizes)
    filters = groups * int(rng.integers(1, 20 if groups < 12 else 2))
    constants = {"w": trained(rng, filters, depth, *kernel), "a": codes(rng, dtype)}
    constants["b"] = np.zeros((), np.int8)
    model = of_one_node(
        "ConvInteger",
        {"x": x},
        constants,
        "x,w,a,b",
        np.int32,
        group=groups,
        pads=[int(n) for n in rng.integers(0, 3, 4)],
        strides=[int(n) for n in rng.integers(1, 3, 2)],
        dilations=[int(n) for n in rng.integers(1, 3, 2)],
    )
    return model, x


def table(rng: np.random.Generator) -> Case:
    """A function of codes, of any shape, that lie in order or do not."""
    shape = [int(n) for n in rng.integers(1, 90, int(rng.integers(1, 4)))]
    x = codes(rng, rng.choice([np.uint8, np.int8]), *shape)
    node, order = helper.make_node, rng.permutation(len(shape)).tolist()
    nodes = [
        node("Transpose", ["x"], ["t"], perm=order),
        node("DequantizeLinear", ["t", "s", "z"], ["d"]),
        node("Sigmoid", ["d"], ["f"]),
        node("QuantizeLinear", ["f", "r", "z"], ["y"]),
    ]
    constants = {
        "s": np.float32(0.05),
        "r": np.float32(1 / 300),
        "z": codes(rng, x.dtype),
    }
    return model_of(nodes, {"x": x}, ["y"], constants), x


def rows(rng: np.random.Generator) -> Case:
    """A softmax or a norm between codes, of rows of any length."""
    operator = str(rng.choice(["Softmax", "LayerNormalization"]))
    lead, columns = int(rng.integers(1, 60)), int(rng.choice([1, 5, 16, 77, 300, 1500]))
    dtype = rng.choice([np.uint8, np.int8])
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (lead, columns)).astype(dtype)
    return rows_between(operator, x.shape, codes=dtype, opset=21), x


def weights(rng: np.random.Generator) -> tuple[Case, Array]:
    """A product of floats with a matrix of codes, and what is to come of it."""
    block = int(rng.choice([0, -1, 5, 16, 32]))
    depth = int(rng.integers(1, 6)) * (block if block > 0 else int(rng.integers(1, 20)))
    form = Form(
        str(rng.choice(list(TYPES))),
        depth,
        int(rng.integers(1, 60)),
        block,
        zero=bool(rng.integers(2)),
        turned=str(rng.choice(["", "Gemm", "Transpose"])),
    )
    tried = case(rng, form)
    rows = int(rng.choice([1, 3, 8, 9, 40]))
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    return (tried.model, x), expected(tried, x)


def main(first: int, last: int) -> None:
    """Compare guarded sessions with ONNX's reference, on this processor and those that
    run here."""
    processors = [None, *NAMES]
    for seed in range(first, last):
        print(f"seed {seed}", flush=True)
        isa = processors[seed // 4 % len(processors)]
        with arm_here(), tiled.host(isa) if isa else nullcontext():
            _compare(seed)


def _compare(seed: int) -> None:
    rng = np.random.default_rng(seed)
    if seed % 4 < len(_INTEGERS):
        model, x = _INTEGERS[seed % 4](rng)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        # an exponential that is rounded otherwise may be another step
        most = float(_INTEGERS[seed % 4] is _table_or_rows)
    else:
        (model, x), wanted = weights(rng)
        most = 4e-6 * np.abs(wanted).max()
    for at_end in (True, False):
        with mock.patch.object(quantised_weights, "FEWEST_CODES", 1):
            guarded = Guarded(model, at_end=at_end, threads=int(rng.integers(1, 3)))
        (found,) = guarded.run(None, {"x": x})
        wide = found.astype(np.float64)
        np.testing.assert_allclose(wide, wanted, rtol=0, atol=most)


def _table_or_rows(rng: np.random.Generator) -> Case:
    return (table, rows)[int(rng.integers(2))](rng)


_INTEGERS = (product, convolution, _table_or_rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
    sys.stdout.flush()
    os._exit(0)  # some arrays live longer than what frees them
