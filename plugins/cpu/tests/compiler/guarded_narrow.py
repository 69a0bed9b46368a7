"""Multiplies and convolves with weights of 16 bits, and runs random graphs of 16 bits,
with pages around each buffer that nobody may touch.

    python -m plugins.cpu.tests.compiler.guarded_narrow FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does those of float32.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from .differential import session
from .guarded import Guarded
from .random_graphs import RandomGraph
from .random_narrow import narrow
from .random_nodes import MAKERS

DTYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def weighted(seed: int, dtype: np.dtype[Any]) -> tuple[onnx.ModelProto, Any]:
    """A product or convolution with constant weights, and an input."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(rng.choice([1, 2, 5, 7, 16, 33, 50])) for _ in range(2))
    depth = int(rng.choice([1, 3, 16, 31, 400]))
    turned = int(rng.integers(2))
    shape = (columns, depth) if turned else (depth, columns)
    x: Any = rng.standard_normal((rows, depth))
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=turned)
    if seed % 2:
        groups = int(rng.choice([1, 1, 2]))
        taps, side = int(rng.choice([1, 3])), int(rng.integers(3, 12))
        depth = min(depth, 40)
        x = rng.standard_normal((2, depth * groups, side, side))
        shape = (columns * groups, depth, taps, taps)
        given = {"pads": [int(rng.integers(2))] * 4, "group": groups}
        node = helper.make_node("Conv", ["x", "w"], ["y"], **given)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    graph = helper.make_graph(
        [node],
        "weighted",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(rng.standard_normal(shape).astype(dtype), "w")],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), x.astype(
        dtype
    )


def main(first: int, last: int) -> None:
    """Compare with what gives the same without guards, which other tests do."""
    for seed in range(first, last):
        dtype, choose = DTYPES[seed // 2 % 2], random.Random(seed)
        print(f"seed {seed}", flush=True)
        model, x = weighted(seed, dtype)
        case = narrow(RandomGraph(seed).make(choose.randint(5, 30), MAKERS), dtype)
        for each, feeds in ((model, {"x": x}), (case.model, case.feeds)):
            expected = session(each, compiled=True).run(None, feeds)
            for at_end in (True, False):
                guarded = Guarded(each, at_end=at_end, threads=choose.choice([1, 2]))
                for one, other in zip(guarded.run(None, feeds), expected, strict=True):
                    np.testing.assert_allclose(
                        one.astype(np.float64), other.astype(np.float64), 0.02, 0.02
                    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
