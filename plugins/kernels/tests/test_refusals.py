"""Numbers and shapes that ONNX does not allow are refused, and never computed with.

Each example is one for which some kernel read memory that is not its own, never came
back, took all memory, or gave numbers for what has no result.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from onnxplug_kernels import find_kernel

from .node_oracles import ML, run

HUGE = 1 << 62
MOST = (1 << 63) - 1
Inputs = tuple[Any, ...]
Example = tuple[str, Inputs, dict[str, Any], str]


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def scalar(number: Any, dtype: Any = np.int64) -> Any:
    return np.array(number, dtype)


IMAGE = f32(1, 2, 4, 4)
KERNEL = f32(2, 2, 2, 2)
NAN, INF = float("nan"), float("inf")

WINDOWS: list[Example] = [
    (op_type, inputs, {**fixed, **wrong}, message)
    for op_type, inputs, fixed in (
        ("Conv", (IMAGE, KERNEL), {}),
        ("ConvInteger", (IMAGE.astype("b"), KERNEL.astype("b")), {}),
        ("ConvTranspose", (IMAGE, KERNEL), {}),
        ("MaxPool", (IMAGE,), {"kernel_shape": (2, 2)}),
        ("AveragePool", (IMAGE,), {"kernel_shape": (2, 2)}),
        ("LpPool", (IMAGE,), {"kernel_shape": (2, 2)}),
        ("Col2Im", (f32(1, 4, 9), i64(4, 4), i64(2, 2)), {}),
    )
    for wrong, message in (
        ({"dilations": (-100000000, 1)}, "dilations is .* expected 1 or more"),
        ({"dilations": (-1, -1)}, "dilations is"),
        ({"dilations": (1, 0)}, "dilations is"),
        ({"dilations": (1,)}, "dilations has 1 values"),
        ({"strides": (-2, 1)}, "strides is"),
        ({"strides": (0, 1)}, "strides is"),
        ({"pads": (-20, 15, 0, 0)}, "pads is .* expected 0 or more"),
        ({"pads": (1, 1, 1)}, "pads has 3 values"),
    )
]

CONVOLUTIONS: list[Example] = [
    ("MaxPool", (IMAGE,), {"kernel_shape": (0, 2)}, "kernel_shape is"),
    ("MaxPool", (IMAGE,), {"kernel_shape": (-2, 2)}, "kernel_shape is"),
    ("MaxPool", (IMAGE,), {"kernel_shape": ()}, "kernel_shape has 0 values"),
    (
        "MaxPool",
        (IMAGE,),
        {"kernel_shape": (2, 2), "pads": (0, 2, 0, 0)},
        "less padding",
    ),
    ("LpPool", (IMAGE,), {"kernel_shape": (2, 2), "p": 0}, "p is 0"),
    ("LpPool", (IMAGE,), {"kernel_shape": (2, 2), "p": -3}, "p is -3"),
    ("Conv", (IMAGE, KERNEL), {"group": 0}, "group is"),
    ("Conv", (IMAGE, KERNEL), {"group": -1}, "group is"),
    ("Conv", (IMAGE, KERNEL, f32(1)), {}, "bias has shape"),
    ("Conv", (IMAGE, KERNEL[:, :, :0]), {}, "weights is"),
    ("Conv", (IMAGE, f32(2, 2, 5, 5)), {}, "spans 5 positions"),
    (
        "ConvInteger",
        (np.ones((1, 1, 6, 6), "b"), np.ones((1, 1, 2, 2), "b")),
        {"kernel_shape": (1, 4)},
        "kernel_shape is",
    ),
    (
        "ConvInteger",
        (
            np.ones((1, 1, 3, 3), "b"),
            np.ones((1, 1, 2, 2), "b"),
            None,
            scalar([1, 2], "b"),
        ),
        {},
        "zero point of w",
    ),
    (
        "ConvTranspose",
        (IMAGE, KERNEL),
        {"output_padding": (-1, 0)},
        "output_padding is",
    ),
    ("ConvTranspose", (IMAGE, KERNEL), {"output_padding": (1, 0)}, "output_padding is"),
    ("ConvTranspose", (IMAGE, KERNEL), {"output_shape": (-1, 5)}, "output_shape is"),
    ("ConvTranspose", (IMAGE, KERNEL), {"output_shape": (5,)}, "output_shape is"),
    ("ConvTranspose", (IMAGE, KERNEL), {"group": 0}, "group is"),
    ("Col2Im", (f32(1, 4, 9), i64(4, -4), i64(2, 2)), {}, "negative size"),
    ("Col2Im", (f32(1, 4, 9), i64(4, 4), i64(2, 0)), {}, "kernel_shape is"),
    (
        "DeformConv",
        (IMAGE, KERNEL, f32(1, 8, 3, 3)),
        {"offset_group": 0},
        "offset_group",
    ),
    ("DeformConv", (IMAGE, KERNEL, f32(1, 8, 3, 1)), {}, "offset has shape"),
    ("CausalConvWithState", (f32(1, 2, 4), f32(2, 1, 0)), {"version": 27}, "weights"),
    (
        "CausalConvWithState",
        (f32(1, 2, 4), f32(2, 1, 3), None, f32(1, 2, 1)),
        {"version": 27},
        "past_state has shape",
    ),
    (
        "MaxUnpool",
        (f32(1, 1, 2, 2), np.full((1, 1, 2, 2), -1)),
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        "index -1 is out of range",
    ),
    (
        "MaxUnpool",
        (f32(1, 1, 2, 2), np.zeros((1, 1, 2, 2), int), i64(1, 1, 3, 4)),
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        "output_shape is",
    ),
    (
        "MaxUnpool",
        (f32(1, 1, 2, 2), np.zeros((1, 1, 1, 1), int)),
        {"kernel_shape": (2, 2)},
        "one for each element",
    ),
]

X = f32(2, 3, 4)
AXES: list[Example] = [
    example
    for axis in (3, -4, MOST, -MOST - 1)
    for example in (
        ("ArgMax", (X,), {"axis": axis}, "axis is"),
        ("Compress", (X, np.ones(1, bool)), {"axis": axis}, "axis is"),
        ("Concat", (X, X), {"axis": axis}, "axis is"),
        ("CumSum", (X, scalar(axis)), {}, "axis is"),
        ("Gather", (X, i64(0)), {"axis": axis}, "axis is"),
        ("GatherElements", (X, X.astype("q")), {"axis": axis}, "axis is"),
        ("Hardmax", (X,), {"axis": axis}, "axis is"),
        ("LayerNormalization", (X, f32(4)), {"axis": axis}, "axis is"),
        ("LogSoftmax", (X[:0],), {"axis": axis}, "axis is"),
        ("LpNormalization", (X,), {"axis": axis}, "axis is"),
        ("MeanVarianceNormalization", (X,), {"axes": (axis,)}, "axes is"),
        ("Pad", (X, i64(1, 1), None, i64(axis)), {}, "axes is"),
        ("QuantizeLinear", (X, f32(3)), {"axis": axis}, "axis is"),
        ("ReduceSum", (X, i64(axis)), {}, "axes is"),
        ("RMSNormalization", (X, f32(4)), {"axis": axis, "version": 23}, "axis is"),
        ("ScatterElements", (X, X.astype("q"), X), {"axis": axis}, "axis is"),
        ("Slice", (X, i64(0), i64(1), i64(axis)), {}, "axes is"),
        ("Softmax", (X[:0],), {"axis": axis}, "axis is"),
        ("Split", (X,), {"axis": axis, "num_outputs": 1}, "axis is"),
        ("Squeeze", (X, i64(axis)), {}, "axes is"),
        ("TopK", (X, i64(1)), {"axis": axis}, "axis is"),
        ("Unique", (X,), {"axis": axis}, "axis is"),
        ("CenterCropPad", (X, i64(1)), {"axes": (axis,)}, "axes is"),
        ("SplitToSequence", (X,), {"axis": axis}, "axis is"),
        (
            "Resize",
            (X, None, f32(1)),
            {"axes": (axis,)},
            "axes is",
        ),
    )
] + [
    ("Flatten", (X,), {"axis": 4}, "axis 4"),
    ("Softmax", (X,), {"axis": 4, "version": 11}, "axis is 4"),
    ("OneHot", (i64(0), scalar(3), i64(0, 1)), {"axis": 2}, "axis is 2"),
    ("Unsqueeze", (X, i64(0, 0)), {}, "name an axis twice"),
    ("Squeeze", (X[:1], i64(0, -3)), {}, "name an axis twice"),
    ("Slice", (X, i64(0, 0), i64(1, 1), i64(0, -3)), {}, "name an axis twice"),
    ("Pad", (X, i64(1, 1, 1, 1), None, i64(0, 0)), {}, "name an axis twice"),
    ("Transpose", (X,), {"perm": (0, 0, 1)}, "perm is"),
    ("Transpose", (X,), {"perm": (-1, 0, 1)}, "perm is"),
    ("GatherND", (X, i64(0)), {"batch_dims": -1}, "batch_dims is -1"),
    ("GatherND", (X, i64(0)), {"batch_dims": 3}, "batch_dims is 3"),
    ("ReverseSequence", (X, i64(1, 1)), {"batch_axis": 0, "time_axis": 0}, "twice"),
    ("ReverseSequence", (X, i64(-1, 1, 1)), {}, "of -1 elements"),
    ("ReduceSum", (scalar(1, "f"), i64(1)), {}, "axes is 1"),
    ("DFT", (f32(1, 4, 1), None, scalar(5)), {}, "axis is 5"),
    ("TensorScatter", (X, X), {"axis": 0, "version": 24}, "after the batch"),
    (
        "TensorScatter",
        (X, X[:, :, :1], i64(MOST, 0)),
        {"axis": -1, "version": 24},
        "writes positions",
    ),
]

SIZES: list[Example] = [
    ("Expand", (f32(1), i64(-2, -3)), {}, "negative size"),
    ("Expand", (f32(1), i64(HUGE, HUGE)), {}, "more elements"),
    ("Tile", (f32(2, 2), i64(HUGE, HUGE)), {}, "more elements"),
    ("Tile", (f32(2, 2), i64(1 << 33, 1 << 33)), {}, "more elements"),
    ("Tile", (f32(2, 2), i64(-1, 1)), {}, "repeats is"),
    ("Tile", (f32(2, 2), i64(2)), {}, "repeats has 1 values"),
    ("Reshape", (f32(6), i64(-5, 2)), {}, "Reshape to"),
    ("Reshape", (f32(0, 7), i64(0, -1, 3)), {}, "no size fits"),
    ("Reshape", (f32(0), i64(0, -1)), {"allowzero": 1}, "may stand for any"),
    ("ConstantOfShape", (i64(-1),), {}, "negative size"),
    ("ConstantOfShape", (i64(HUGE, 8),), {}, "more elements"),
    ("Range", (scalar(0), scalar(5), scalar(0)), {}, "delta of Range is 0"),
    ("Range", (scalar(-MOST), scalar(MOST), scalar(1)), {}, "more elements"),
    ("Range", tuple(scalar(n, "f") for n in (0, NAN, 1)), {}, "no number of"),
    ("Range", tuple(scalar(n, "f") for n in (0, INF, 1)), {}, "no number of"),
    ("Range", tuple(scalar(n, "f") for n in (0, 1e30, 1)), {}, "more elements"),
    ("OneHot", (i64(0), scalar(0), i64(0, 1)), {}, "depth of 0"),
    ("OneHot", (i64(0), scalar(NAN, "f"), i64(0, 1)), {}, "depth of nan"),
    ("OneHot", (i64(0), scalar(MOST), i64(0, 1)), {}, "more elements"),
    ("OneHot", (i64(0), scalar(3), i64(0)), {}, "two, for off and on"),
    ("RandomNormal", (), {"shape": (-1, 2)}, "negative size"),
    ("RandomUniform", (), {"shape": (HUGE, 2)}, "more elements"),
    ("RandomUniform", (), {"shape": (1,), "seed": NAN}, "seed is nan"),
    ("Multinomial", (f32(1, 2),), {"sample_size": 0}, "sample_size is"),
    ("Multinomial", (f32(1, 2) * -INF,), {}, "without any probability"),
    ("HannWindow", (scalar(-1),), {}, "negative size"),
    ("HannWindow", (scalar(HUGE),), {}, "more elements"),
    (
        "MelWeightMatrix",
        tuple(map(scalar, (-8, 16, 8000, 0, 4000))),
        {},
        "num_mel_bins",
    ),
    (
        "MelWeightMatrix",
        tuple(map(scalar, (8, 16, 0, 0, 4000))),
        {},
        "positive numbers",
    ),
    ("STFT", (f32(1, 8), scalar(0), None, scalar(4)), {}, "frame_step is"),
    ("STFT", (f32(1, 8), scalar(-2), None, scalar(4)), {}, "frame_step is"),
    ("STFT", (f32(1, 8), scalar(2), None, scalar(-4)), {}, "frame_length is"),
    ("STFT", (f32(1, 8), scalar(2), None, scalar(HUGE)), {}, "do not fit"),
    ("DFT", (f32(1, 4, 1), scalar(-4)), {}, "dft_length is"),
    ("DFT", (f32(1, 4, 1), scalar(HUGE)), {}, "more elements"),
    ("DepthToSpace", (f32(1, 4, 2, 2),), {"blocksize": -2}, "blocksize is"),
    ("SpaceToDepth", (f32(1, 4, 2, 2),), {"blocksize": 0}, "blocksize is"),
    ("Pad", (f32(3), i64(-9, 1)), {}, "negative size"),
    ("Pad", (f32(3), i64(MOST, MOST)), {}, "more elements"),
    ("Pad", (f32(3), i64(1, 1), f32(2)), {}, "one number"),
    ("CenterCropPad", (f32(3), i64(-1)), {}, "shape is"),
    ("Split", (f32(4),), {"num_outputs": 1 << 31, "output_count": 2}, "parts has 2"),
    ("Split", (f32(4),), {"num_outputs": 0}, "0 parts"),
    ("TopK", (f32(4), i64(-1)), {}, "TopK of -1"),
    ("LRN", (IMAGE,), {"size": 0}, "size is"),
    (
        "GroupNormalization",
        (IMAGE, f32(2), f32(2)),
        {"num_groups": 0, "version": 21},
        "num_groups",
    ),
    ("AffineGrid", (f32(1, 2, 3), i64(1, 1, -2, 3)), {}, "negative size"),
    ("AffineGrid", (f32(1, 2, 2), i64(1, 1, 2, 3)), {}, "theta of shape"),
]

READING: list[Example] = [
    ("Resize", (IMAGE, None, np.array([1, 1, NAN, 1], "f")), {}, "a scale is nan"),
    ("Resize", (IMAGE, None, np.array([1, 1, -2, 1], "f")), {}, "a scale is -2"),
    ("Resize", (IMAGE, None, np.array([1, 1, INF, 1], "f")), {}, "a scale is inf"),
    ("Resize", (IMAGE, None, np.array([1, 1, 1e30, 1], "f")), {}, "more elements"),
    ("Resize", (IMAGE, None, None, i64(1, 2, -1, 4)), {}, "sizes are"),
    ("Resize", (IMAGE[:, :, :0], None, None, i64(1, 2, 3, 4)), {}, "nothing to be"),
    (
        "Resize",
        (IMAGE, np.array([0, 0, 0, 0, 1, 1, NAN, 1], "f"), f32(4)),
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "roi is",
    ),
    ("Upsample", (IMAGE, np.array([1, 1, 0, 1], "f")), {"version": 9}, "a scale is 0"),
    ("GridSample", (IMAGE, f32(2, 1, 1, 2)), {}, "the same batch"),
    ("RoiAlign", (IMAGE, f32(1, 4), i64(1)), {}, "index 1 is out of range"),
    ("RoiAlign", (IMAGE, f32(1, 4), i64(-1)), {}, "index -1 is out of range"),
    ("RoiAlign", (IMAGE, f32(1, 4) * NAN, i64(0)), {}, "not finite"),
    ("RoiAlign", (IMAGE, f32(1, 4), i64(0)), {"output_height": 0}, "output_height"),
    ("RoiAlign", (IMAGE, f32(1, 4), i64(0)), {"sampling_ratio": -1}, "sampling_ratio"),
    ("MaxRoiPool", (IMAGE, f32(1, 5)), {"pooled_shape": (2, 2)}, "out of range"),
    ("MaxRoiPool", (IMAGE, f32(0, 5)), {"pooled_shape": (2, -2)}, "pooled_shape"),
    ("NonMaxSuppression", (f32(1, 3, 4), f32(1, 1, 4)), {}, "expected"),
    (
        "NonMaxSuppression",
        (f32(1, 3, 4), f32(1, 1, 3), scalar(1), scalar(NAN, "f")),
        {},
        "iou_threshold is nan",
    ),
    ("NegativeLogLikelihoodLoss", (f32(2, 3), i64(-1, 0)), {}, "index -1"),
    ("NegativeLogLikelihoodLoss", (f32(2, 3), i64(1, 0), f32(1)), {}, "the weights"),
    ("ScatterElements", (f32(3), i64(0, 1), f32(1)), {}, "updates have shape"),
    ("ScatterND", (f32(3), i64(0, 1).reshape(2, 1), f32(1)), {}, "updates have shape"),
    ("Einsum", (f32(2, 3),), {"equation": "ii"}, "stands for sizes 2 and 3"),
    ("Einsum", (f32(2, 3),), {"equation": "ij->iz"}, "equation"),
    ("Gemm", (f32(2), f32(2, 2)), {}, "two matrices"),
    ("Clip", (f32(2), f32(2)), {}, "expected scalars"),
    ("Dropout", (f32(2), scalar(1, "f"), scalar(True, bool)), {}, "ratio is 1"),
    ("PRelu", (f32(1), f32(3)), {}, "slope has shape"),
]

PARAMETERS: list[Example] = [
    ("BatchNormalization", (IMAGE, *[f32(1)] * 4), {}, r"expected \(2,\)"),
    ("BatchNormalization", (IMAGE[:, :1], *[f32(3)] * 4), {}, r"expected \(1,\)"),
    ("InstanceNormalization", (IMAGE, f32(1), f32(2)), {}, r"expected \(2,\)"),
    (
        "GroupNormalization",
        (IMAGE, f32(1), f32(2)),
        {"num_groups": 2, "version": 18},
        r"expected \(2,\)",
    ),
    ("QuantizeLinear", (f32(2, 3), f32(2)), {"axis": 1}, "expected one"),
    ("QuantizeLinear", (f32(2, 3), f32(3), np.ones(2, "b")), {}, "that of the scale"),
    (
        "QuantizeLinear",
        (f32(2, 3), f32(2, 3)),
        {"block_size": -1, "version": 21},
        "block_size",
    ),
    (
        "QuantizeLinear",
        (f32(2, 3), f32(2, 3)),
        {"block_size": 2, "version": 21},
        "blocks of 2",
    ),
    (
        "MatMulInteger",
        (np.ones((1, 2), "b"), np.ones((2, 3), "b"), np.ones(5, "b")),
        {},
        "a zero point",
    ),
    (
        "Attention",
        (f32(1, 2, 8),) * 3,
        {"q_num_heads": -2, "kv_num_heads": 2, "version": 23},
        "q_num_heads -2",
    ),
    (
        "Attention",
        (f32(1, 2, 8),) * 3,
        {"q_num_heads": 3, "kv_num_heads": 3, "version": 23},
        "q_num_heads 3",
    ),
    (
        "Attention",
        (f32(1, 2, 8),) * 3,
        {"q_num_heads": 2, "kv_num_heads": 0, "version": 23},
        "kv_num_heads 0",
    ),
    (
        "Attention",
        (f32(2, 1, 2, 8), f32(1, 1, 2, 8), f32(2, 1, 2, 8)),
        {"version": 23},
        "one batch",
    ),
    (
        "Attention",
        (f32(1, 1, 2, 8),) * 3 + (f32(5, 1, 2, 2),),
        {"version": 23},
        "attn_mask has shape",
    ),
    (
        "Attention",
        (f32(1, 1, 2, 8),) * 3,
        {"qk_matmul_output_mode": -1, "version": 23},
        "qk_matmul_output_mode",
    ),
    (
        "RotaryEmbedding",
        (f32(1, 1, 2, 4), f32(3, 2), f32(3, 2), i64(0, -4).reshape(1, 2)),
        {"version": 23},
        "index -4",
    ),
    (
        "RotaryEmbedding",
        (f32(1, 1, 2, 4), f32(1, 2, 3), f32(1, 2, 3)),
        {"rotary_embedding_dim": 6, "version": 23},
        "no larger",
    ),
    ("RNN", (f32(2, 1, 3), f32(1, 4, 2), f32(1, 4, 4)), {}, "W has shape"),
    (
        "RNN",
        (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4)),
        {"hidden_size": 5},
        "hidden_size is 5",
    ),
    ("RNN", (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4), f32(1, 4)), {}, "B has shape"),
    (
        "RNN",
        (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4), None, scalar([3], "i")),
        {},
        "sequence_lens",
    ),
    (
        "RNN",
        (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4), None, None, f32(1, 1, 1)),
        {},
        "initial state",
    ),
    ("RNN", (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4)), {"clip": NAN}, "clip is nan"),
    (
        "RNN",
        (f32(2, 1, 3), f32(1, 4, 3), f32(1, 4, 4)),
        {"activations": ("Tanh",) * 3},
        "activations are",
    ),
    (
        "LSTM",
        (f32(2, 1, 3), f32(1, 16, 3), f32(1, 16, 4), *[None] * 4, f32(1, 4)),
        {},
        "P has shape",
    ),
]

TREE: dict[str, Any] = {
    "n_targets": 1,
    "nodes_falsenodeids": (2, 0, 0),
    "nodes_featureids": (0, 0, 0),
    "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
    "nodes_nodeids": (0, 1, 2),
    "nodes_treeids": (0, 0, 0),
    "nodes_truenodeids": (1, 0, 0),
    "nodes_values": (0.5, 0.0, 0.0),
    "target_ids": (0, 0),
    "target_nodeids": (1, 2),
    "target_treeids": (0, 0),
    "target_weights": (1.0, 2.0),
}
ROW = f32(1, 2)
LEARNED: list[Example] = [
    *(
        (
            "TreeEnsembleRegressor",
            (ROW,),
            {**TREE, **wrong, "domain": ML, "version": 3},
            message,
        )
        for wrong, message in (
            ({"nodes_truenodeids": (0, 0, 0)}, "back to one of themselves"),
            ({"nodes_truenodeids": (7, 0, 0)}, "has no node 7"),
            ({"nodes_truenodeids": (-1, 0, 0)}, "has no node -1"),
            ({"nodes_featureids": (-1, 0, 0)}, "looks at feature -1"),
            ({"nodes_featureids": (2, 0, 0)}, "look at feature 2"),
            ({"target_ids": (-1, 0)}, "votes for target -1"),
            ({"target_weights": (NAN, 0.0)}, "weight NaN"),
            ({"n_targets": HUGE}, "more elements"),
            ({"base_values": (1.0, 2.0)}, "base_values has 2"),
        )
    ),
    (
        "SVMRegressor",
        (ROW,),
        {"coefficients": (1.0, 1.0), "rho": (), "domain": ML, "version": 1},
        "rho has 0 numbers",
    ),
    (
        "SVMRegressor",
        (ROW,),
        {
            "coefficients": (1.0,),
            "rho": (0.0,),
            "n_supports": -1,
            "domain": ML,
            "version": 1,
        },
        "n_supports is",
    ),
    ("ArrayFeatureExtractor", (ROW, i64(-9)), {"domain": ML, "version": 1}, "index -9"),
    (
        "FeatureVectorizer",
        (ROW,),
        {"inputdimensions": (-1,), "domain": ML, "version": 1},
        "inputdimensions is",
    ),
    (
        "CastMap",
        ({0: 1.0},),
        {"map_form": "SPARSE", "max_map": HUGE, "domain": ML, "version": 1},
        "more elements",
    ),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [*WINDOWS, *CONVOLUTIONS, *AXES, *SIZES, *READING, *PARAMETERS, *LEARNED],
)
def test_refused(
    op_type: str, inputs: Inputs, attributes: dict[str, Any], message: str
) -> None:
    with np.errstate(all="ignore"), pytest.raises((ValueError, IndexError)) as found:
        run(op_type, *inputs, **attributes)
    assert re.search(message, str(found.value))


@pytest.mark.parametrize("number", [2, -1, MOST])
@pytest.mark.parametrize(
    ("op_type", "flag"),
    [("ReduceSum", "keepdims"), ("CumSum", "reverse"), ("Attention", "is_causal")],
)
def test_a_flag_is_0_or_1(op_type: str, flag: str, number: int) -> None:
    """ONNX Runtime takes other numbers for 0, ONNX's reference for 1."""
    kernel = find_kernel("", op_type, 24)
    assert kernel is not None
    bound = kernel.bind(np, {flag: number}, output_count=1)
    with pytest.raises(ValueError, match=f"{flag} {number}; expected 0 or 1"):
        bound(*[f32(1, 1, 1, 1)] * 3)
