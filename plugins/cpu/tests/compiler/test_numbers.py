"""Whole graphs of other numbers than float32, against the array tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from .differential import session

Array = np.ndarray[Any, Any]


def model_of(
    nodes: Sequence[tuple[Any, ...]],
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    """Nodes as (operator, inputs, output, attributes) over inputs of any sizes."""
    graph = helper.make_graph(
        [
            helper.make_node(operator, inputs.split(), [output], **(more or {}))
            for operator, inputs, output, *rest in nodes
            for more in [rest[0] if rest else None]
        ],
        "numbers",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [f"{name}{axis}" for axis in range(array.ndim)],
            )
            for name, array in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[list[Any]]:
    """What is compiled whole gives, ONNX Runtime, and the array tier."""
    compiled = session(model, compiled=True, threads=1)
    found = compiled.run(None, dict(feeds))
    (partition,) = compiled.explain().partitions
    assert set(partition.tiers) == {"compiled"}, compiled.explain()
    peer = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    arrays = session(model, compiled=False, threads=1)
    return [found, peer.run(None, dict(feeds)), arrays.run(None, dict(feeds))]


MASK = (
    ("Equal", "ids padding", "absent"),
    ("Not", "absent", "present"),
    ("Cast", "present", "ones", {"to": onnx.TensorProto.INT64}),
    ("CumSum", "ones last", "counts"),
    ("Mul", "counts ones", "kept"),
    ("Sub", "kept one", "shifted"),
    ("Less", "shifted zero", "below"),
    ("Where", "below one shifted", "positions"),
    ("Shape", "ids", "shape"),
    ("Gather", "shape last", "length"),
    ("Range", "zero length one", "places"),
    ("Unsqueeze", "places front", "columns"),
    ("Unsqueeze", "places back", "rows"),
    ("LessOrEqual", "columns rows", "causal"),
    ("Sub", "rows columns", "apart"),
    ("Abs", "apart", "far"),
    ("Div", "far bucket", "wide"),
    ("Mod", "apart bucket", "narrow"),
    ("Min", "wide most", "bounded"),
    ("Add", "bounded narrow", "buckets"),
    ("Gather", "table buckets", "bias"),
    ("Unsqueeze", "present middle", "keys"),
    ("And", "keys causal", "mask"),
    ("Where", "mask bias hidden", "scores"),
    ("Not", "mask", "unseen"),
    ("Cast", "unseen", "counted", {"to": onnx.TensorProto.INT32}),
    ("ReduceSum", "counted middle", "total", {"keepdims": 0}),
    ("ReduceMax", "ids", "largest"),
)


def test_positions_and_masks() -> None:
    rng = np.random.default_rng(0)
    feeds = {"ids": rng.integers(0, 4, (3, 37))}
    constants = {
        "padding": 0, "one": 1, "zero": 0, "last": 1, "front": [0], "back": [1],
        "middle": [1, 2], "bucket": 8, "most": 3, "hidden": np.float32(-np.inf),
        "table": rng.standard_normal(12).astype(np.float32),
    }  # fmt: skip
    outputs = ["positions", "scores", "total", "largest"]
    found, peer, arrays = run(model_of(MASK, feeds, outputs, constants), feeds)
    for ours, theirs, others in zip(found, peer, arrays, strict=True):
        assert ours.dtype == theirs.dtype == others.dtype
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours, others)


MIXTURE = (
    ("MatMul", "x weights", "product"),
    ("Sub", "product means", "centred"),
    ("Mul", "centred centred", "squares"),
    ("ReduceSum", "squares last", "distances", {"keepdims": 0}),
    ("Gemm", "distances scale offset", "scores", {"alpha": -0.5, "transB": 1}),
    ("ReduceLogSumExp", "scores last", "total"),
    ("Sub", "scores total", "logarithms"),
    ("Exp", "logarithms", "probabilities"),
    ("Softmax", "scores", "same"),
    ("Sigmoid", "distances", "sigmoid"),
    ("Tanh", "product", "tanh"),
    ("Pow", "distances exponent", "power"),
    ("Log", "power", "log"),
    ("ArgMax", "scores", "label", {"axis": 1, "keepdims": 0}),
)


def test_a_mixture_of_gaussians_in_float64() -> None:
    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((2, 7, 6))[0]}
    constants = {
        "weights": rng.standard_normal((3, 6, 5)),
        "means": rng.standard_normal((3, 1, 5)),
        "scale": np.eye(7, 7) + rng.standard_normal((7, 7)) / 9,
        "offset": rng.standard_normal(7),
        "last": [-1],
        "exponent": 1.7,
    }
    outputs = ["probabilities", "same", "sigmoid", "tanh", "log", "label"]
    found, peer, arrays = run(model_of(MIXTURE, feeds, outputs, constants), feeds)
    for ours, theirs, others in zip(found, peer, arrays, strict=True):
        assert ours.dtype == theirs.dtype == others.dtype
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-14)
        np.testing.assert_allclose(ours, others, 1e-12, 1e-14)


def test_blocks_of_pixels() -> None:
    rng = np.random.default_rng(2)
    feeds = {"x": rng.integers(0, 256, (2, 18, 5, 7)).astype(np.uint8)}
    cases: list[tuple[Any, ...]] = [
        ("DepthToSpace", "x", "a", {"blocksize": 3, "mode": "DCR"}),
        ("DepthToSpace", "x", "b", {"blocksize": 3, "mode": "CRD"}),
        ("SpaceToDepth", "a", "c", {"blocksize": 3}),
        ("Transpose", "x", "last", {"perm": [0, 2, 3, 1]}),
        ("Transpose", "last", "first", {"perm": [0, 3, 1, 2]}),
        ("DepthToSpace", "first", "d", {"blocksize": 1}),
    ]
    model = model_of(cases, feeds, ["a", "b", "c", "last", "d"], {})
    compiled, arrays = (
        session(model, compiled=compiles, threads=1) for compiles in (True, False)
    )
    for ours, others in zip(
        compiled.run(None, feeds), arrays.run(None, feeds), strict=True
    ):
        assert ours.dtype == others.dtype
        np.testing.assert_array_equal(ours, others)
    (partition,) = compiled.explain().partitions
    assert set(partition.tiers) == {"compiled"}


def test_what_follows_from_shapes_and_is_too_large_for_plans_is_compiled() -> None:
    nodes: list[tuple[Any, ...]] = [
        ("Shape", "x", "shape"),
        ("Expand", "two shape", "twos"),
        ("Add", "twos row", "added"),
        ("Mul", "x added", "y"),
    ]
    feeds = {"x": np.full((1 << 11, 1 << 10), 3, np.float32)}
    row = np.arange(1 << 10, dtype=np.float32)
    constants = {"two": np.float32([[2]]), "row": row}
    model = model_of(nodes, feeds, ["y", "shape"], constants)
    for result in run(model, feeds):
        np.testing.assert_array_equal(result[0], feeds["x"] * (row + 2))
        np.testing.assert_array_equal(result[1], feeds["x"].shape)
