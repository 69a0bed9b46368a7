"""Multiplies by weights of few bits, mixes experts, and attends to caches by lengths
that these may not have, with pages around each buffer that nobody may touch.

    python -m plugins.cpu.tests.compiler.guarded_decoding FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does random graphs.
"""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_testing.grouped_attention import POSITIONS, Grouped

from .guarded import Guarded
from .kernels.test_weight_products import pack, weights
from .test_caches import BOUNDS, as_exported, check, feeds_of
from .test_experts import Mixture, close

Array = np.ndarray[Any, Any]
DTYPES = [np.float32, np.float32, np.float16, ml_dtypes.bfloat16]
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def product(rng: np.random.Generator, guarded: dict[str, Any]) -> None:
    """MatMulNBits of any sizes; elements of ``x`` are integers up to 127, and so are
    exact as bytes, too."""
    bits, dtype = int(rng.choice([2, 4, 8])), DTYPES[rng.integers(4)]
    inner, columns = (int(rng.choice([1, 2, 7, 33, 100, 300])) for _ in range(2))
    block = int(rng.choice([4, 16, 16, 20, 32, 32, 64, 100, 256]))
    rows, level = (int(rng.choice(some)) for some in ([0, 1, 2, 5, 9, 40], [0, 4]))
    zero = str(rng.choice(["", "packed", "float16"]))
    zero = np.dtype(dtype).name if zero == "float16" else zero
    sizes = columns, -(-inner // block), block
    w = weights(rng, sizes, bits, zero, dtype)
    small = np.array(2.0**-10, dtype)  # so that float16 does not overflow
    w = w._replace(scale=w.scale * small)
    x: Any = rng.integers(-127, 128, (rows, inner)).astype(np.float64)
    x[:, ::block] = 127
    arrays: dict[str, Any] = {"w": pack(w.codes, bits), "s": w.scale}
    if zero:
        arrays["z"] = pack(w.zero, bits) if w.packed else w.zero
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", K=inner,
        N=columns, bits=bits, block_size=block, accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", kind, ["rows", inner])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    run = Guarded(model, **guarded)
    (found,) = run.run(None, {"x": x.astype(dtype)})
    assert not [node.note for node in run.explain().nodes if node.note]
    numbers = w.numbers[:, :inner]
    expected = x @ numbers.T
    # codes and zero points are summed apart
    sizes_of_terms = np.abs(x) @ (np.abs(numbers) + 512 * w.scale.max()).T
    unit = UNIT[np.dtype(dtype).name]
    bound = sizes_of_terms * (inner / 16 + 8) * 2.0**-24 + 2 * unit * np.abs(expected)
    assert found.shape == expected.shape
    assert (np.abs(found.astype(np.float64) - expected) <= bound).all()


def attention(rng: np.random.Generator, guarded: dict[str, Any]) -> None:
    """GroupQueryAttention, and the same with lengths and positions of any size."""
    rows = int(rng.choice([1, 1, 4, 9, 30]))
    lengths = [int(n) for n in rng.integers(rows, rows + 9, rng.integers(1, 3))]
    form = {"local_window_size": 4} if rng.integers(2) else {}
    bits = int(rng.choice([0, 0, 8, 4]))
    case = Grouped(
        lengths, rows, max(lengths) + int(rng.integers(5)),
        rotated=16 * (rows < 9 and not bits), sinks=bool(rng.integers(2)),
        places=rows == 1 and not bits, dtype=DTYPES[rng.integers(4)],
        norms=not rng.integers(3) and not bits, bits=bits,
        channels=bool(rng.integers(2)),
        added=(1, 4) if not rng.integers(3) and not bits else None, **form,
    )  # fmt: skip
    run, feeds = Guarded(as_exported(case), **guarded), feeds_of(case)
    check(case, run.run(None, feeds), BOUNDS[case.dtype.name])
    assert not [node.note for node in run.explain().nodes if node.note]
    ends = np.iinfo(np.int32)
    for length in (ends.min, -1000, -2, case.present, ends.max):
        wrong = feeds["lengths"].copy()
        wrong[-1] = length
        refused(run, {**feeds, "lengths": wrong})
    for place in (-1, POSITIONS, 1 << 62) if "places" in feeds else ():
        wrong = np.full_like(feeds["places"], place)
        refused(run, {**feeds, "places": wrong})
    check(case, run.run(None, feeds), BOUNDS[case.dtype.name])


def roomy(rng: np.random.Generator, guarded: dict[str, Any]) -> None:
    """MultiHeadAttention whose caches have room, and with lengths of any size."""
    batch, heads, size, room = 2, 2, int(rng.choice([4, 20])), int(rng.choice([9, 33]))
    rows, causal = int(rng.choice([1, 2, 5, 8])), int(rng.integers(4) > 0)
    shapes = dict.fromkeys("qkv", (batch, rows, heads * size))
    shapes |= dict.fromkeys(("past_k", "past_v"), (batch, heads, room, size))
    feeds: dict[str, Array] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    feeds["length"] = np.array([rng.integers(room - rows + 1)], np.int32)
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v", "", "", "", "past_k", "past_v", "length"],
        ["y", "new_k", "new_v"], domain="com.microsoft", num_heads=heads,
        unidirectional=causal,
    )  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in node.output]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    run = Guarded(model, **guarded)
    first = int(feeds["length"][0])
    split = batch, rows, heads, size
    apart = {name: feeds[name].reshape(split).swapaxes(1, 2) for name in "qkv"}
    seen = [
        np.concatenate([feeds[f"past_{n}"][:, :, :first], apart[n]], 2) for n in "kv"
    ]
    scores = apart["q"].astype(np.float64) @ seen[0].swapaxes(2, 3) / size**0.5
    if causal:
        keys = np.arange(first + rows)
        hidden = keys > first + np.arange(rows)[:, None]
        scores[:, :, hidden] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights @ seen[1] / weights.sum(-1, keepdims=True)
    wanted = wanted.swapaxes(1, 2).reshape(batch, rows, -1)
    for length in (first, -1, -30, -1000, room, np.iinfo(np.int32).min, first):
        given = {**feeds, "length": np.array([length], np.int32)}
        if length == first:
            np.testing.assert_allclose(run.run(None, given)[0], wanted, 1e-5, 1e-5)
        else:
            refused(run, given)
    assert not [node.note for node in run.explain().nodes if node.note]


def experts(rng: np.random.Generator, guarded: dict[str, Any]) -> None:
    """MoE and QMoE of any form."""
    bits, gated = int(rng.choice([0, 0, 2, 4, 8])), rng.integers(2)
    fusion = int(rng.integers(3)) if gated else 0
    form: dict[str, Any] = {"activation_type": "swiglu" if gated else "silu"}
    form |= {"swiglu_fusion": fusion} if fusion else {}
    many = int(rng.choice([1, 5, 40]))
    case = Mixture(
        bits, int(rng.choice([0, 16])) if bits else 0, halves=1 + int(gated),
        third=bool(gated and not fusion), dtype=DTYPES[rng.integers(4)],
        zeros=bool(bits and rng.integers(2)), biased=bool(rng.integers(2)),
        experts=many, routed=bool(bits and rng.integers(2)),
        k=int(rng.integers(1, min(many, 6) + 1)),
        normalize_routing_weights=int(rng.integers(2)), **form,
    )  # fmt: skip
    run = Guarded(case.model(), **guarded)
    for rows in (int(rng.choice([1, 2, 3])), int(rng.choice([0, 17, 90]))):
        feeds = case.feeds(rows)
        bound = 2 * BOUNDS[case.dtype.name]
        close(run.run(None, feeds)[0], case.expected(feeds), case.dtype, bound)
    assert not [node.note for node in run.explain().nodes if node.note]


def refused(run: Guarded, feeds: dict[str, Array]) -> None:
    try:
        run.run(None, feeds)
    except onnxplug.errors.NodeError:
        return
    raise AssertionError("what a cache has not is no error")


def main(first: int, last: int) -> None:
    """Compare guarded sessions with what is expected in float64."""
    for seed in range(first, last):
        print(f"seed {seed}", flush=True)
        for at_end in (True, False):
            rng = np.random.default_rng(seed)
            guarded = {"at_end": at_end, "threads": 1 + seed // 2 % 2}
            (product, experts, attention, roomy)[seed % 4](rng, guarded)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
