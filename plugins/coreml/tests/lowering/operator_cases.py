"""Cases of ONNX's operators: a node, what it is given, and the version of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

SPECIAL = np.float32(
    [0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e30, 88.9, -88.9]
)


class OperatorCase(NamedTuple):
    """One node.

    Attributes:
        inputs: arrays; ``None`` for one that is left out.
        constant: positions of those that are initializers.
        outputs: how many are asked for.
    """

    op_type: str
    inputs: Sequence[Array | None]
    constant: Sequence[int] = ()
    attributes: Mapping[str, Any] = {}
    opset: int = 23
    outputs: int = 1

    def model(self) -> onnx.ModelProto:
        """The node as a model, whose outputs are as ONNX infers them."""
        names = [f"x{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = onnx.helper.make_node(
            self.op_type, names, outputs, **dict(self.attributes)
        )
        there = [(i, x) for i, x in enumerate(self.inputs) if x is not None]
        given = [
            onnx.helper.make_tensor_value_info(
                names[i], onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for i, x in there
            if i not in self.constant
        ]
        made = [onnx.ValueInfoProto(name=name) for name in outputs]
        weights = [
            onnx.numpy_helper.from_array(x, names[i])
            for i, x in there
            if i in self.constant
        ]
        graph = onnx.helper.make_graph([node], "case", given, made, weights)
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid("", self.opset)],
            ir_version=10,
        )
        return onnx.shape_inference.infer_shapes(model, strict_mode=False)

    def feeds(self) -> dict[str, Array]:
        return {
            f"x{i}": x
            for i, x in enumerate(self.inputs)
            if x is not None and i not in self.constant
        }


_random = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return _random.uniform(-2, 2, shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


_X = floats(2, 3, 4, 6)
_IMAGE = floats(1, 4, 7, 9)

CASES: dict[str, OperatorCase] = {
    # elementwise
    **{
        op_type: OperatorCase(op_type, [SPECIAL])
        for op_type in (
            "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "IsNaN",
            "HardSwish", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Round",
            "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh",
            "ThresholdedRelu", "Shrink", "IsInf",
        )
    },
    "Mish": OperatorCase("Mish", [floats(9)]),
    "Mish-float16": OperatorCase(
        "Mish", [np.linspace(-12, 12, 99, dtype=np.float16)]
    ),
    "Gelu": OperatorCase("Gelu", [floats(9)]),
    "Gelu-tanh": OperatorCase("Gelu", [floats(9)], attributes={"approximate": "tanh"}),
    "Celu": OperatorCase("Celu", [floats(9)], attributes={"alpha": 1.5}),
    "PRelu": OperatorCase("PRelu", [_X, floats(3, 1, 1)], (1,)),
    **{
        op_type: OperatorCase(op_type, [SPECIAL[:, None], SPECIAL])
        for op_type in (
            "Add", "Sub", "Mul", "Div", "Equal", "Greater", "LessOrEqual", "Max", "Min",
        )
    },
    "Add-int64": OperatorCase("Add", [ints(1, 2**40, -5), ints(2**62, 7, -(2**41))]),
    "Pow": OperatorCase("Pow", [np.abs(_X), np.float32(1.5)], (1,)),
    "Pow-square": OperatorCase("Pow", [_X, np.array(2, np.int64)], (1,)),
    "Where": OperatorCase("Where", [_X > 0, _X, np.float32(np.nan)], (2,)),
    "And": OperatorCase("And", [_X > 0, _X[:1] < 1]),
    "Not": OperatorCase("Not", [_X > 0]),
    "Sum": OperatorCase("Sum", [_X, floats(6), floats(4, 1)]),
    "Mean": OperatorCase("Mean", [_X, floats(6)]),
    "Clip": OperatorCase("Clip", [SPECIAL, np.float32(-1), np.float32(2)], (1, 2)),
    "Clip-6": OperatorCase("Clip", [_X], attributes={"min": -1.0}, opset=6),
    **{
        f"Cast-{np.dtype(a).name}-{b.name}": OperatorCase(
            "Cast",
            [np.array([0, 1, 3, 100]).astype(a)],
            attributes={"to": onnx.helper.np_dtype_to_tensor_dtype(b)},
        )
        for a in (np.float32, np.float16, np.int32, np.int64, np.bool_)
        for b in map(np.dtype, (np.float32, np.int32, np.int64, np.bool_))
    },
    # where elements are
    "Reshape": OperatorCase("Reshape", [_X, ints(0, -1, 6)], (1,)),
    "Flatten": OperatorCase("Flatten", [_X], attributes={"axis": -2}),
    "Squeeze": OperatorCase("Squeeze", [_X[:, :1]]),
    "Unsqueeze": OperatorCase("Unsqueeze", [_X, ints(-1, 0)], (1,)),
    "Transpose": OperatorCase("Transpose", [_X], attributes={"perm": (3, 1, 0, 2)}),
    "Expand": OperatorCase("Expand", [_X[:, :1], ints(2, 1, 3, 1, 6)], (1,)),
    "Tile": OperatorCase("Tile", [_X, ints(1, 2, 1, 3)], (1,)),
    "Concat": OperatorCase("Concat", [_X, _X[:, :1], _X], attributes={"axis": -3}),
    "Split": OperatorCase(
        "Split", [_X, ints(1, 2, 3)], (1,), {"axis": 3}, outputs=3, opset=13
    ),
    "Slice": OperatorCase(
        "Slice", [_X, ints(-1, 5), ints(-9, 1), ints(2, 3), ints(-2, -1)], (1, 2, 3, 4)
    ),
    "Pad": OperatorCase(
        "Pad", [_X, ints(0, 1, -1, 2, 0, 0, 2, -3), np.float32(7)], (1, 2)
    ),
    "Pad-reflect": OperatorCase(
        "Pad", [_X, ints(2, 3, 3, 1), None, ints(2, 3)], (1, 3), {"mode": "reflect"}
    ),
    "DepthToSpace": OperatorCase(
        "DepthToSpace", [floats(2, 12, 2, 3)], attributes={"blocksize": 2}
    ),
    "DepthToSpace-CRD": OperatorCase(
        "DepthToSpace", [floats(2, 12, 2, 3)],
        attributes={"blocksize": 2, "mode": "CRD"},
    ),
    "SpaceToDepth": OperatorCase("SpaceToDepth", [_X], attributes={"blocksize": 2}),
    "Trilu": OperatorCase("Trilu", [_X, np.array(-1)], (1,), {"upper": 0}),
    # by indices
    "Gather": OperatorCase("Gather", [_X, ints(3, -1, 0)], attributes={"axis": 2}),
    "Gather-one": OperatorCase("Gather", [_X, np.array(-1)], (1,), {"axis": 1}),
    "GatherElements": OperatorCase(
        "GatherElements", [_X, np.array([[[[2, -3]]]])], attributes={"axis": 1}
    ),
    "GatherND": OperatorCase("GatherND", [_X, np.array([[1, -1], [0, 2]])]),
    "ScatterND": OperatorCase(
        "ScatterND", [_X, np.array([[1], [-2]]), floats(2, 3, 4, 6)], (1,)
    ),
    "OneHot": OperatorCase(
        "OneHot", [ints(0, 3, -1, 9), np.array(4), np.float32([2, 5])], (1, 2)
    ),
    # along axes
    **{
        f"{op_type}-{version}": OperatorCase(
            op_type,
            [_X] if version == 11 else [_X, ints(-1, 1)],
            (1,),
            {"keepdims": 0, **({"axes": (1, 3)} if version == 11 else {})},
            opset=version,
        )
        for op_type in (
            "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
            "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        )
        for version in (11, 18)
    },
    "ArgMax": OperatorCase("ArgMax", [_X], attributes={"axis": -2, "keepdims": 0}),
    "ArgMin": OperatorCase(
        "ArgMin", [np.float32([[2, 1, 1]])],
        attributes={"axis": 1, "select_last_index": 1},
    ),
    "TopK": OperatorCase("TopK", [_X, ints(3)], (1,), {"largest": 0}, outputs=2),
    "CumSum": OperatorCase(
        "CumSum", [_X, np.array(-1)], (1,), {"exclusive": 1, "reverse": 1}
    ),
    "Softmax": OperatorCase("Softmax", [_X], attributes={"axis": 1}),
    "Softmax-11": OperatorCase("Softmax", [_X], attributes={"axis": 1}, opset=11),
    "LogSoftmax": OperatorCase("LogSoftmax", [_X * 40]),
    "Hardmax": OperatorCase("Hardmax", [_X], attributes={"axis": 2}),
    # products
    "MatMul": OperatorCase("MatMul", [_X, floats(6, 5)], (1,)),
    "MatMul-vector": OperatorCase("MatMul", [_X, floats(6)]),
    "Gemm": OperatorCase(
        "Gemm", [floats(5, 3), floats(4, 5), floats(4)], (1, 2),
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "Einsum": OperatorCase(
        "Einsum", [_X, floats(3, 6, 5)], attributes={"equation": "bhqk,hkd->bqhd"}
    ),
    # windows
    "Conv": OperatorCase(
        "Conv", [_IMAGE, floats(6, 2, 3, 2), floats(6)], (1, 2),
        {"group": 2, "strides": (2, 1), "pads": (1, 0, 2, 1)},
    ),
    "Conv-1d": OperatorCase(
        "Conv", [floats(2, 3, 9), floats(4, 3, 3)], (1,), {"dilations": (2,)}
    ),
    "Conv-same": OperatorCase(
        "Conv", [_IMAGE, floats(4, 1, 4, 4)], (1,),
        {"group": 4, "auto_pad": "SAME_LOWER", "strides": (2, 2)},
    ),
    "ConvTranspose": OperatorCase(
        "ConvTranspose", [_IMAGE, floats(4, 3, 3, 2), floats(3)], (1, 2),
        {"strides": (2, 3), "pads": (1, 0, 0, 1), "output_padding": (1, 0)},
    ),
    "MaxPool": OperatorCase(
        "MaxPool", [_IMAGE],
        attributes={"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1,
                    "pads": (1, 1, 1, 1)},
    ),
    "AveragePool": OperatorCase(
        "AveragePool", [_IMAGE],
        attributes={"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
    ),
    "GlobalAveragePool": OperatorCase("GlobalAveragePool", [_IMAGE]),
    "GlobalMaxPool": OperatorCase("GlobalMaxPool", [_IMAGE]),
    # normalisations
    "BatchNormalization": OperatorCase(
        "BatchNormalization",
        [_X, floats(3), floats(3), floats(3), np.abs(floats(3))], (1, 2, 3, 4),
    ),
    "LayerNormalization": OperatorCase(
        "LayerNormalization", [_X, floats(4, 6), floats(4, 6)], (1, 2), {"axis": 2}
    ),
    "InstanceNormalization": OperatorCase(
        "InstanceNormalization", [_X, floats(3), floats(3)], (1, 2)
    ),
    "GroupNormalization": OperatorCase(
        "GroupNormalization", [_IMAGE, floats(4), floats(4)], (1, 2), {"num_groups": 2}
    ),
    "RMSNormalization": OperatorCase("RMSNormalization", [_X, floats(6)], (1,)),
    "LRN": OperatorCase("LRN", [_IMAGE], attributes={"size": 3}),
    "LpNormalization": OperatorCase("LpNormalization", [_X], attributes={"p": 1}),
    "MeanVarianceNormalization": OperatorCase("MeanVarianceNormalization", [_X]),
    # resampling
    **{
        f"Resize-{mode}-{how}": OperatorCase(
            "Resize", [_IMAGE, None, np.float32([1, 1, 2, 1.5])], (2,),
            {"mode": mode, "coordinate_transformation_mode": how},
        )
        for mode in ("nearest", "linear")
        for how in ("half_pixel", "asymmetric", "align_corners")
    },
    "Resize-linear-downsample": OperatorCase(
        "Resize", [_IMAGE, None, np.float32([1, 1, 0.6, 0.7])], (2,),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    **{
        f"GridSample-{mode}-{padding}-{aligned}": OperatorCase(
            "GridSample", [floats(2, 3, 5, 6), floats(2, 4, 3, 2)],
            attributes={
                "mode": mode, "padding_mode": padding, "align_corners": aligned
            },
        )
        for mode, padding, aligned in (
            ("linear", "zeros", 0), ("linear", "border", 1),
            ("linear", "reflection", 0),
            ("nearest", "zeros", 1), ("nearest", "reflection", 1),
        )
    },
    "GridSample-far": OperatorCase(
        "GridSample",
        [_IMAGE, np.float32([[[[np.inf, 0], [-1e30, 1], [0, 1e9], [0.3, -0.2]]]])],
    ),
    # attention
    "Attention": OperatorCase(
        "Attention", [floats(2, 4, 3, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 6)],
        attributes={"softcap": 2.0},
    ),
    "Attention-3d": OperatorCase(
        "Attention",
        [*floats(3, 2, 3, 16), np.tri(3) > 0],
        attributes={"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1},
    ),
}  # fmt: skip
