"""What exporters write as several nodes: activations, norms and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .random_graphs import BOOL, F32, F64, RandomGraph, Value, inexact


def softmax(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype in (F32, F64) and bool(v.shape) and v.magnitude < 60)
    if x is None:
        return
    axis = g.choose.randrange(-len(x.shape), len(x.shape))
    error = inexact(2 * x.error, x, 1, 64)
    if g.choose.random() < 0.2:
        bound = 2 * x.magnitude + 8
        error = inexact(2 * x.error, x, bound, 16)
        g.add("LogSoftmax", [x], x.shape, x.dtype, bound, error, axis=axis)
        return
    g.add("Softmax", [x], x.shape, x.dtype, 1, error, axis=axis)


def norm(g: RandomGraph) -> None:
    x = g.pick(lambda v: v.dtype == F32 and bool(v.shape) and 0 not in v.shape)
    if x is None:
        return
    epsilon = 0.25
    error = inexact(8 * x.error, x, 8 * x.magnitude**2, 16)
    bound = math.sqrt(x.shape[-1]) + 1
    width = x.shape[-1:]
    kind = g.choose.choice(["operator", "parts", "root mean square", "reciprocal"])
    if kind == "operator":
        operator = "LayerNormalization"
        if g.opset >= 23 and g.choose.random() < 0.5:
            operator = "RMSNormalization"
        axis = g.choose.choice([-1, -1, g.choose.randrange(len(x.shape))])
        rest = x.shape[axis:]
        inputs: list[Value | str | None] = [x, g.constant(rest, F32)]
        if operator == "LayerNormalization" and g.choose.random() < 0.6:
            inputs.append(g.constant(rest, F32))
        bound = 2 * (math.sqrt(math.prod(rest)) + 1)
        g.add(
            operator,
            inputs,
            x.shape,
            F32,
            bound,
            2 * error,
            axis=axis,
            epsilon=epsilon,
        )
        return
    mean_shape = (*x.shape[:-1], 1)
    last = g.choose.choice([[-1], [-1], [-1], [len(x.shape) - 1], [0]])
    if last == [0]:
        mean_shape = (1, *x.shape[1:])
    axes = g.integers(last)
    m, e = x.magnitude, inexact(x.error, x, x.magnitude)
    if kind == "parts":
        mean = g.add("ReduceMean", [x, axes], mean_shape, F32, m, e)
        x = g.add("Sub", [x, mean], x.shape, F32, 2 * m, 2 * e)
    if g.choose.random() < 0.5:
        square = g.add("Mul", [x, x], x.shape, F32, 4 * m * m, 8 * m * e)
    else:
        two = g.literal(np.float32(2))
        square = g.add("Pow", [x, two], x.shape, F32, 4 * m * m, 8 * m * e)
    variance = g.add(
        "ReduceMean", [square, axes], mean_shape, F32, 4 * m * m, 8 * m * e
    )
    small = g.literal(np.float32(epsilon))
    addend = g.add("Add", [variance, small], mean_shape, F32, 4 * m * m + 1, 9 * m * e)
    root = g.add("Sqrt", [addend], mean_shape, F32, 2 * m + 1, 9 * m * e)
    if kind == "reciprocal":
        inverse = g.add("Reciprocal", [root], mean_shape, F32, 2, 36 * m * e)
        result = g.add(
            "Mul", [x, inverse], x.shape, F32, bound, 2 * error + 80 * m * m * e
        )
    else:
        result = g.add(
            "Div", [x, root], x.shape, F32, bound, 2 * error + 80 * m * m * e
        )
    if g.choose.random() < 0.7:
        scale = g.constant(width, F32)
        inputs = [result, scale] if g.choose.random() < 0.5 else [scale, result]
        result = g.add("Mul", inputs, x.shape, F32, 2 * bound, 2 * result.error)
    if g.choose.random() < 0.7:
        bias = g.constant(width, F32)
        g.add("Add", [result, bias], x.shape, F32, 2 * bound + 2, result.error * 1.1)


def activation(g: RandomGraph) -> None:
    """GELU and SiLU in the styles of exporters."""
    x = g.pick(lambda v: v.dtype == F32 and v.magnitude < 8)
    if x is None:
        return
    m, e = x.magnitude, inexact(x.error, x, x.magnitude)

    def number(value: float) -> Value:
        return g.literal(np.full(g.choose.choice([(), (1,)]), value, np.float32))

    def of(
        operator: str, a: Value, b: Value | None, bound: float, error: float
    ) -> Value:
        inputs = [a] if b is None else [a, b]
        if operator in ("Add", "Mul") and g.choose.random() < 0.3:
            inputs.reverse()
        return g.add(operator, inputs, shape, F32, bound, error)

    # a scalar times one number of an array of one is an array of one
    shape = x.shape or (1,)
    x = x if x.shape else g.moved("Reshape", x, shape, [g.integers(shape)])
    form = g.choose.choice(["erf", "half first", "tanh", "quick", "silu", "operator"])
    if form == "operator":
        approximate = g.choose.choice(["none", "tanh"])
        error = inexact(1.2 * e, x, m, 16)
        g.add("Gelu", [x], shape, F32, m, error, approximate=approximate)
        return
    if form in ("quick", "silu"):
        inner = x
        if form == "quick":
            inner = of("Mul", x, number(1.702), 2 * m, 2 * e)
        gate = of("Sigmoid", inner, None, 1, inner.error + 1e-6)
        of("Mul", x, gate, m, e + m * gate.error)
        return
    if form == "tanh":
        if g.choose.random() < 0.5:
            square = of("Mul", x, x, m * m, 4 * m * e)
            cube = of("Mul", square, x, m**3, 8 * m * m * e)
        else:
            cube = of("Pow", x, number(3), m**3, 8 * m * m * e)
        small = of("Mul", cube, number(0.044715), m**3 / 20, m * m * e)
        total = of("Add", x, small, m + m**3 / 20, 2 * (1 + m * m) * e)
        inner = of(
            "Mul", total, number(0.7978846), total.magnitude, 2 * (1 + m * m) * e
        )
        curve = of("Tanh", inner, None, 1, inner.error + 1e-6)
    else:
        root = math.sqrt(2)
        if g.choose.random() < 0.5:
            inner = of("Div", x, number(root), m, e)
        else:
            inner = of("Mul", x, number(1 / root), m, e)
        curve = of("Erf", inner, None, 1, 1.2 * e + 1e-6)
    gate = of("Add", curve, number(1), 2, curve.error + 1e-6)
    error = 2 * e + m * gate.error + 1e-6 * m
    if form == "half first":
        half = of("Mul", x, number(0.5), m, e)
        of("Mul", half, gate, 2 * m, 2 * error)
        return
    product = of("Mul", x, gate, 2 * m, 2 * error)
    of("Mul", product, number(0.5), m, 2 * error)


def attention(g: RandomGraph) -> None:
    q = g.pick(lambda v: v.dtype == F32 and len(v.shape) in (3, 4) and v.magnitude < 6)
    if q is None or q.shape[-1] == 0:
        return
    rank = len(q.shape)
    keys = g.choose.choice([n for n in g.sizes if n])
    lead = tuple(n if g.choose.random() < 0.8 else 1 for n in q.shape[:-2])
    depth, width = q.shape[-1], g.choose.choice(g.sizes)
    k = g.input((*lead, keys, depth), F32)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    if g.choose.random() < 0.15:
        kt = g.input((*lead, depth, keys), F32)
    else:
        kt = g.moved("Transpose", k, (*lead, depth, keys), perm=perm)
    v = g.input((*lead, keys, width), F32)
    batch = np.broadcast_shapes(q.shape[:-2], lead)
    shape = (*batch, q.shape[-2], keys)
    if math.prod(shape) > g.max_size or math.prod(shape[:-1]) * width > g.max_size:
        return
    bound = depth * q.magnitude * 2
    error = inexact(depth * q.error * 2, q, bound, 4 + depth)
    scores = g.add("MatMul", [q, kt], shape, F32, bound, error)
    factor = 1 / math.sqrt(depth)
    form = g.choose.choice(["Mul", "Mul", "Div", "none"])
    if form != "none":
        number = np.float32(factor if form == "Mul" else 1 / factor)
        inputs = [scores, g.literal(number)]
        if form == "Mul" and g.choose.random() < 0.3:
            inputs.reverse()
        bound, error = bound * factor * 1.01, error * factor * 1.1 + 4 * q.eps * bound
        scores = g.add(form, inputs, shape, F32, bound, error)
    scores = _masked(g, scores)
    error = inexact(2 * scores.error, q, 1, 64)
    weights = _weights(g, scores, error)
    result = (*batch, q.shape[-2], width)
    g.add("MatMul", [weights, v], result, F32, 2, inexact(2 * keys * error, q, 2, 64))


def _weights(g: RandomGraph, scores: Value, error: float) -> Value:
    """Softmax, perhaps with 0 where it is undefined."""
    shape = scores.shape
    weights = g.add("Softmax", [scores], shape, F32, 1, error, axis=-1)
    if g.choose.random() < 0.8:
        return weights
    (undefined,) = g.node("IsNaN", [weights], 1)
    zero = g.literal(np.float32(0))
    return g.add("Where", [undefined, zero, weights], shape, F32, 1, error)


def _masked(g: RandomGraph, scores: Value) -> Value:
    """The scores with some hidden; their error is that of the others."""
    shape, bound, error = scores.shape, scores.magnitude, scores.error
    kind = g.choose.choice(["none", "none", "values", "added", "chosen", "chosen"])
    if kind == "none":
        return scores
    if kind == "values":
        mask = g.partner(scores)
        inputs = [scores, mask] if g.choose.random() < 0.6 else [mask, scores]
        bound = bound + mask.magnitude
        error = error + mask.error + 4 * scores.eps * bound
        return g.add("Add", inputs, shape, F32, bound, error)
    g.hides = True
    rows, keys = shape[-2], shape[-1]
    sizes = g.choose.choice([(rows, keys), (1, keys), shape])
    visible = g.numbers.random(sizes) < 0.6
    low = g.choose.choice([-math.inf, -1e9, float(np.finfo(np.float32).min)])
    make = g.given if g.choose.random() < 0.5 else g.literal
    if kind == "added":
        # were none visible, the roundings of sums with -1e9 would show
        visible[..., :1] = True
        mask = make(np.where(visible, 0, low).astype(np.float32))
        (name,) = g.node("Add", [scores, mask], 1)
        return scores._replace(name=name)
    fill = g.literal(np.float32(g.choose.choice([low, 0.5])))
    hides = g.choose.random() < 0.5
    mask = make(~visible if hides else visible)
    inputs = [mask, fill, scores] if hides else [mask, scores, fill]
    (name,) = g.node("Where", inputs, 1)
    return scores._replace(name=name)


def heads(g: RandomGraph) -> None:
    """Attention of projections that are split into heads, as networks have it, with
    keys and values of earlier calls, and fewer heads of keys than of queries."""
    x = g.pick(lambda v: v.dtype == F32 and len(v.shape) == 3 and v.magnitude < 3)
    if x is None or 0 in x.shape:
        return
    batch, length, width = x.shape
    count, depth = g.choose.choice([1, 2, 4]), g.choose.choice([1, 4, 8, 16])
    share = g.choose.choice([n for n in (1, 2, 4) if count % n == 0])
    past = g.choose.choice([0, 0, 3])
    keys = past + length
    if batch * count * max(keys, depth) * keys > 4 * g.max_size:
        return

    def split(n: int, order: list[int]) -> Value:
        array = g.array((width, n * depth), F32) / np.float32(width)
        weight = g.literal(array) if g.choose.random() < 0.7 else g.given(array)
        flat = (batch, length, n * depth)
        bound = 2 * x.magnitude
        error = inexact(2 * x.error, x, bound, 8)
        y = g.add("MatMul", [x, weight], flat, F32, bound, error)
        if g.choose.random() < 0.7:
            bias = g.constant((n * depth,), F32)
            y = g.add("Add", [y, bias], flat, F32, bound + 2, 1.5 * error)
        apart = (batch, length, n, depth)
        sizes = g.choose.choice([[0, 0, n, depth], [batch, -1, n, depth]])
        y = g.moved("Reshape", y, apart, [g.integers(sizes)])
        return g.moved("Transpose", y, [apart[a] for a in order], perm=order)

    def whole(y: Value, axis: int) -> Value:
        """With what earlier calls left, and one head for each of the queries."""
        if past:
            sizes = [*y.shape]
            sizes[axis] = past
            earlier = g.input(sizes, F32)
            sizes[axis] = keys
            bound = max(2, y.magnitude)
            y = g.add("Concat", [earlier, y], sizes, F32, bound, y.error, axis=axis)
        if share == 1:
            return y
        few = count // share
        y = g.moved("Unsqueeze", y, (batch, few, 1, *y.shape[2:]), [g.integers([2])])
        repeated = (batch, few, share, *y.shape[3:])
        y = g.moved("Expand", y, repeated, [g.integers(repeated)])
        merged = (batch, count, *y.shape[3:])
        return g.moved("Reshape", y, merged, [g.integers(merged)])

    q = split(count, [0, 2, 1, 3])
    k = whole(split(count // share, [0, 2, 3, 1]), 3)
    v = whole(split(count // share, [0, 2, 1, 3]), 2)
    factor = 1 / math.sqrt(depth)
    before = g.choose.random() < 0.4
    if before:
        root = g.literal(np.float32(math.sqrt(factor)))
        q = g.add("Mul", [q, root], q.shape, F32, q.magnitude, 1.5 * q.error)
        k = g.add("Mul", [k, root], k.shape, F32, k.magnitude, 1.5 * k.error)
    shape = (batch, count, length, keys)
    bound = depth * q.magnitude * k.magnitude
    error = depth * (q.error * k.magnitude + k.error * q.magnitude)
    error = inexact(error, x, bound, 4 + depth)
    scores = g.add("MatMul", [q, k], shape, F32, bound, error)
    if not before:
        scale = g.literal(np.float32(factor))
        scores = g.add("Mul", [scores, scale], shape, F32, bound, 1.5 * error)
    scores = _masked(g, scores)
    error = inexact(2 * scores.error, x, 1, 64)
    weights = _weights(g, scores, error)
    error = inexact(2 * keys * error * v.magnitude + v.error, x, v.magnitude, 64)
    y = g.add("MatMul", [weights, v], q.shape, F32, v.magnitude, error)
    y = g.moved("Transpose", y, (batch, length, count, depth), perm=[0, 2, 1, 3])
    flat = (batch, length, count * depth)
    g.moved("Reshape", y, flat, [g.integers(g.choose.choice([[0, 0, -1], [*flat]]))])


def attention_operator(g: RandomGraph) -> None:
    """The operator Attention."""
    if g.opset < 23:
        return
    q = g.pick(lambda v: v.dtype == F32 and len(v.shape) == 4 and v.magnitude < 6)
    if q is None or 0 in q.shape:
        return
    batch, count, queries, depth = q.shape
    few = g.choose.choice([n for n in range(1, count + 1) if count % n == 0])
    new, past = g.choose.choice([1, 3, 16]), g.choose.choice([0, 0, 5])
    width = g.choose.choice([depth, 8])
    keys = new + past
    if batch * count * queries * max(keys, width) > g.max_size:
        return
    k, v = (g.input((batch, few, new, n), F32) for n in (depth, width))
    inputs: list[Value | str | None] = [q, k, v]
    attributes: dict[str, Any] = {"is_causal": g.choose.randint(0, 1)}
    flat = width == depth and g.choose.random() < 0.5
    if flat:
        attributes |= {"q_num_heads": count, "kv_num_heads": few}
        for place, (value, n) in enumerate(((q, count), (k, few), (v, few))):
            length = value.shape[2]
            order = (batch, length, n, depth)
            turned = g.moved("Transpose", value, order, perm=[0, 2, 1, 3])
            sizes = [batch, length, n * depth]
            inputs[place] = g.moved("Reshape", turned, sizes, [g.integers(sizes)])
    if g.choose.random() < 0.4:
        attributes["scale"] = 0.25
    if g.choose.random() < 0.2:
        attributes["softcap"] = 3.0
    bound = 2 * depth * q.magnitude
    error = inexact(2 * depth * q.error, q, bound, 4 + depth)
    mask: Value | None = None
    if g.choose.random() < 0.5:
        shape = (batch, count, queries, keys)
        sizes = g.choose.choice([shape[2:], (1, 1, *shape[2:]), shape])
        mask = g.input(sizes, g.choose.choice([F32, BOOL]))
    if mask is not None or past:
        inputs.append(mask)
    if past:
        inputs += [g.input((batch, few, past, n), F32) for n in (depth, width)]
    error = inexact(2 * error, q, 1, 64)
    error = inexact(2 * keys * error, q, 2, 64)
    g.hides = True
    names = g.node("Attention", inputs, 3 if past else 1, **attributes)
    result = (batch, count, queries, width)
    if flat:
        result = (batch, queries, count * width)
    g.values.append(Value(names[0], F32, result, 2, error))
    for name, n in zip(names[1:], (depth, width), strict=False):
        g.values.append(Value(name, F32, (batch, few, keys, n)))
