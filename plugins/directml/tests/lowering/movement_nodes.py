"""Nodes that move, choose, resample and combine elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from lowering.single_node import Array, SingleNode

_random = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return _random.uniform(-2, 2, shape).astype(np.float32)


def halves(*shape: int) -> Array:
    return floats(*shape).astype(np.float16)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def indices(size: int, *shape: int) -> Array:
    """Indices along an axis, of both signs."""
    return _random.integers(-size, size, shape)


def numbered(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


_X: Final = floats(2, 3, 4, 6)
_IMAGE: Final = floats(1, 2, 5, 7)
_NINE: Final = floats(2, 1, 2, 1, 2, 1, 2, 1, 2)


def _network(
    op_type: str,
    gates: int,
    *,
    directions: int = 1,
    lengths: Array | None = None,
    states: int = 0,
    layout: int = 0,
    peepholes: Array | None = None,
    constant: tuple[int, ...] = (1, 2, 3),
    **attributes: Any,
) -> SingleNode:
    times, batch, width, hidden = 4, 3, 5, 2
    x = floats(times, batch, width)
    start = floats(directions, batch, hidden)
    if layout:
        x, start = x.transpose(1, 0, 2), start.transpose(1, 0, 2)
    inputs: list[Array | None] = [
        np.ascontiguousarray(x),
        floats(directions, gates * hidden, width),
        floats(directions, gates * hidden, hidden),
        floats(directions, 2 * gates * hidden),
        lengths,
        *(np.ascontiguousarray(start) for _ in range(states)),
    ]
    if peepholes is not None:
        inputs += [None] * (7 - len(inputs)) + [peepholes]
        constant = (*constant, 7)
    if layout:
        attributes["layout"] = 1
    attributes["hidden_size"] = hidden
    outputs = 3 if op_type == "LSTM" else 2
    return SingleNode(op_type, inputs, constant, attributes, outputs=outputs)


def _resized(
    mode: str,
    *,
    x: Array = _IMAGE,
    scales: tuple[float, ...] = (),
    sizes: tuple[int, ...] = (),
    opset: int = 19,
    roi: tuple[float, ...] = (),
    **attributes: Any,
) -> SingleNode:
    attributes["mode"] = mode
    return SingleNode(
        "Resize",
        [
            x,
            np.float32(roi) if roi else None,
            np.float32(scales) if scales else None,
            ints(*sizes) if sizes else None,
        ],
        (1, 2, 3),
        attributes,
        opset=opset,
    )


VIEWS: Final = {
    "Reshape": SingleNode("Reshape", [_X, ints(0, -1, 3)], (1,)),
    "Flatten": SingleNode("Flatten", [_X], (), {"axis": -2}),
    "Squeeze": SingleNode("Squeeze", [_X[:1], ints(0)], (1,)),
    "Unsqueeze": SingleNode("Unsqueeze", [_X, ints(0, -1)], (1,)),
    "Transpose": SingleNode("Transpose", [_X], (), {"perm": [3, 1, 0, 2]}),
    "Transpose-bool": SingleNode("Transpose", [_X[0, 0] > 0]),
    "Transpose-int64": SingleNode("Transpose", [ints(*range(6)).reshape(2, 3)]),
    "Expand": SingleNode("Expand", [floats(3, 1), ints(2, 1, 5)], (1,)),
    "Expand-scalar": SingleNode("Expand", [np.float32(2.5), ints(2, 3)], (1,)),
}

PIECES: Final = {
    "Slice": SingleNode("Slice", [_X, ints(1, -3), ints(9, -1), ints(1, 3)], (1, 2, 3)),
    "Slice-backward": SingleNode(
        "Slice",
        [_X, ints(-1, 4), ints(-99, 0), ints(2, 3), ints(-1, -2)],
        (1, 2, 3, 4),
    ),
    "Slice-far": SingleNode(
        "Slice", [_X, ints(0), ints(2**62), ints(3), ints(2**40)], (1, 2, 3, 4)
    ),
    "Slice-1": SingleNode(
        "Slice", [_X], (), {"starts": [1], "ends": [-1], "axes": [2]}, opset=9
    ),
    "Split": SingleNode(
        "Split", [_X, ints(1, 3, 2)], (1,), {"axis": -1}, outputs=3
    ),
    "Split-equal": SingleNode("Split", [_X], (), {"axis": 3}, opset=13, outputs=2),
    "Split-num_outputs": SingleNode(
        "Split", [_X], (), {"axis": 1, "num_outputs": 2}, outputs=2
    ),
    "Split-2": SingleNode(
        "Split", [_X], (), {"axis": 1, "split": [2, 1]}, opset=11, outputs=2
    ),
    "Split-one": SingleNode("Split", [_X], (), {"num_outputs": 1}),
    "Concat": SingleNode(
        "Concat", [_X, _X[:, :1], floats(2, 2, 4, 6)], (2,), {"axis": 1}
    ),
    "Concat-same": SingleNode("Concat", [_X, _X], (), {"axis": -1}),
    "Concat-uint8": SingleNode(
        "Concat", [np.uint8([[1]]), np.uint8([[255, 3]])], (), {"axis": 1}
    ),
}

BORDERS: Final = {
    "Pad": SingleNode("Pad", [_X, ints(0, 1, 0, 2, 1, 0, 3, 0)], (1,)),
    "Pad-value": SingleNode(
        "Pad", [_X, ints(1, 2), np.float32(-7.5), ints(-1)], (1, 2, 3)
    ),
    "Pad-int64": SingleNode("Pad", [ints(1, 2), ints(1, 1), np.int64(2**40)], (1, 2)),
    "Pad-bool": SingleNode("Pad", [_X[0, 0, 0] > 0, ints(1, 2)], (1,)),
    "Pad-crop": SingleNode("Pad", [_X, ints(0, 0, -1, 1, 0, 0, 0, -2)], (1,)),
    "Pad-edge": SingleNode(
        "Pad", [_X, ints(0, 0, 2, 1, 0, 0, 1, 9)], (1,), {"mode": "edge"}
    ),
    "Pad-reflect": SingleNode(
        "Pad", [_X, ints(0, 0, 2, 9, 0, 0, 1, 7)], (1,), {"mode": "reflect"}
    ),
    "Pad-reflect-crop": SingleNode(
        "Pad", [_X, ints(0, 0, -1, 2, 0, 0, 2, 3)], (1,), {"mode": "reflect"}
    ),
    "Pad-wrap": SingleNode(
        "Pad", [_X, ints(0, 1, 0, 7, 0, 5, 0, 1)], (1,), {"mode": "wrap"}
    ),
    "Pad-2": SingleNode(
        "Pad", [_X], (), {"pads": [0] * 3 + [1] * 5, "value": 2.0}, opset=9
    ),
    "CenterCropPad": SingleNode("CenterCropPad", [_X, ints(3, 1, 7, 3)], (1,)),
    "CenterCropPad-axes": SingleNode(
        "CenterCropPad", [_X, ints(7, 2)], (1,), {"axes": [2, -1]}
    ),
    "Tile": SingleNode("Tile", [_X, ints(1, 2, 1, 3)], (1,)),
    "DepthToSpace": SingleNode("DepthToSpace", [floats(2, 8, 2, 3)], (), {"blocksize": 2}),
    "DepthToSpace-CRD": SingleNode(
        "DepthToSpace", [floats(2, 8, 2, 3)], (), {"blocksize": 2, "mode": "CRD"}
    ),
    "SpaceToDepth": SingleNode("SpaceToDepth", [floats(2, 3, 4, 6)], (), {"blocksize": 2}),
}

INDICES: Final = {
    "Gather": SingleNode("Gather", [_X, indices(4, 2, 3)], (), {"axis": 2}),
    "Gather-constant": SingleNode("Gather", [_X, indices(3, 5)], (1,), {"axis": -3}),
    "Gather-scalar": SingleNode("Gather", [_X, np.int32(-2)], (), {"axis": 3}),
    "Gather-nine": SingleNode("Gather", [floats(3, 2), indices(3, 1, 1, 2, 1, 1, 2)]),
    "Gather-embedding": SingleNode("Gather", [halves(9, 4), indices(9, 2, 5)], (0,)),
    "GatherElements": SingleNode(
        "GatherElements", [_X, indices(4, 2, 3, 9, 6)], (), {"axis": 2}
    ),
    "GatherElements-part": SingleNode(
        "GatherElements", [_X, indices(6, 1, 2, 3, 2)], (), {"axis": -1}
    ),
    "GatherND": SingleNode("GatherND", [_X, indices(2, 5, 2)]),
    "GatherND-all": SingleNode("GatherND", [_X, indices(2, 3, 1, 4)]),
    "GatherND-batch": SingleNode(
        "GatherND", [_X, indices(3, 2, 3, 2, 1)], (), {"batch_dims": 2}
    ),
    "GatherND-constant": SingleNode("GatherND", [_X, indices(2, 4, 3)], (1,)),
    "ScatterElements": SingleNode(
        "ScatterElements",
        [_X, np.tile(ints(3, -2).reshape(1, 1, 2, 1), (2, 3, 1, 6)), floats(2, 3, 2, 6)],
        (),
        {"axis": 2},
    ),
    "ScatterElements-part": SingleNode(
        "ScatterElements",
        [_X, np.tile(ints(5, 0).reshape(1, 1, 1, 2), (1, 2, 3, 1)), floats(1, 2, 3, 2)],
        (),
        {"axis": 3},
    ),
    **{
        f"ScatterElements-{reduction}": SingleNode(
            "ScatterElements",
            [floats(4, 5), ints(2, -1, 0).reshape(1, 3), floats(1, 3)],
            (1,),
            {"axis": 1, "reduction": reduction},
        )
        for reduction in ("add", "mul", "max", "min")
    },
    "ScatterND": SingleNode(
        "ScatterND", [_X, ints(0, 1, -1, 2).reshape(2, 2), floats(2, 4, 6)]
    ),
    "ScatterND-all": SingleNode(
        "ScatterND", [floats(3, 4), ints(0, 1, -1, 2).reshape(2, 1, 2), floats(2, 1)]
    ),
    "ScatterND-add": SingleNode(
        "ScatterND",
        [floats(4, 5), ints(-2, 0).reshape(2, 1), floats(2, 5)],
        (1,),
        {"reduction": "add"},
    ),
    "OneHot": SingleNode(
        "OneHot", [indices(4, 2, 3), np.int64(4), floats(2)], (1,), {"axis": 1}
    ),
    "OneHot-float": SingleNode(
        "OneHot", [np.float32([[0, 2], [9, 1]]), ints(3), ints(5, 7)], (1, 2)
    ),
    "TopK": SingleNode("TopK", [_X, ints(2)], (1,), {"axis": 2}, outputs=2),
    "TopK-all": SingleNode("TopK", [_X, ints(6)], (1,), outputs=2),
    "TopK-smallest": SingleNode(
        "TopK", [np.float32([3, 1, 2, 1, 5]), ints(3)], (1,), {"largest": 0}, outputs=2
    ),
    "TopK-int64-all": SingleNode(
        "TopK", [ints(3, -(2**63), 2), ints(3)], (1,), outputs=2
    ),
    "TopK-indices": SingleNode("TopK", [_X, ints(2)], (1,), outputs=("", "y1")),
    "ReverseSequence": SingleNode(
        "ReverseSequence", [floats(4, 3, 2), ints(1, 4, 3)], (),
    ),
    "ReverseSequence-batch-first": SingleNode(
        "ReverseSequence", [floats(3, 4), ints(1, 4, 3)], (1,),
        {"batch_axis": 0, "time_axis": 1},
    ),
    "Trilu": SingleNode("Trilu", [_X]),
    "Trilu-lower": SingleNode("Trilu", [_X, np.int64(-1)], (1,), {"upper": 0}),
    "Trilu-far": SingleNode("Trilu", [_X, np.int64(2**62)], (1,)),
    "EyeLike": SingleNode("EyeLike", [floats(4, 6)], (), {"k": -2, "dtype": 6}),
    "MaxUnpool": SingleNode(
        "MaxUnpool", [floats(1, 2, 2, 2), ints(0, 3, 10, 13, 16, 21, 27, 31).reshape(1, 2, 2, 2)],
        (), {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
}  # fmt: skip

PICTURES: Final = {
    **{
        f"Resize-nearest-{mode}-{rounding}": _resized(
            "nearest", scales=(1, 1, scale, 0.6),
            coordinate_transformation_mode=mode, nearest_mode=rounding,
        )
        for mode, rounding, scale in (
            ("half_pixel", "round_prefer_floor", 2.0),
            ("half_pixel", "floor", 3.0),
            ("asymmetric", "ceil", 1.7),
            ("align_corners", "round_prefer_ceil", 2.5),
            ("pytorch_half_pixel", "floor", 0.2),
            ("half_pixel_symmetric", "ceil", 1.3),
        )
    },
    "Resize-nearest-twice": _resized(
        "nearest", scales=(1, 1, 2, 2), coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Resize-nearest-uint8": _resized(
        "nearest", x=np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4), sizes=(1, 1, 5, 6),
    ),
    **{
        f"Resize-linear-{mode}": _resized(
            "linear", scales=(1, 1, 1.7, 0.6), coordinate_transformation_mode=mode,
        )
        for mode in (
            "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
            "half_pixel_symmetric",
        )
    },
    "Resize-linear-sizes": _resized("linear", sizes=(1, 2, 9, 3)),
    "Resize-linear-one": _resized("linear", sizes=(1, 2, 1, 1)),
    "Resize-linear-of-one": _resized("linear", x=floats(1, 2, 1, 3), sizes=(1, 2, 4, 5)),
    "Resize-linear-channels": _resized("linear", sizes=(1, 3, 5, 4)),
    "Resize-linear-axes": _resized(
        "linear", sizes=(9, 4), axes=[2, 3], keep_aspect_ratio_policy="not_larger",
    ),
    "Resize-linear-5d": _resized(
        "linear", x=floats(1, 2, 3, 4, 5), sizes=(1, 2, 5, 3, 8),
    ),
    "Resize-linear-half": _resized("linear", x=halves(1, 2, 5, 7), sizes=(1, 2, 8, 4)),
    "Resize-linear-uint8": _resized(
        "linear", x=_random.integers(0, 255, (1, 1, 5, 6)).astype(np.uint8),
        sizes=(1, 1, 8, 4),
    ),
    "Resize-linear-antialias": _resized("linear", sizes=(1, 2, 2, 3), antialias=1),
    "Resize-linear-exclude_outside": _resized(
        "linear", sizes=(1, 2, 9, 3), exclude_outside=1,
    ),
    "Resize-linear-region": _resized(
        "linear", sizes=(1, 2, 4, 6), roi=(0, 0, 0.3, -0.2, 1, 1, 0.7, 1.1),
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0,
    ),
    "Resize-cubic": _resized("cubic", sizes=(1, 2, 9, 3)),
    "Resize-cubic-antialias": _resized(
        "cubic", sizes=(1, 2, 3, 5), antialias=1, cubic_coeff_a=-0.5,
    ),
    "Resize-cubic-int8": _resized(
        "cubic", x=_random.integers(-128, 127, (1, 1, 5, 6)).astype(np.int8),
        sizes=(1, 1, 8, 4),
    ),
    "Resize-10": SingleNode(
        "Resize", [_IMAGE, np.float32([1, 1, 2, 0.5])], (1,), {"mode": "linear"}, opset=10
    ),
    "Upsample-9": SingleNode("Upsample", [_IMAGE, np.float32([1, 1, 2, 3])], (1,), opset=9),
    "Upsample-7": SingleNode(
        "Upsample", [_IMAGE], (), {"scales": [1.0, 1.0, 2.0, 1.5], "mode": "linear"}, opset=7
    ),
    **{
        f"GridSample-{mode}-{padding}-{aligned}": SingleNode(
            "GridSample", [floats(2, 3, 4, 5), floats(2, 3, 2, 2)], (),
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
        )
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    },
    "GridSample-volume": SingleNode(
        "GridSample", [floats(1, 2, 3, 4, 2), floats(1, 2, 2, 3, 3)],
    ),
    "AffineGrid": SingleNode("AffineGrid", [floats(2, 2, 3), ints(2, 1, 3, 4)], (1,)),
    "AffineGrid-3d": SingleNode(
        "AffineGrid", [floats(1, 3, 4), ints(1, 1, 2, 3, 4)], (1,), {"align_corners": 1}
    ),
    **{
        f"RoiAlign-{mode}": SingleNode(
            "RoiAlign",
            [
                floats(2, 3, 9, 8),
                np.float32([[1, 2, 9, 12], [0, 0, 15, 15], [6, 6, 6.5, 6.25]]),
                ints(1, 0, 1),
            ],
            (),
            {
                "coordinate_transformation_mode": mode, "output_height": 3,
                "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5,
            },
        )
        for mode in ("half_pixel", "output_half_pixel")
    },
    "MaxRoiPool": SingleNode(
        "MaxRoiPool",
        [floats(2, 3, 9, 8), np.float32([[1, 2, 2, 9, 12], [0, 0, 0, 13, 9]])], (),
        {"pooled_shape": [3, 2], "spatial_scale": 0.5},
    ),
    "Col2Im": SingleNode(
        "Col2Im", [floats(2, 2 * 6, 6), ints(3, 5), ints(2, 3)], (1, 2)
    ),
    "Col2Im-strides": SingleNode(
        "Col2Im", [floats(1, 2 * 4, 9), ints(5, 6), ints(2, 2)], (1, 2),
        {"strides": [2, 2], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
    ),
    "Col2Im-1d": SingleNode("Col2Im", [floats(1, 3, 5), ints(7), ints(3)], (1, 2)),
    "Col2Im-3d": SingleNode(
        "Col2Im", [floats(1, 8, 4), ints(2, 3, 3), ints(2, 2, 2)], (1, 2)
    ),
}  # fmt: skip

NETWORKS: Final = {
    "RNN": _network("RNN", 1, states=1),
    "RNN-both": _network("RNN", 1, directions=2, direction="bidirectional",
                         activations=["Relu", "Tanh"]),
    "GRU": _network("GRU", 3, states=1),
    "GRU-reverse": _network("GRU", 3, direction="reverse", linear_before_reset=1),
    "GRU-lengths": _network("GRU", 3, lengths=np.int32([4, 1, 2])),
    "GRU-batch-first": _network("GRU", 3, states=1, layout=1),
    "LSTM": _network("LSTM", 4, states=2),
    "LSTM-computed-weights": _network("LSTM", 4, constant=()),
    "LSTM-both": _network(
        "LSTM", 4, directions=2, states=2, direction="bidirectional",
        lengths=np.int32([4, 0, 3]),
    ),
    "LSTM-whole-lengths": _network(
        "LSTM", 4, lengths=np.int32([4, 4, 4]), constant=(1, 2, 3, 4)
    ),
    "LSTM-batch-first": _network("LSTM", 4, states=2, layout=1),
    "LSTM-clip": _network("LSTM", 4, clip=0.7, input_forget=1),
    "LSTM-activations": _network(
        "LSTM", 4, activations=["HardSigmoid", "ScaledTanh", "Softsign"],
        activation_alpha=[0.3, 1.1], activation_beta=[0.4, 0.9],
    ),
    "LSTM-peepholes": _network(
        "LSTM", 4, peepholes=np.float32([[0.5, -1, 0, 0, 0.25, 2]])
    ),
}  # fmt: skip


def _heads(*shape: int) -> Array:
    return floats(*shape) / 2


ATTENTION: Final = {
    "Attention": SingleNode(
        "Attention", [_heads(2, 3, 8), _heads(2, 5, 8), _heads(2, 5, 12)], (),
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "Attention-causal": SingleNode(
        "Attention", [_heads(2, 4, 8), _heads(2, 4, 8), _heads(2, 4, 8)], (),
        {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1, "scale": 0.3},
    ),
    "Attention-past": SingleNode(
        "Attention",
        [
            _heads(2, 2, 8), _heads(2, 2, 8), _heads(2, 2, 8), None,
            _heads(2, 2, 3, 4), _heads(2, 2, 3, 4),
        ],
        (), {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}, outputs=3,
    ),
    "Attention-half": SingleNode(
        "Attention", [halves(1, 3, 8), halves(1, 5, 8), halves(1, 5, 8)], (),
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "Attention-4d": SingleNode(
        "Attention", [_heads(2, 2, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 6)],
    ),
    "Attention-groups": SingleNode(
        "Attention", [_heads(2, 6, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4)],
        outputs=3,
    ),
    "Attention-mask": SingleNode(
        "Attention",
        [
            _heads(1, 2, 3, 4), _heads(1, 2, 3, 4), _heads(1, 2, 3, 4),
            np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]], np.bool_),
        ],
    ),
    "Attention-addend": SingleNode(
        "Attention",
        [
            _heads(1, 2, 3, 4), _heads(1, 2, 3, 4), _heads(1, 2, 3, 4),
            np.float32([[0, -np.inf, 1], [-np.inf] * 3, [0.5, 0, -2]]),
        ],
        (), {"softcap": 1.5, "is_causal": 1},
    ),
    "Attention-scores": SingleNode(
        "Attention", [_heads(1, 2, 3, 4), _heads(1, 2, 3, 4), _heads(1, 2, 3, 4)], (),
        {"qk_matmul_output_mode": 3}, outputs=("y0", "", "", "y3"),
    ),
    **{
        f"RotaryEmbedding-{name}": SingleNode(
            "RotaryEmbedding", [x, *caches], (), attributes
        )
        for name, x, caches, attributes in (
            ("4d", floats(2, 3, 4, 8), [floats(9, 4), floats(9, 4), indices(9, 2, 4)], {}),
            (
                "3d", floats(2, 4, 24), [floats(9, 4), floats(9, 4), indices(9, 2, 4)],
                {"num_heads": 3},
            ),
            (
                "interleaved", floats(2, 3, 4, 8), [floats(2, 4, 4), floats(2, 4, 4)],
                {"interleaved": 1},
            ),
            (
                "part", floats(2, 3, 4, 8), [floats(2, 4, 2), floats(2, 4, 2)],
                {"rotary_embedding_dim": 4},
            ),
        )
    },
}  # fmt: skip

MICROSOFT: Final = "com.microsoft"


def _multi_head(*inputs: Array | None, **attributes: Any) -> SingleNode:
    shapes = attributes.pop("shapes")
    return SingleNode(
        "MultiHeadAttention", inputs, (), {"num_heads": 2, **attributes},
        outputs=len(shapes), domain=MICROSOFT, shapes=shapes,
    )  # fmt: skip


def _projected(
    *inputs: Array | None, shapes: Sequence[Sequence[int]], **attributes: Any
) -> SingleNode:
    return SingleNode(
        "Attention", inputs, (1, 2), {"num_heads": 2, **attributes},
        outputs=len(shapes), domain=MICROSOFT, shapes=shapes,
    )  # fmt: skip


def _quantised(bits: int, *, zeros: bool, bias: bool = False, dtype: Any = np.float32) -> SingleNode:
    rows, inner, block = 3, 32, 16
    per = 8 // bits
    return SingleNode(
        "MatMulNBits",
        [
            floats(2, 4, inner).astype(dtype),
            _random.integers(0, 256, (rows, inner // block, block // per)).astype(np.uint8),
            floats(rows * inner // block).astype(dtype),
            _random.integers(0, 256, rows * -(-inner // block // per)).astype(np.uint8)
            if zeros
            else None,
            None,
            floats(rows).astype(dtype) if bias else None,
        ],
        (1, 2, 3, 5),
        {"K": inner, "N": rows, "bits": bits, "block_size": block},
        domain=MICROSOFT,
    )  # fmt: skip


CONTRIBUTED: Final = {
    "MultiHeadAttention": _multi_head(
        _heads(2, 3, 8), _heads(2, 5, 8), _heads(2, 5, 12), floats(28),
        shapes=[(2, 3, 12)],
    ),
    "MultiHeadAttention-padding": _multi_head(
        _heads(2, 3, 8), _heads(2, 5, 8), _heads(2, 5, 8), None, np.int32([2, 5]),
        mask_filter_value=-1e4, scale=0.4, shapes=[(2, 3, 8)],
    ),
    "MultiHeadAttention-mask": _multi_head(
        _heads(2, 3, 8), _heads(2, 5, 8), _heads(2, 5, 8), None,
        np.int32([[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]]), floats(1, 2, 3, 5),
        shapes=[(2, 3, 8)],
    ),
    "MultiHeadAttention-packed": _multi_head(
        _heads(2, 3, 2, 3, 4), unidirectional=1, shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-packed-keys": _multi_head(
        _heads(2, 3, 8), _heads(2, 5, 2, 2, 4), shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-encoder": _multi_head(
        _heads(2, 3, 8), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4), shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-past": _multi_head(
        _heads(2, 2, 8), _heads(2, 2, 8), _heads(2, 2, 8), None, None, None,
        _heads(2, 2, 3, 4), _heads(2, 2, 3, 4), unidirectional=1,
        shapes=[(2, 2, 8), (2, 2, 5, 4), (2, 2, 5, 4)],
    ),
    "Attention": _projected(
        _heads(2, 3, 6), floats(6, 24), floats(24), np.int32([3, 2]),
        shapes=[(2, 3, 8)],
    ),
    "Attention-ends-and-starts": _projected(
        _heads(2, 3, 6), floats(6, 24), floats(24), np.int32([3, 2, 1, 0]),
        shapes=[(2, 3, 8)],
    ),
    "Attention-sizes": _projected(
        _heads(2, 3, 6), floats(6, 20), floats(20),
        np.int32([[1, 1, 0], [0, 1, 1]]), qkv_hidden_sizes=[8, 8, 4],
        shapes=[(2, 3, 4)],
    ),
    "Attention-present": _projected(
        _heads(2, 3, 6), floats(6, 24), floats(24), None, _heads(2, 2, 2, 2, 4),
        unidirectional=1, shapes=[(2, 3, 8), (2, 2, 2, 5, 4)],
    ),
    "MatMulNBits": _quantised(4, zeros=True),
    "MatMulNBits-without-zeros": _quantised(4, zeros=False, bias=True),
    "MatMulNBits-8": _quantised(8, zeros=True, dtype=np.float16),
    "MatMulNBits-2": _quantised(2, zeros=False),
}  # fmt: skip

NODES: Final = {
    **VIEWS, **PIECES, **BORDERS, **INDICES, **PICTURES, **NETWORKS, **ATTENTION,
    **{f"{MICROSOFT}.{name}": node for name, node in CONTRIBUTED.items()},
}  # fmt: skip
