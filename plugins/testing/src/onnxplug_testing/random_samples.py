"""Single nodes of random sizes and attributes, and what they give in float64.

They are of operators that models seldom have.  What is expected is computed here, one
element or one step after the other, by the operators' definitions, and by no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from onnxplug.authoring.record import Record

Array: TypeAlias = np.ndarray[Any, Any]

_OPSET: Final = 27


class Sample(Record):
    """A model of one node.

    Attributes:
        model: its inputs are those of the node that are no *numbers*.
        feeds: what it is given.
        wanted: the node's outputs; of floats in float64, not rounded.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    wanted: list[Array]

    def error(self, found: Sequence[Array]) -> float:
        """How far *found* is from what is wanted at most, in steps of its dtype at the
        largest element, or at 1 if all are less.

        Raises:
            ValueError: the number of outputs, or a shape, is another one.
        """
        errors = [0.0]
        for array, wanted in zip(found, self.wanted, strict=True):
            if array.shape != wanted.shape:
                raise ValueError(f"found {array.shape}, wanted {wanted.shape}")
            is_float = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
            step = _last_place(array.dtype) if is_float else 1.0
            wide = wanted.astype(np.float64)
            largest = max(1.0, float(np.abs(wide).max(initial=0)))
            difference = np.abs(array.astype(np.float64) - wide).max(initial=0)
            errors.append(float(difference) / largest / step)
        return float(np.max(errors))  # which a NaN is, too


def _last_place(dtype: np.dtype[Any]) -> float:
    """From 1 to the next larger number."""
    limits: Any = ml_dtypes.finfo  # whose stub has no types
    return float(limits(dtype).eps)


def _sample(
    op_type: str,
    inputs: Mapping[str, Array | None],
    numbers: Mapping[str, Array],
    wanted: Sequence[Array],
    dtypes: Sequence[Any],
    **attributes: Any,
) -> Sample:
    """A sample of which *numbers* are constants.

    Args:
        inputs: the node's, in order, with those of *numbers*; ``None``: left out.
        dtypes: of the outputs.
    """

    def value(name: str, dtype: Any, shape: Sequence[int]) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, element, shape)

    names = [name if array is not None else "" for name, array in inputs.items()]
    while not names[-1]:
        names.pop()
    results = [f"y{number}" for number in range(len(wanted))]
    empty = [name for name, value in attributes.items() if value == []]
    node = helper.make_node(
        op_type,
        names,
        results,
        **{name: value for name, value in attributes.items() if name not in empty},
    )
    for name in empty:
        ints = onnx.AttributeProto.INTS
        node.attribute.append(helper.make_attribute(name, [], attr_type=ints))
    feeds = {
        name: array
        for name, array in inputs.items()
        if array is not None and name not in numbers
    }
    graph = helper.make_graph(
        [node],
        op_type,
        [value(name, array.dtype, array.shape) for name, array in feeds.items()],
        [
            value(name, dtype, array.shape)
            for name, dtype, array in zip(results, dtypes, wanted, strict=True)
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10
    )
    return Sample(model, feeds, list(wanted))


def _floats(rng: Any, shape: Sequence[int], dtype: Any, scale: float = 1.0) -> Array:
    found: Array = (rng.standard_normal(shape) * scale).astype(dtype)
    return found


def _shape(rng: Any, rank: int, most: int = 6) -> tuple[int, ...]:
    return tuple(int(size) for size in rng.integers(1, most, rank))


def center_crop_pad(rng: Any, dtype: Any) -> Sample:
    """The middle along some axes, counted from either end."""
    rank = int(rng.integers(1, 5))
    x = rng.integers(0, 100, _shape(rng, rank, 9)).astype(dtype)
    axes = [int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    size = rng.integers(0, 12, len(axes))
    shape = list(x.shape)
    for axis, wanted in zip(axes, size, strict=True):
        shape[axis] = int(wanted)
    found = np.zeros(shape, dtype)
    for place in np.ndindex(*shape):
        source = [
            at + ((n - w) // 2 if n > w else -((w - n) // 2))
            for at, n, w in zip(place, x.shape, shape, strict=True)
        ]
        if all(0 <= at < n for at, n in zip(source, x.shape, strict=True)):
            found[place] = x[tuple(source)]
    given = [axis - rank * int(rng.integers(2)) for axis in axes]
    attributes = {} if axes == list(range(rank)) else {"axes": given}
    return _sample(
        "CenterCropPad",
        {"x": x, "size": size},
        {"size": size},
        [found],
        [dtype],
        **attributes,
    )


def mean_variance_normalization(rng: Any, dtype: Any) -> Sample:
    """Of a mean far from zero, too, over one axis or all."""
    rank = int(rng.integers(1, 5))
    shape = _shape(rng, rank, 9)
    x = (rng.standard_normal(shape) + rng.integers(-3, 4)).astype(dtype)
    axes = tuple(
        int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)]
    )
    attributes: dict[str, Any] = {"axes": axes}
    if rank == 4 and rng.integers(2):
        axes, attributes = (0, 2, 3), {}
    if not rng.integers(6):
        axes, attributes = tuple(range(rank)), {"axes": []}
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axes, keepdims=True))
    wanted = centered / (deviation + float(np.float32(1e-9)))
    if deviation.size and deviation.min() < 1e-3:
        # of one element nothing is left but what rounding leaves of it
        wanted = np.where(np.broadcast_to(deviation, x.shape) < 1e-3, 0, wanted)
    return _sample(
        "MeanVarianceNormalization", {"x": x}, {}, [wanted], [dtype], **attributes
    )


def affine_grid(rng: Any, dtype: Any) -> Sample:
    """In two and three dimensions, also of one pixel."""
    rank = int(rng.integers(2, 4))
    batch, channels, *spatial = _shape(rng, 2 + rank)
    theta = _floats(rng, (batch, rank, rank + 1), dtype)
    align = int(rng.integers(2))
    lines = []
    for size in spatial:
        steps = np.arange(size)
        line = (2 * steps + 1) / size - 1
        lines.append(2 * steps / max(size - 1, 1) - 1 if align else line)
    wanted = np.empty((batch, *spatial, rank))
    for image, *place in np.ndindex(batch, *spatial):
        ends = zip(reversed(lines), reversed(place), strict=True)
        point = np.array([*(line[at] for line, at in ends), 1.0])
        wanted[(image, *place)] = theta[image].astype(np.float64) @ point
    sizes = np.array([batch, channels, *spatial])
    return _sample(
        "AffineGrid",
        {"theta": theta, "size": sizes},
        {"size": sizes},
        [wanted],
        [dtype],
        align_corners=align,
    )


def causal_conv_with_state(rng: Any, dtype: Any) -> Sample:
    """Of sequences shorter and longer than the kernel, with a state and without."""
    batch, channels, time = _shape(rng, 3, 12)
    size = int(rng.integers(1, 6))
    inputs: dict[str, Array | None] = {
        "x": _floats(rng, (batch, channels, time), dtype),
        "weight": _floats(rng, (channels, 1, size), dtype),
        "bias": _floats(rng, (channels,), dtype) if rng.integers(2) else None,
        "past": None,
    }
    if rng.integers(3):
        inputs["past"] = _floats(rng, (batch, channels, size - 1), dtype)
    past, bias = inputs["past"], inputs["bias"]
    if past is None:
        past = np.zeros((batch, channels, size - 1))
    x, weight = (np.asarray(inputs[n]).astype(np.float64) for n in ("x", "weight"))
    whole = np.concatenate([past.astype(np.float64), x], axis=2)
    wanted = np.zeros((batch, channels, time))
    for tap in range(size):
        wanted += whole[:, :, tap : tap + time] * weight[:, 0, tap, None]
    if bias is not None:
        wanted += bias.astype(np.float64)[:, None]
    activation = str(rng.choice(["none", "silu", "swish"]))
    if activation != "none":
        wanted = wanted / (1 + np.exp(-wanted))
    return _sample(
        "CausalConvWithState",
        inputs,
        {},
        [wanted, whole[:, :, time:]],
        [dtype, dtype],
        activation=activation,
    )


def linear_attention(rng: Any, dtype: Any) -> Sample:
    """By each rule, with shared keys, both kinds of decays and rates, and a state."""
    batch, time, heads, group = _shape(rng, 4, 4)
    time = time if rng.integers(2) else 7
    size, width = (int(n) for n in rng.choice([1, 2, 5, 16, 33], 2))
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta"]))
    key = rng.standard_normal((batch, time, heads, size))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    inputs: dict[str, Array | None] = {
        "query": _floats(rng, (batch, time, heads * group * size), dtype),
        "key": key.reshape(batch, time, -1).astype(dtype),
        "value": _floats(rng, (batch, time, heads * width), dtype),
        "past": None,
        "decay": None,
        "beta": None,
    }
    state = np.zeros((batch, heads, size, width))
    past_dtype = dtype
    if rng.integers(2):
        past_dtype = np.dtype(rng.choice(["float32", np.dtype(dtype).name]))
        past = inputs["past"] = _floats(rng, state.shape, past_dtype)
        state = past.astype(np.float64)
    if rule.startswith("gated"):
        many = heads * (size if rng.integers(2) else 1)
        decays = -np.abs(rng.standard_normal((batch, time, many)))
        inputs["decay"] = decays.astype(dtype)
    if rule.endswith("delta"):
        many = heads if rng.integers(2) else 1
        inputs["beta"] = rng.random((batch, time, many)).astype(dtype)
    scale = float(np.float32(rng.choice([0.0, 0.3])))
    wanted = _recurrence(inputs, state, heads, group, scale)
    return _sample(
        "LinearAttention",
        inputs,
        {},
        [wanted, state],
        [dtype, past_dtype],
        q_num_heads=heads * group,
        kv_num_heads=heads,
        update_rule=rule,
        scale=scale,
    )


def _recurrence(
    inputs: Mapping[str, Array | None],
    states: Array,
    heads: int,
    group: int,
    scale: float,
) -> Array:
    """What each step reads of its state [key, value], which it changes before."""
    batch, _, size, width = states.shape
    q, k, v, g, b = (
        None if (array := inputs[name]) is None else array.astype(np.float64)
        for name in ("query", "key", "value", "decay", "beta")
    )
    assert q is not None and k is not None and v is not None
    time = q.shape[1]
    found = np.empty((batch, time, heads * group, width))
    for image, head, at in np.ndindex(batch, heads, time):
        state = states[image, head]
        key = k[image, at].reshape(heads, size)[head]
        value = v[image, at].reshape(heads, width)[head]
        if g is not None:
            state *= np.exp(g[image, at].reshape(heads, -1)[head])[:, None]
        if b is not None:
            rate = b[image, at][head if b.shape[2] > 1 else 0]
            value = rate * (value - state.T @ key)
        state += np.outer(key, value)
        for number in range(head * group, (head + 1) * group):
            query = q[image, at].reshape(heads * group, size)[number]
            found[image, at, number] = (scale or 1 / math.sqrt(size)) * query @ state
    return found.reshape(batch, time, -1)


SAMPLES: Final[Mapping[str, Callable[[Any, Any], Sample]]] = {
    "AffineGrid": affine_grid,
    "CausalConvWithState": causal_conv_with_state,
    "CenterCropPad": center_crop_pad,
    "LinearAttention": linear_attention,
    "MeanVarianceNormalization": mean_variance_normalization,
}
"""What makes samples, of a generator of random numbers and a dtype."""
