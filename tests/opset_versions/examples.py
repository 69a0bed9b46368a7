"""Nodes of older versions of operators, with what they give, computed by NumPy.

They say what the backend suite, which is written for the newest versions, cannot: what
was an attribute once and is an input now, and what has another meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper

RANDOM: Final = np.random.default_rng(17)
X: Final = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)
LEGACY: Final = {"consumed_inputs": [0]}
"""A hint of the first version for reusing memory, without effect."""


class Example(NamedTuple):
    """One node and what it gives.

    Attributes:
        versions: those of the operator that give it.
        inputs: None stands for one left out.
        expected: the outputs.
    """

    op_type: str
    versions: tuple[int, ...]
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    attributes: dict[str, Any]
    domain: str = ""


def example(
    op_type: str,
    versions: int | tuple[int, ...],
    inputs: Any,
    expected: Any,
    domain: str = "",
    **attributes: Any,
) -> Example:
    def as_tuple(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else (value,)

    return Example(
        op_type,
        as_tuple(versions),
        as_tuple(inputs),
        as_tuple(expected),
        attributes,
        domain,
    )


def broadcasts() -> Iterator[Example]:
    """Before version 7 the second operand was laid on the first where it was told."""
    numbers: dict[str, Callable[[Any, Any], Any]] = {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
    }
    logic: dict[str, Callable[[Any, Any], Any]] = {
        "And": np.logical_and,
        "Or": np.logical_or,
        "Xor": np.logical_xor,
    }
    order: dict[str, Callable[[Any, Any], Any]] = {
        "Greater": np.greater,
        "Less": np.less,
    }
    b = RANDOM.standard_normal((3, 4)).astype(np.float32)
    laid = b[:, :, None]
    for op_type, function in numbers.items():
        for legacy, version in ((LEGACY, 1), ({}, 6)):
            told: dict[str, Any] = {"broadcast": 1, **legacy}
            yield example(op_type, version, (X, b), function(X, laid), axis=1, **told)
            last = X[0, 0, 0]
            yield example(op_type, version, (X, last), function(X, last), **told)
            one = np.float32(3)[None]
            yield example(op_type, version, (X, one), function(X, one), **told)
            yield example(op_type, version, (X, X), function(X, X), **legacy)
    for op_type, function in logic.items():
        yield example(
            op_type, 1, (X > 0, b > 0), function(X > 0, laid > 0), broadcast=1, axis=1
        )
        yield example(op_type, 1, (X > 0, X > 1), function(X > 0, X > 1))
    for op_type, function in order.items():
        yield example(op_type, 1, (X, b), function(X, laid), broadcast=1, axis=1)
        yield example(op_type, 1, (X, X[::-1].copy()), function(X, X[::-1]))
    whole, few = (np.rint(3 * each).astype(np.int64) for each in (X, b))
    yield example(
        "Equal", 1, (whole, few), whole == few[:, :, None], broadcast=1, axis=1
    )
    positive = np.abs(X) + 1
    yield example("Pow", 1, (positive, b), positive**laid, broadcast=1, axis=1)
    yield example("PRelu", 1, (X, b[:, 0].copy()), _prelu(X, b[:, 0]), **LEGACY)
    yield example("PRelu", 6, (X, b[:, 0].copy()), _prelu(X, b[:, 0]))


def _prelu(x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope[:, None, None], x)


def reductions() -> Iterator[Example]:
    """Axes were an attribute until version 13 of ReduceSum, until 18 of the others."""
    functions: dict[str, Callable[..., Any]] = {
        "ReduceL1": lambda x, **how: np.abs(x).sum(**how),
        "ReduceL2": lambda x, **how: np.sqrt((x * x).sum(**how)),
        "ReduceLogSum": lambda x, **how: np.log(x.sum(**how)),
        "ReduceLogSumExp": lambda x, **how: np.log(np.exp(x).sum(**how)),
        "ReduceMax": np.max,
        "ReduceMean": np.mean,
        "ReduceMin": np.min,
        "ReduceProd": np.prod,
        "ReduceSum": np.sum,
        "ReduceSumSquare": lambda x, **how: (x * x).sum(**how),
    }
    x = np.abs(X)
    wide = x.astype(np.float64)
    for op_type, function in functions.items():
        since_11 = {"ReduceSum": (11,), "ReduceMax": (11, 12, 13)}.get(
            op_type, (11, 12, 13) if op_type == "ReduceMin" else (11, 13)
        )
        for axes, versions in (((0, 2), (1, *since_11)), ((-1,), since_11)):
            for keep in (0, 1):
                expected = function(wide, axis=axes, keepdims=bool(keep))
                yield example(
                    op_type, versions, x, _f32(expected), axes=axes, keepdims=keep
                )
        everything = function(wide, axis=None, keepdims=True)
        yield example(op_type, (1, *since_11), x, _f32(everything))


def _f32(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32)


def layouts() -> Iterator[Example]:
    yield example("Reshape", 1, X, X.reshape(2, 12, 5), shape=[0, -1, 5])
    yield example("Reshape", 1, X, X.reshape(-1), shape=[-1], **LEGACY)
    yield example("Concat", 1, (X, X), np.concatenate([X, X], axis=1))
    yield example("Concat", (1, 4), (X, X), np.concatenate([X, X], axis=3), axis=3)
    for versions, axes in (((1, 11), [0, 2]), (11, [-2, 0])):
        thin = X[:1, :, :1]
        yield example("Squeeze", versions, thin, thin[0, :, 0], axes=axes)
    yield example("Squeeze", (1, 11), X[:1, :, :, :1], X[0, :, :, 0])
    yield example("Unsqueeze", (1, 11), X, X[None, :, None], axes=[0, 2])
    yield example("Unsqueeze", 11, X, X[..., None], axes=[-1])
    part = X[:, 1:, :3, -2:-1]
    yield example(
        "Slice", 1, X, part, starts=[-2, 1, -9], ends=[-1, 99, 3], axes=[3, 1, 2]
    )
    yield example("Slice", 1, X, X[1:, :2], starts=[1, 0], ends=[2, -1])
    first, second = X[:, :, :1], X[:, :, 1:]
    yield example("Split", (1, 2, 11), X, (first, second), axis=2, split=[1, 3])
    yield example("Split", (1, 2, 11), X, (X[:1], X[1:]))
    sizes = np.array([1, 3], dtype=np.float32)
    yield example("Split", 1, (X, sizes), (first, second), axis=2)
    yield example("Split", 11, X, (X[..., :1], X[..., 1:]), axis=-1, split=[1, 4])
    yield example(
        "Tile",
        1,
        (X, np.array([3], np.float32), np.array([1], np.float32)),
        np.tile(X, (1, 3, 1, 1)),
    )
    around = ((0, 0), (1, 2), (0, 0), (3, 0))
    pads = [0, 1, 0, 3, 0, 2, 0, 0]
    for version, name in ((1, "paddings"), (2, "pads")):
        told = {name: pads}
        yield example("Pad", version, X, np.pad(X, around), **told)
        yield example(
            "Pad",
            version,
            X,
            np.pad(X, around, constant_values=1.5),
            mode="constant",
            value=1.5,
            **told,
        )
        for mode in ("reflect", "edge"):
            inside = ((0, 0), (1, 2), (0, 0), (3, 0))
            yield example(
                "Pad", version, X, np.pad(X, inside, mode=mode), mode=mode, **told
            )
    yield example("Pad", 2, X, X[:, 1:, :, :-2], pads=[0, -1, 0, 0, 0, 0, 0, -2])
    deep = RANDOM.standard_normal((2, 8, 2, 3)).astype(np.float32)
    blocks = deep.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2)
    yield example("DepthToSpace", 1, deep, blocks.reshape(2, 2, 4, 6), blocksize=2)
    at = np.argsort(-X, axis=2, kind="stable")[:, :, :2]
    largest = np.take_along_axis(X, at, 2)
    yield example("TopK", 1, X, (largest, at), k=2, axis=2)
    indices = np.array([[0, -1], [3, 2]])
    hot = np.zeros((2, 2, 3), dtype=np.float32)
    hot[0, 0, 0] = hot[1, 1, 2] = 1
    depth, values = np.array([3]), np.array([0, 1], dtype=np.float32)
    # what is out of [0, depth) was nowhere; negative ones count from the end since 11
    yield example("OneHot", 9, (indices, depth, values), hot)


def images() -> Iterator[Example]:
    doubled = X.repeat(2, axis=2).repeat(3, axis=3)
    yield example("Upsample", 1, X, doubled, height_scale=2.0, width_scale=3.0)
    yield example("Upsample", 7, X, doubled, scales=[1.0, 1.0, 2.0, 3.0])
    scales = np.array([1, 1, 2, 3], dtype=np.float32)
    yield example("Upsample", 9, (X, scales), doubled)
    yield example("Resize", 10, (X, scales), doubled)
    halved = np.array([1, 1, 0.5, 1], dtype=np.float32)
    yield example("Resize", 10, (X, halved), X[:, :, ::2])
    nothing = np.zeros(0, dtype=np.float32)
    yield example(
        "Resize",
        11,
        (X, nothing, scales),
        doubled,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    sizes = np.array([2, 3, 8, 15])
    yield example("Resize", 11, (X, nothing, nothing, sizes), doubled)
    ramp = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    twice = np.array([[[[0, 0.5, 1, 1.5, 2, 2.5, 3, 3]]]], dtype=np.float32)
    stretch = np.array([1, 1, 1, 2], dtype=np.float32)
    yield example("Resize", 10, (ramp, stretch), twice, mode="linear")
    yield example("Upsample", 9, (ramp, stretch), twice, mode="linear")
    yield example("Upsample", 7, ramp, twice, mode="linear", scales=stretch.tolist())
    yield example(
        "Upsample", 1, ramp, twice, mode="bilinear", height_scale=1.0, width_scale=2.0
    )
    regions = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 2]], dtype=np.float32)
    whole = [X[0, :, :4, :4].max(axis=(1, 2)), X[1, :, 1:3, 1:5].max(axis=(1, 2))]
    pooled = np.stack(whole)[:, :, None, None]
    yield example("MaxRoiPool", 1, (X, regions), pooled, pooled_shape=[1, 1])
    scaled = regions * np.array([1, 2, 2, 2, 2], dtype=np.float32)
    yield example(
        "MaxRoiPool",
        1,
        (X, scaled),
        pooled,
        pooled_shape=[1, 1],
        spatial_scale=0.5,
    )
    flat = np.full((1, 1, 6, 6), 2.5, dtype=np.float32)
    box = np.array([[1, 1, 4, 4]], dtype=np.float32)
    slope = np.broadcast_to(np.arange(6, dtype=np.float32), (1, 1, 6, 6)).copy()
    batch = np.array([0])
    how: dict[str, Any] = {"output_height": 1, "output_width": 3, "sampling_ratio": 1}
    level = np.full((1, 1, 1, 3), 2.5, dtype=np.float32)
    yield example("RoiAlign", 10, (flat, box, batch), level, **how)
    middles = np.array(
        [[[[1.5, 2.5, 3.5]]]], dtype=np.float32
    )  # no half pixel is taken
    yield example("RoiAlign", 10, (slope, box, batch), middles, **how)


def networks() -> Iterator[Example]:
    channel = RANDOM.standard_normal((4, 3)).astype(np.float32)
    scale, bias, mean, variance = channel[0], channel[1], channel[2], channel[3] ** 2
    shape = (3, 1, 1)
    spread = np.sqrt(variance.reshape(shape) + np.float32(1e-5))
    normal = (X - mean.reshape(shape)) / spread * scale.reshape(shape)
    normal = normal + bias.reshape(shape)
    inputs = (X, scale, bias, mean, variance)
    yield example(
        "BatchNormalization", 1, inputs, normal, is_test=1, consumed_inputs=[0] * 5
    )
    yield example("BatchNormalization", 6, inputs, normal, is_test=1)
    yield example("BatchNormalization", (7, 9), inputs, normal)
    yield example("Dropout", 1, X, X, is_test=1, **LEGACY)
    yield example("Dropout", 6, X, X, is_test=1)
    yield example("Dropout", (7, 10), X, X, ratio=0.9)
    a, b, c = X[0, 0], X[1, 0].T.copy(), X[0, 1, :, 0].copy()
    yield example(
        "Gemm", (1, 6), (a, b, c), 2 * (a @ b) + 3 * c, alpha=2.0, beta=3.0, broadcast=1
    )
    square = X[1, 1, :, :4].copy()
    yield example("Gemm", (1, 6), (a, b.T.copy(), square), a @ b + square, transB=1)
    yield example("Gemm", (1, 6), (a.T.copy(), b, square), a @ b + square, transA=1)
    cubes = (np.abs(X.astype(np.float64)) ** 3).sum(axis=(2, 3), keepdims=True)
    yield example("GlobalLpPool", 1, X, _f32(np.cbrt(cubes)), p=3.0)
    yield example("GlobalLpPool", 2, X, _f32(np.cbrt(cubes)), p=3)
    squares = np.lib.stride_tricks.sliding_window_view(X**2, (2, 2), axis=(2, 3))
    lengths = _f32(np.sqrt(squares.sum(axis=(4, 5))))
    padded = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 1)), constant_values=np.nan)
    pairs = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), axis=(2, 3))
    means = np.nanmean(pairs[:, :, ::2, ::3], axis=(4, 5))
    yield example(
        "AveragePool",
        1,
        X,
        means,
        kernel_shape=[2, 2],
        strides=[2, 3],
        pads=[1, 0, 0, 1],
    )
    yield example("LpPool", 1, X, lengths, kernel_shape=[2, 2], p=2.0)
    yield example("LpPool", (2, 11), X, lengths, kernel_shape=[2, 2], p=2)
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from _flattened(op_type)
    yield _recurrent()


def _flattened(op_type: str) -> Iterator[Example]:
    """Until version 13, what follows the axis was one dimension."""
    for axis in (None, 0, 2, 3):
        rows = X.reshape(math.prod(X.shape[: 1 if axis is None else axis]), -1)
        powers = np.exp(rows.astype(np.float64))
        shares = powers / powers.sum(axis=1, keepdims=True)
        results = {
            "Softmax": shares,
            "LogSoftmax": np.log(shares),
            "Hardmax": np.eye(rows.shape[1])[rows.argmax(axis=1)],
        }
        told = {} if axis is None else {"axis": axis}
        expected = _f32(results[op_type].reshape(X.shape))
        yield example(op_type, (1, 11), X, expected, **told)


def _recurrent() -> Example:
    x = RANDOM.standard_normal((4, 2, 3)).astype(np.float32)
    w = RANDOM.standard_normal((1, 5, 3)).astype(np.float32)
    r = RANDOM.standard_normal((1, 5, 5)).astype(np.float32)
    b = RANDOM.standard_normal((1, 10)).astype(np.float32)
    state = np.zeros((2, 5), dtype=np.float32)
    steps = []
    for step in x:
        state = np.tanh(step @ w[0].T + state @ r[0].T + b[0, :5] + b[0, 5:])
        steps.append(state)
    expected = (np.stack(steps)[:, None], state[None])
    return example("RNN", 1, (x, w, r, b), expected, hidden_size=5, output_sequence=1)


def others() -> Iterator[Example]:
    yield example("Cast", 1, X, X.astype(np.int32), to="INT32")
    yield example("Cast", 1, X > 0, (X > 0).astype(np.float64), to="DOUBLE")
    between = np.clip(X, np.float32(-0.5), np.float32(0.75))
    yield example("Clip", 1, X, between, min=-0.5, max=0.75, **LEGACY)
    yield example("Clip", 6, X, between, min=-0.5, max=0.75)
    yield example("Clip", (1, 6), X, X)
    yield example("Clip", 6, X, np.maximum(X, 0), min=0.0)
    curve = 1.0507 * np.where(X < 0, 1.6732 * np.expm1(X.astype(np.float64)), X)
    yield example("Selu", 1, X, _f32(curve), **LEGACY)
    yield example("Relu", 1, X, np.maximum(X, 0), **LEGACY)
    yield example("Sum", (1, 6), (X, X, X), X + X + X)
    yield example("Mean", (1, 6), (X, X * 3), X * 2)
    # without a spread there is one number to draw
    size = {"shape": [2, 3]}
    twos = np.full((2, 3), 2, dtype=np.float32)
    yield example("RandomNormal", 1, (), twos, mean=2.0, scale=0.0, **size)
    yield example("RandomUniform", 1, (), twos, low=2.0, high=2.0, **size)
    like = np.zeros((2, 3), dtype=np.float16)
    halves = twos.astype(np.float16)
    yield example("RandomNormalLike", 1, like, halves, mean=2.0, scale=0.0)
    yield example("RandomUniformLike", 1, like, twos, low=2.0, high=2.0, dtype=1)
    sure = np.log(np.array([[1e-30, 1, 1e-30], [1, 1e-30, 1e-30]], np.float32))
    drawn = np.array([[1] * 4, [0] * 4], dtype=np.int32)
    yield example("Multinomial", 7, sure, drawn, sample_size=4)
    yield _loop()


def _loop() -> Example:
    """Sums 0 … 4 on top of a start; gives the sum after each step."""
    kinds = {
        "step": TensorProto.INT64,
        "going": TensorProto.BOOL,
        "sum": TensorProto.INT64,
        "next": TensorProto.INT64,
        "still": TensorProto.BOOL,
        "seen": TensorProto.INT64,
    }
    values = {
        name: helper.make_tensor_value_info(name, kind, [])
        for name, kind in kinds.items()
    }
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "step"], ["next"]),
            helper.make_node("Not", ["going"], ["stopped"]),
            helper.make_node("Not", ["stopped"], ["still"]),
            helper.make_node("Mul", ["next", "next"], ["seen"]),
        ],
        "sum",
        [values[name] for name in ("step", "going", "sum")],
        [values[name] for name in ("still", "next", "seen")],
    )
    sums = 10 + np.cumsum(np.arange(5))
    inputs = (np.array(5), np.array(True), np.array(10))
    return example("Loop", 1, inputs, (sums[-1], sums**2), body=body)


def trees() -> Iterator[Example]:
    """One tree: x[0] ≤ 0.5 gives 1, else x[1] ≤ -1 gives 2, else 4."""
    x = np.array([[0.5, 9], [0.6, -1], [0.6, -0.9]], dtype=np.float32)
    nodes: dict[str, Any] = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0],
    }
    splits = [0.5, 0.0, -1.0, 0.0, 0.0]
    targets: dict[str, Any] = {
        "target_treeids": [0] * 3,
        "target_nodeids": [1, 3, 4],
        "target_ids": [0] * 3,
        "n_targets": 1,
    }
    classes: dict[str, Any] = {
        "class_treeids": [0] * 3,
        "class_nodeids": [1, 3, 4],
        "class_ids": [2, 0, 1],
        "classlabels_int64s": [7, 8, 9],
    }
    leaves = np.array([[1], [2], [4]], dtype=np.float32)
    votes = np.array([[0, 0, 1], [2, 0, 0], [0, 4, 0]], dtype=np.float32)
    labels = np.array([9, 7, 8])
    weights = [1.0, 2.0, 4.0]
    yield example(
        "TreeEnsembleRegressor",
        (1, 3),
        x,
        leaves,
        "ai.onnx.ml",
        nodes_values=splits,
        target_weights=weights,
        **nodes,
        **targets,
    )
    yield example(
        "TreeEnsembleClassifier",
        (1, 3),
        x,
        (labels, votes),
        "ai.onnx.ml",
        nodes_values=splits,
        class_weights=weights,
        **nodes,
        **classes,
    )
    tensors = {
        "nodes_values_as_tensor": np.array(splits, dtype=np.float64),
        "target_weights_as_tensor": np.array(weights, dtype=np.float64),
    }
    yield example(
        "TreeEnsembleRegressor",
        3,
        x.astype(np.float64),
        leaves,
        "ai.onnx.ml",
        **tensors,
        **nodes,
        **targets,
    )
    names = np.array(["b", "z", "a"], dtype=object)
    told: dict[str, Any] = {"classes_strings": ["a", "b"]}
    yield example(
        "LabelEncoder",
        1,
        names,
        np.array([1, -7, 0]),
        "ai.onnx.ml",
        default_int64=-7,
        **told,
    )
    yield example(
        "LabelEncoder",
        1,
        np.array([1, 5, 0]),
        np.array(["b", "?", "a"], object),
        "ai.onnx.ml",
        default_string="?",
        **told,
    )


EXAMPLES: Final = [
    each
    for group in (broadcasts, reductions, layouts, images, networks, others, trees)
    for each in group()
]
