"""Cases of each primitive, with what NumPy or ``onnx.reference`` has for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxplug import ep
from onnxplug_coreml.lowering.primitives import ELEMENTWISE, PRIMITIVES
from onnxplug_coreml.lowering.program import Constant, Operation, Port, Program, Value

Array = np.ndarray[Any, Any]

F32, F16, I32, BOOL = (
    ep.DataType.FLOAT32, ep.DataType.FLOAT16, ep.DataType.INT32, ep.DataType.BOOL
)  # fmt: skip


class Case(NamedTuple):
    """A primitive with operands, of which some are constants.

    Attributes:
        constant: positions of the operands that are constants.
        expected: the results.
    """

    primitive: str
    operands: tuple[Array | None, ...]
    attributes: Mapping[str, Any]
    constant: tuple[int, ...]
    expected: Callable[[], Any]

    def program(self) -> Program:
        """A program of this alone."""
        values = [
            None
            if array is None
            else Value(
                f"operand_{at}",
                ep.DataType.from_numpy(array.dtype),
                array.shape,
            )
            for at, array in enumerate(self.operands)
        ]
        results = PRIMITIVES[self.primitive].results(values, self.attributes)
        made = tuple(
            Value(f"result_{at}", dtype, shape)
            for at, (dtype, shape) in enumerate(results)
        )
        return Program(
            inputs=[
                Port(value.name, value.dtype, value)
                for at, value in enumerate(values)
                if value is not None and at not in self.constant
            ],
            constants={
                value.name: Constant(value, self.operands[at])
                for at, value in enumerate(values)
                if value is not None and at in self.constant
            },
            operations=[
                Operation(
                    self.primitive,
                    tuple(value and value.name for value in values),
                    self.attributes,
                    made,
                    0,
                )
            ],
            outputs=[Port(value.name, value.dtype, value) for value in made],
        )

    def feeds(self) -> dict[str, Array]:
        """The operands that are inputs."""
        return {
            f"operand_{at}": array
            for at, array in enumerate(self.operands)
            if array is not None and at not in self.constant
        }


_random = np.random.default_rng(3)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return np.asarray(_random.uniform(low, high, shape), np.float32)


def whole(*shape: int, low: int = -5, high: int = 6) -> Array:
    return np.asarray(_random.integers(low, high, shape), np.int32)


def bools(*shape: int) -> Array:
    return np.asarray(_random.integers(0, 2, shape), np.bool_)


_DOMAINS: dict[str, tuple[float, float]] = {
    "acos": (-1, 1), "acosh": (1, 5), "asin": (-1, 1), "atanh": (-0.9, 0.9),
    "log": (0.01, 4), "rsqrt": (0.01, 4), "sqrt": (0, 4), "tan": (-1.2, 1.2),
}  # fmt: skip

_erf = np.vectorize(math.erf, otypes=[np.float64])

_NUMPY: dict[str, Callable[..., Any]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "erf": _erf, "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0), "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)),
    "mul": np.multiply, "modulo": np.mod, "sub": np.subtract, "pow": np.power,
}  # fmt: skip


def _of_numpy(name: str) -> Callable[..., Any]:
    function = _NUMPY.get(name)
    return function if function is not None else getattr(np, name)


def _wide(*arrays: Array | None) -> list[Any]:
    return [
        None if x is None else x.astype(np.float64) if x.dtype.kind == "f" else x
        for x in arrays
    ]


def case(
    primitive: str, *operands: Array | None, expected: Callable[..., Any],
    constant: tuple[int, ...] = (), **attributes: Any,
) -> Case:  # fmt: skip
    """A case whose results *expected* computes of the operands in float64."""
    return Case(
        primitive, operands, attributes, constant, lambda: expected(*_wide(*operands))
    )


def _elementwise() -> dict[str, Case]:
    found = {}
    for name, (types, count, _) in ELEMENTWISE.items():
        function = _of_numpy(name)
        if ep.DataType.FLOAT32 in types:
            low, high = _DOMAINS.get(name, (-3, 3))
            first = floats(2, 3, 4, low=low, high=high)
            if name == "round":
                first = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4) / 4
            if name == "pow":
                first = np.abs(first) + np.float32(0.1)
            others = [floats(3, 1, low=0.4, high=2)] * (count - 1)
            found[f"{name}_floats"] = case(name, first, *others, expected=function)
        if ep.DataType.INT32 in types and name not in {"pow"}:
            others = [whole(4, low=1)] * (count - 1)
            found[f"{name}_integers"] = case(
                name, whole(3, 4), *others, expected=function
            )
        if ep.DataType.BOOL in types:
            others = [bools(4)] * (count - 1)
            found[f"{name}_bools"] = case(name, bools(3, 4), *others, expected=function)
    for name in (
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
    ):
        function = getattr(np, name)
        found[f"{name}_integers"] = case(
            name, whole(3, 4, low=0, high=3), whole(4, low=0, high=3), expected=function
        )
        found[f"{name}_floats"] = case(
            name, floats(3, 4), floats(1, 4), expected=function
        )
    for name in ("equal", "not_equal"):
        function = getattr(np, name)
        found[f"{name}_bools"] = case(name, bools(3, 4), bools(4), expected=function)
    return found


def _scattered(x: Any, indices: Any, updates: Any) -> Any:
    result = x.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _topped(largest: bool, k: int, axis: int) -> Callable[[Any], Any]:
    def of(x: Any) -> Any:
        order = np.argsort(-x if largest else x, axis, kind="stable")
        chosen = np.take(order, range(k), axis)
        return np.take_along_axis(x, chosen, axis), chosen

    return of


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _gelu(x: Any) -> Any:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def _gelu_tanh(x: Any) -> Any:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (1 + np.tanh(inner)) / 2


def _moved() -> dict[str, Case]:
    x, three = floats(2, 3, 4), whole(2, 3, 4)
    return {
        "gelu": case("gelu", x, expected=_gelu, approximate=False),
        "gelu_tanh": case("gelu", x, expected=_gelu_tanh, approximate=True),
        "cast_to_integers": case(
            "cast", 3 * x, expected=lambda x: x.astype(np.int32), dtype=I32
        ),
        "cast_to_floats": case("cast", three, expected=lambda x: x, dtype=F32),
        "cast_to_bools": case(
            "cast", three, expected=lambda x: x.astype(bool), dtype=BOOL
        ),
        "cast_of_small_floats_to_bools": case(
            "cast", x / 4, expected=lambda x: x.astype(bool), dtype=BOOL
        ),
        "cast_of_bools": case(
            "cast", bools(5), expected=lambda x: x.astype(np.float32), dtype=F32
        ),
        "select": case("select", bools(3, 1), x, floats(4), expected=np.where),
        "select_by_the_largest": case(
            "select", bools(2, 3, 4), floats(3, 1), floats(4), expected=np.where
        ),
        "select_bools": case(
            "select", bools(3, 1), bools(3, 4), bools(1, 4), expected=np.where
        ),
        "identity": case("identity", bools(3), expected=lambda x: x),
        "reshape": case(
            "reshape", x, expected=lambda x: x.reshape(4, 6), shape=(4, 6)
        ),
        "reshape_to_scalar": case(
            "reshape", floats(1, 1), expected=lambda x: x.reshape(()), shape=()
        ),
        "reshape_of_scalar": case(
            "reshape", floats(), expected=lambda x: x.reshape(1, 1), shape=(1, 1)
        ),
        "transpose": case(
            "transpose", x, expected=lambda x: x.transpose(2, 0, 1),
            permutation=(2, 0, 1),
        ),
        "broadcast": case(
            "broadcast_to", floats(3, 1),
            expected=lambda x: np.broadcast_to(x, (2, 3, 4)), shape=(2, 3, 4),
        ),
        "broadcast_scalar": case(
            "broadcast_to", whole(),
            expected=lambda x: np.broadcast_to(x, (2, 3)), shape=(2, 3),
        ),
        "tile": case(
            "tile", bools(2, 3), expected=lambda x: np.tile(x, (2, 3)), repeats=(2, 3)
        ),
        "concat": case(
            "concat", x, floats(2, 1, 4), floats(2, 2, 4), axis=1,
            expected=lambda *parts: np.concatenate(parts, 1), constant=(1,),
        ),
        "split": case(
            "split", x, axis=2, sizes=(1, 3),
            expected=lambda x: tuple(np.split(x, [1], 2)),
        ),
        "slice": case(
            "slice", x, starts=(0, 1, 0), stops=(2, None, 4), steps=(1, 1, 3),
            expected=lambda x: x[:, 1:, ::3],
        ),
        "reverse": case(
            "reverse", three, axes=(0, 2), expected=lambda x: np.flip(x, (0, 2))
        ),
        "pad": case(
            "pad", x, mode="constant", pads=((1, 0), (0, 2), (3, 1)), value=-1.5,
            expected=lambda x: np.pad(
                x, ((1, 0), (0, 2), (3, 1)), constant_values=-1.5
            ),
        ),
        "pad_integers": case(
            "pad", three, mode="constant", pads=((1, 0), (0, 2), (3, 1)), value=7,
            expected=lambda x: np.pad(x, ((1, 0), (0, 2), (3, 1)), constant_values=7),
        ),
        "pad_by_reflection": case(
            "pad", x, mode="reflect", pads=((0, 0), (2, 1), (0, 3)), value=0.0,
            expected=lambda x: np.pad(x, ((0, 0), (2, 1), (0, 3)), mode="reflect"),
        ),
        "pad_by_edges": case(
            "pad", x, mode="edge", pads=((0, 0), (2, 1), (0, 3)), value=0.0,
            expected=lambda x: np.pad(x, ((0, 0), (2, 1), (0, 3)), mode="edge"),
        ),
        "gather": case(
            "gather", x, whole(2, 2, low=0, high=3), axis=1,
            expected=lambda x, at: np.take(x, at, 1),
        ),
        "gather_one": case(
            "gather", x, np.array(2, np.int32), axis=1, constant=(1,),
            expected=lambda x, at: np.take(x, at, 1),
        ),
        "gather_bools": case(
            "gather", bools(4, 3), whole(2, low=0, high=4), axis=0,
            expected=lambda x, at: np.take(x, at, 0),
        ),
        "gather_of_weights": case(
            "gather", floats(7, 5), whole(2, 3, low=0, high=7), axis=0, constant=(0,),
            expected=lambda x, at: np.take(x, at, 0),
        ),
        "gather_along_axis": case(
            "gather_along_axis", x, whole(2, 5, 4, low=0, high=3), axis=1,
            expected=lambda x, at: np.take_along_axis(x, at, 1),
        ),
        "gather_nd": case(
            "gather_nd", x, whole(5, 2, low=0, high=2),
            expected=lambda x, at: x[tuple(np.moveaxis(at, -1, 0))],
        ),
        "scatter_nd": case(
            "scatter_nd", x, np.array([[1, 2], [0, 1]], np.int32), floats(2, 4),
            expected=_scattered,
        ),
        "scatter_nd_bools": case(
            "scatter_nd", bools(4), np.array([[1], [3]], np.int32), bools(2),
            expected=_scattered,
        ),
        "argmax": case(
            "argmax", x, axis=1, keep=True,
            expected=lambda x: np.argmax(x, 1, keepdims=True),
        ),
        "argmin": case(
            "argmin", x, axis=2, keep=False, expected=lambda x: np.argmin(x, 2)
        ),
        "topk": case(
            "topk", x, k=2, axis=1, largest=True, expected=_topped(True, 2, 1)
        ),
        "topk_smallest": case(
            "topk", whole(9), k=4, axis=0, largest=False, expected=_topped(False, 4, 0)
        ),
        "cumsum": case(
            "cumsum", x, axis=1, exclusive=False, backward=False,
            expected=lambda x: np.cumsum(x, 1),
        ),
        "cumsum_exclusive_backward": case(
            "cumsum", x, axis=2, exclusive=True, backward=True,
            expected=lambda x: np.flip(np.cumsum(np.flip(x, 2), 2), 2) - x,
        ),
        "softmax": case("softmax", x, axis=1, expected=_softmax),
        "matmul": case(
            "matmul", floats(5, 1, 3, 4), floats(2, 4, 6), expected=np.matmul
        ),
        "matmul_by_weights": case(
            "matmul", x, floats(4, 6), constant=(1,), expected=np.matmul
        ),
        **{
            f"{name}_{'kept' if keep else 'dropped'}": case(
                name, x, axes=(0, 2), keep=keep,
                expected=lambda x, name=name, keep=keep: getattr(np, name[7:])(
                    x, axis=(0, 2), keepdims=keep
                ),
            )
            for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min",
                         "reduce_prod")
            for keep in (False, True)
        },
        "reduce_sum_integers": case(
            "reduce_sum", three, axes=(1,), keep=False, expected=lambda x: x.sum(1)
        ),
    }  # fmt: skip


def by_onnx(operator: str, **attributes: Any) -> Callable[..., Any]:
    """What ``onnx.reference`` makes of the operands by one operator."""

    def compute(*operands: Any) -> Any:
        names = [
            f"i{at}" if each is not None else "" for at, each in enumerate(operands)
        ]
        node = onnx.helper.make_node(operator, names, ["y"], **attributes)
        graph = onnx.helper.make_graph(
            [node], "graph",
            [
                onnx.helper.make_tensor_value_info(name, 11, None)
                for name in names if name
            ],
            [onnx.helper.make_tensor_value_info("y", 11, None)],
        )  # fmt: skip
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 21)]
        )
        feeds = {name: each for name, each in zip(names, operands, strict=True) if name}
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])

    return compute


def _window(
    primitive: str, operator: str, *operands: Array | None,
    pads: tuple[tuple[int, int], ...], onnx_only: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Case:  # fmt: skip
    """A case of which ONNX's operator has the same attributes, beside *onnx_only*."""
    renamed = {
        "kernel": "kernel_shape", "groups": "group", "count_pads": "",
        "output_pads": "output_padding",
    }  # fmt: skip
    theirs = {
        renamed.get(name, name): value
        for name, value in attributes.items()
        if renamed.get(name, name)
    }
    theirs["pads"] = [low for low, _ in pads] + [high for _, high in pads]
    return case(
        primitive, *operands, pads=pads, constant=tuple(range(1, len(operands))),
        expected=by_onnx(operator, **theirs, **(onnx_only or {})), **attributes,
    )  # fmt: skip


def _windows() -> dict[str, Case]:
    line, picture, space = floats(2, 4, 9), floats(2, 4, 7, 8), floats(1, 2, 4, 5, 6)
    plain = {"strides": (1, 1), "dilations": (1, 1)}
    return {
        "conv_1d": _window(
            "conv", "Conv", line, floats(6, 4, 3), floats(6), strides=(2,),
            dilations=(1,), pads=((1, 0),), groups=1,
        ),
        "conv_2d": _window(
            "conv", "Conv", picture, floats(6, 2, 3, 2), None, strides=(1, 2),
            dilations=(2, 1), pads=((1, 2), (0, 1)), groups=2,
        ),
        "conv_depthwise": _window(
            "conv", "Conv", picture, floats(4, 1, 3, 3), floats(4), **plain,
            pads=((1, 1), (1, 1)), groups=4,
        ),
        "conv_3d": _window(
            "conv", "Conv", space, floats(3, 2, 2, 3, 1), floats(3), strides=(1, 2, 1),
            dilations=(1, 1, 1), pads=((0, 0), (1, 1), (0, 0)), groups=1,
        ),
        "conv_transpose": _window(
            "conv_transpose", "ConvTranspose", picture, floats(4, 3, 3, 2), floats(3),
            strides=(2, 1), dilations=(1, 1), pads=((1, 0), (0, 1)),
            output_pads=(0, 0), groups=1,
        ),
        "max_pool": _window(
            "max_pool", "MaxPool", picture, kernel=(3, 2), strides=(2, 1),
            dilations=(1, 1), pads=((1, 1), (0, 1)),
        ),
        "max_pool_1d": _window(
            "max_pool", "MaxPool", line, kernel=(3,), strides=(2,), dilations=(1,),
            pads=((1, 0),),
        ),
        "avg_pool": _window(
            "avg_pool", "AveragePool", picture, kernel=(3, 2), strides=(2, 1),
            pads=((1, 1), (0, 1)), count_pads=False,
        ),
        "avg_pool_with_pads": _window(
            "avg_pool", "AveragePool", picture, kernel=(3, 2), strides=(2, 1),
            pads=((1, 1), (0, 1)), count_pads=True, onnx_only={"count_include_pad": 1},
        ),
    }  # fmt: skip


def _transposed(
    output_pads: tuple[int, int],
    bias: bool,
    pads: tuple[tuple[int, int], ...] = ((1, 0), (0, 1)),
) -> Case:
    """A transposed convolution with output pads, longer than pads in one dimension."""
    # without groups, of which the reference makes pictures of their own
    x, weight = floats(2, 4, 5, 6), floats(4, 3, 3, 3)
    return _window(
        "conv_transpose", "ConvTranspose", x, weight, floats(3) if bias else None,
        strides=(3, 2), dilations=(1, 1), pads=pads, groups=1,
        output_pads=output_pads,
    )  # fmt: skip


def _resized(
    shape: tuple[int, int], mode: str, coordinates: str, rounding: str = "floor"
) -> Case:
    x = floats(2, 3, 5, 6)
    scales = tuple(to / size for to, size in zip(shape, (5, 6), strict=True))

    def expected(x: Any) -> Any:
        return by_onnx(
            "Resize", mode=mode, nearest_mode=rounding,
            coordinate_transformation_mode=coordinates,
        )(x, None, None, np.array((2, 3, *shape), np.int64))  # fmt: skip

    return case(
        "resize", x, shape=shape, mode=mode, coordinates=coordinates,
        rounding=rounding, scales=scales, expected=expected,
    )  # fmt: skip


CASES: dict[str, Case] = {
    **_elementwise(),
    **_moved(),
    **_windows(),
    "conv_transpose_output_pads": _transposed((2, 1), True),
    "conv_transpose_short_output_pads": _transposed((0, 1), True),
    "conv_transpose_output_pads_without_bias": _transposed((1, 0), False),
    "conv_transpose_even_pads": _transposed((2, 1), True, ((1, 1), (0, 0))),
    "resize_nearest": _resized((10, 12), "nearest", "asymmetric"),
    "resize_nearest_half_pixel": _resized(
        (10, 18), "nearest", "half_pixel", "round_prefer_floor"
    ),
    "resize_nearest_fraction": _resized(
        (7, 4), "nearest", "half_pixel", "round_prefer_ceil"
    ),
    "resize_nearest_aligned": _resized((7, 4), "nearest", "align_corners", "ceil"),
    "resize_linear": _resized((10, 3), "linear", "half_pixel"),
    "resize_linear_asymmetric": _resized((10, 9), "linear", "asymmetric"),
    "resize_linear_aligned": _resized((7, 11), "linear", "align_corners"),
    "resize_linear_to_a_line": _resized((1, 7), "linear", "align_corners"),
}
