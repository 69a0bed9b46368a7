"""The kinds of nodes that random graphs are made of; those that move elements, find
them by indices or are many in one are in the modules beside this one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import helper

from .random_convolutions import convolution
from .random_graphs import (
    BF16,
    BOOL,
    F32,
    F64,
    I8,
    I32,
    I64,
    MAX_MAGNITUDE,
    U8,
    Maker,
    RandomGraph,
    Value,
    broadcasts,
    inexact,
)
from .random_images import (
    batch_norm,
    grid_sample,
    local_norm,
    own_norm,
    resize,
    roi_align,
)
from .random_indices import (
    cumsum,
    gather_elements,
    gather_nd,
    scatter_elements,
    scatter_nd,
)
from .random_moves import (
    concat,
    depth_to_space,
    expand,
    flatten,
    gather,
    pad,
    reshape,
    reshape_by_shape,
    slice,
    split,
    squeeze,
    tile,
    transpose,
    trilu,
    unsqueeze,
)
from .random_patterns import (
    activation,
    attention,
    attention_operator,
    heads,
    norm,
    softmax,
)
from .random_pools import global_pool, pool
from .random_selections import arg_extreme, top

# element-wise


def _smooth(g: RandomGraph) -> None:
    """Functions of bounded slope: (operator, slope, bound of the result)."""
    x = g.pick(lambda v: v.is_float)
    if x is None:
        return
    operator, slope, bound = g.choose.choice(
        [("Tanh", 1, 1), ("Sigmoid", 0.25, 1), ("Erf", 1.2, 1)]
        if x.dtype == BF16
        else [
            ("Tanh", 1, 1),
            ("Sigmoid", 0.25, 1),
            ("Erf", 1.2, 1),
            ("Gelu", 1.2, x.magnitude),
            ("Softplus", 1, x.magnitude + 1),
            ("Softsign", 1, 1),
            ("HardSigmoid", 0.2, 1),
            ("Elu", 1, x.magnitude),
            ("Sin", 1, 1),
            ("Cos", 1, 1),
            ("Atan", 1, 1.6),
            ("HardSwish", 1.5, x.magnitude),
            ("Mish", 1.5, x.magnitude),
            ("Exp", math.exp(min(x.magnitude, 4)), math.exp(min(x.magnitude, 4))),
        ]
    )
    if operator == "Exp" and x.magnitude > 4:
        operator, slope, bound = "Tanh", 1, 1
    error = inexact(slope * x.error, x, bound, 16)
    g.add(operator, [x], x.shape, x.dtype, bound, error)


def _exact_unary(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.is_float)
    if x is None:
        return
    operator = g.choose.choice(["Neg", "Abs", "Relu", "LeakyRelu", "Clip", "Identity"])
    attributes: dict[str, Any] = {}
    inputs: list[Value | str | None] = [x]
    error = x.error
    if operator == "LeakyRelu":
        attributes["alpha"] = 0.25
        error += 2 * x.eps * x.magnitude if x.dtype.itemsize == 2 else 0
    if operator == "Clip":
        low, high = np.array(-1, x.dtype), np.array(1.5, x.dtype)
        kept = g.choose.choice([(low, high), (None, high), (low, None)])
        inputs += [None if c is None else g.literal(c) for c in kept]
    g.add(operator, inputs, x.shape, x.dtype, x.magnitude, error, **attributes)


def _jump(g: RandomGraph) -> None:
    """Functions that are not continuous."""
    x = g.pick(lambda v: v.is_float and v.error == 0 and v.dtype != BF16)
    if x is None:
        return
    operator = g.choose.choice(["Floor", "Ceil", "Round", "Sign", "IsNaN"])
    dtype = BOOL if operator == "IsNaN" else x.dtype
    g.add(operator, [x], x.shape, dtype, x.magnitude + 1)


def _arithmetic(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype != BOOL)
    if x is None:
        return
    y = g.partner(x, can_grow=True)
    operator = g.choose.choice(["Add", "Sub", "Mul", "Max", "Min", "Add", "Mul"])
    shape = np.broadcast_shapes(x.shape, y.shape)
    if g.choose.random() < 0.3:
        x, y = y, x
    a, b = x.magnitude, y.magnitude
    if operator == "Mul":
        bound, error = a * b, x.error * b + y.error * a
    elif operator in ("Max", "Min"):
        bound, error = max(a, b), max(x.error, y.error)
    else:
        bound, error = a + b, x.error + y.error
    if x.is_float and bound > MAX_MAGNITUDE:
        return
    if error and operator not in ("Max", "Min"):
        error = inexact(error, x, bound)
    g.add(operator, [x, y], shape, x.dtype, bound, error)


def _divide(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.is_float)
    if x is None:
        return
    shape = [n if g.choose.random() < 0.5 else 1 for n in x.shape]
    divisor = g.literal(
        g.numbers.choice([-2.0, -1.5, 0.75, 2.0], shape).astype(x.dtype)
    )
    bound = x.magnitude * 1.4
    error = inexact(x.error * 1.4, x, bound) if x.error else 0
    g.add("Div", [x, divisor], x.shape, x.dtype, bound, error)


def _compare(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.error == 0 and v.dtype != BOOL)
    if x is None:
        return
    y = g.partner(x)
    if y.error:
        return
    names = ["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"]
    shape = np.broadcast_shapes(x.shape, y.shape)
    g.add(g.choose.choice(names), [x, y], shape, BOOL, 1)


def _logic(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype == BOOL)
    if x is None:
        return
    if g.choose.random() < 0.3:
        g.add("Not", [x], x.shape, BOOL, 1)
        return
    y = g.partner(x)
    g.add(g.choose.choice(["And", "Or", "Xor"]), [x, y], x.shape, BOOL, 1)


def _where(g: RandomGraph) -> None:
    x = g.pick()
    if x is None:
        return
    y = g.partner(x)
    condition = g.pick(lambda v: v.dtype == BOOL and broadcasts(v.shape, x.shape))
    condition = condition or g.partner(x._replace(dtype=BOOL))
    error = max(x.error, y.error)
    bound = max(x.magnitude, y.magnitude)
    g.add("Where", [condition, x, y], x.shape, x.dtype, bound, error)


def _cast(g: RandomGraph) -> None:
    x = g.pick()
    if x is None:
        return
    narrow = g.choose.choice([F32, F32, g.other])
    if narrow == x.dtype:
        return
    if x.error and (narrow.kind in "iub"):
        return
    if narrow.kind == "u":
        return  # of a negative number it is undefined
    if x.magnitude > 100 and narrow.itemsize == 1:
        return
    result = Value("", narrow, ())
    error = x.error
    if error and result.is_float:
        error = inexact(error, result, x.magnitude)
    to = helper.np_dtype_to_tensor_dtype(narrow)
    g.add("Cast", [x], x.shape, narrow, x.magnitude, error, to=to)


# products


def _matmul(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype in (F32, F64) and bool(v.shape))
    if x is None:
        return
    inner = x.shape[-1]
    lead = x.shape[:-2]
    other = g.pick(
        lambda v: v.dtype == x.dtype and len(v.shape) > 1 and v.shape[-1] == inner
    )
    if g.choose.random() < 0.3 and other is not None:
        perm = [
            *range(len(other.shape) - 2),
            len(other.shape) - 1,
            len(other.shape) - 2,
        ]
        shape = tuple(other.shape[axis] for axis in perm)
        try:
            np.broadcast_shapes(lead, shape[:-2])
        except ValueError:
            return
        y = g.moved("Transpose", other, shape, perm=perm)
    elif g.choose.random() < 0.1:
        y = g.constant((inner,), x.dtype)
    else:
        batch = [n if g.choose.random() < 0.7 else 1 for n in lead]
        batch = batch[g.choose.choice([0, len(batch)]) :]
        make = g.constant if g.choose.random() < 0.5 else g.input
        y = make((*batch, inner, g.choose.choice(g.sizes)), x.dtype)
    shape = np.matmul(
        np.broadcast_to(0.0, x.shape), np.broadcast_to(0.0, y.shape)
    ).shape
    bound = max(inner, 1) * x.magnitude * y.magnitude
    if math.prod(shape) > g.max_size or bound > 20 * MAX_MAGNITUDE:
        return
    error = inner * (x.error * y.magnitude + y.error * x.magnitude)
    error = inexact(error, x, bound, 4 + inner)
    product = g.add("MatMul", [x, y], shape, x.dtype, bound, error)
    if product.magnitude > MAX_MAGNITUDE or g.choose.random() < 0.5:
        scale = g.literal(np.array(1 / bound, x.dtype))
        g.add("Mul", [product, scale], shape, x.dtype, 1, error / bound + 4 * x.eps)


def _gemm(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype in (F32, F64) and len(v.shape) == 2)
    if x is None:
        return
    trans_a, trans_b = g.choose.randint(0, 1), g.choose.randint(0, 1)
    rows, inner = x.shape[::-1] if trans_a else x.shape
    columns = g.choose.choice(g.sizes)
    if rows * columns > g.max_size or max(inner, 1) * x.magnitude * 2 > MAX_MAGNITUDE:
        return
    make = g.constant if g.choose.random() < 0.5 else g.input
    y = make((columns, inner) if trans_b else (inner, columns), x.dtype)
    inputs: list[Value | str | None] = [x, y]
    if g.choose.random() < 0.7:
        shapes = [(columns,), (rows, 1), (1, columns), (rows, columns), (), (1,)]
        make = g.constant if g.choose.random() < 0.5 else g.input
        inputs.append(make(g.choose.choice(shapes), x.dtype))
    alpha, beta = g.choose.choice([1.0, 0.5]), g.choose.choice([1.0, 0.25, 0.0])
    bound = max(inner, 1) * x.magnitude * 2 + 2
    error = inexact(inner * x.error * 2, x, bound, 4 + inner)
    g.add(
        "Gemm",
        inputs,
        (rows, columns),
        x.dtype,
        bound,
        error,
        alpha=alpha,
        beta=beta,
        transA=trans_a,
        transB=trans_b,
    )


# reductions

_WHOLE = (I64, I32, U8, I8)


def _reduce(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype in (F32, F64, *_WHOLE) and 0 not in v.shape)
    if x is None:
        return
    axes = [axis for axis in range(len(x.shape)) if g.choose.random() < 0.5]
    keep = g.choose.randint(0, 1)
    reduced = axes or list(range(len(x.shape)))
    count = max(1, math.prod(x.shape[axis] for axis in reduced))
    shape = [
        1 if axis in reduced else n
        for axis, n in enumerate(x.shape)
        if keep or axis not in reduced
    ]
    sums = inexact(count * x.error, x, count * x.magnitude, 4 + count)
    rules = {
        "ReduceMax": (x.magnitude, x.error),
        "ReduceMin": (x.magnitude, x.error),
        "ReduceSum": (count * x.magnitude, sums),
        "ReduceMean": (x.magnitude, sums / count),
        "ReduceL1": (count * x.magnitude, sums),
        "ReduceL2": (
            math.sqrt(count) * x.magnitude,
            2 * sums + math.sqrt(sums * x.magnitude * 2),
        ),
        "ReduceSumSquare": (count * x.magnitude**2, 3 * sums * x.magnitude),
        "ReduceLogSumExp": (x.magnitude + 8, inexact(x.error, x, x.magnitude + 8, 16)),
    }
    if x.error == 0 and x.magnitude <= 2 and count <= 8:
        rules["ReduceProd"] = (2.0**count, inexact(0, x, 2.0**count, 8))
    if not x.is_float:
        sizes = x.dtype.itemsize < 4 or ("ReduceSum", "ReduceMean", "ReduceL1")
        kinds = ("ReduceMax", "ReduceMin", *(() if sizes is True else sizes))
        rules = {kind: (rules[kind][0], 0.0) for kind in kinds}
    operator = g.choose.choice(list(rules))
    bound, error = rules[operator]
    if bound > MAX_MAGNITUDE or (operator == "ReduceLogSumExp" and x.magnitude > 60):
        return
    signed = [a if g.choose.random() < 0.5 else a - len(x.shape) for a in axes]
    inputs: list[Value | str | None] = [x]
    if axes or g.choose.random() < 0.5:
        inputs.append(g.integers(signed) if axes else None)
    g.add(operator, inputs, shape, x.dtype, bound, error, keepdims=keep)


def _on_arrays(g: RandomGraph) -> None:
    """What is not compiled, between what is."""
    x = g.pick(
        lambda v: v.dtype == F32 and bool(v.shape) and v.shape[-1] > 1 and not v.error
    )
    if x is None:
        return
    g.add("Hardmax", [x], x.shape)


def _to_a_shape(g: RandomGraph) -> None:
    """A value of which nothing but the shape is read."""
    x = g.pick(lambda v: v.is_float and v.dtype != BF16)
    if x is None:
        return
    y = g.partner(x)
    read, name = g.node("Neg", [x], 1)[0], ""
    if g.choose.random() < 0.5:
        (read,) = g.node("Add", [read, y], 1)
    if g.choose.random() < 0.5 and len(x.shape) > 1:
        perm = [*range(1, len(x.shape)), 0]
        (read,) = g.node("Transpose", [read], 1, perm=perm)
        x = x._replace(shape=tuple(x.shape[axis] for axis in perm))
    (name,) = g.node("Shape", [read], 1)
    y = g.pick(lambda v: v.size == x.size) or g.partner(x)
    if y.size == x.size and x.size:  # 0 among the sizes would be another one
        g.moved("Reshape", y, x.shape, [name])
    elif broadcasts(y.shape, x.shape):
        g.moved("Expand", y, x.shape, [name])


MAKERS: list[Maker] = [
    *[_smooth] * 3,
    *[_exact_unary] * 2,
    *[_arithmetic] * 6,
    *[_matmul] * 4,
    *[convolution] * 3,
    *[pool] * 2,
    global_pool,
    *[transpose] * 3,
    *[reshape] * 3,
    *[slice] * 2,
    *[split] * 2,
    *[concat] * 2,
    *[gather] * 2,
    *[_reduce] * 2,
    _jump,
    _divide,
    _compare,
    _logic,
    _where,
    _cast,
    _gemm,
    softmax,
    norm,
    attention,
    attention,
    attention_operator,
    heads,
    *[activation] * 2,
    reshape_by_shape,
    squeeze,
    unsqueeze,
    flatten,
    expand,
    tile,
    depth_to_space,
    pad,
    trilu,
    cumsum,
    gather_elements,
    gather_nd,
    scatter_elements,
    scatter_nd,
    *[arg_extreme] * 2,
    *[top] * 2,
    *[resize] * 2,
    grid_sample,
    roi_align,
    batch_norm,
    own_norm,
    local_norm,
    _to_a_shape,
    _on_arrays,
]
"""All kinds of nodes, the likelier ones more often."""

VIEWS: list[Maker] = [
    *[transpose, reshape, slice, split, expand, squeeze, unsqueeze, gather] * 2,
    *[
        _arithmetic,
        _matmul,
        convolution,
        softmax,
        norm,
        _reduce,
        concat,
        attention,
        _where,
    ],
]
"""More views than anything else."""
