"""The primitives that programs are made of: the one table of them.

A primitive is a function here.  Its positional parameters are the operands (one with
a default may be left out, ``*operands`` stands for any number), its keyword-only
parameters the attributes, the first line of its docstring says what it computes, and
what it returns are the element types and shapes of its results.  Elementwise ones,
which differ in name only, are listed in :data:`ELEMENTWISE`.

All are defined as numpy's functions are, with broadcasting as numpy's where operands
are several.  Axes are counted from the front: none is negative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from onnxplug import ep
from onnxplug.authoring.sizes import Extent, broadcast, product, quotient
from onnxplug_coreml.lowering.program import Shape, Value

Result: TypeAlias = tuple[ep.DataType, Shape]
"""The element type and shape of a value that an operation makes."""

Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Before and after, for each dimension."""

Numbers: TypeAlias = tuple[int, ...]


class Misused(ValueError):
    """A primitive was given operands or attributes that do not go together."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """One row of the table.

    Attributes:
        operands: their names.
        needed: how many of them cannot be left out.
        variadic: the last one stands for any number.
        attributes: their names; all are always given.
        semantics: what it computes.
        rule: the results' types and shapes, of operands and attributes.
    """

    name: str
    operands: tuple[str, ...]
    needed: int
    variadic: bool
    attributes: tuple[str, ...]
    semantics: str
    rule: Callable[..., Sequence[Result]]

    def results(
        self, operands: Sequence[Value | None], attributes: Mapping[str, Any]
    ) -> Sequence[Result]:
        """The element types and shapes of what it makes.

        Raises:
            Misused: it cannot be applied to these.
        """
        if set(attributes) != set(self.attributes):
            raise Misused(
                f"{self.name} has {sorted(attributes)}; takes {list(self.attributes)}"
            )
        if len(operands) < self.needed or (
            len(operands) > len(self.operands) and not self.variadic
        ):
            raise Misused(
                f"{self.name} of {len(operands)} operands; takes {list(self.operands)}"
            )
        return self.rule(*operands, **attributes)


PRIMITIVES: Final[dict[str, Primitive]] = {}
"""By name."""


def _primitive(
    rule: Callable[..., Sequence[Result]],
) -> Callable[..., Sequence[Result]]:
    name = rule.__name__.strip("_")
    _add(name, rule, (rule.__doc__ or "").splitlines()[0])
    return rule


def _add(name: str, rule: Callable[..., Sequence[Result]], semantics: str) -> None:
    parameters = inspect.signature(rule).parameters.values()
    operands = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    PRIMITIVES[name] = Primitive(
        name=name,
        operands=tuple(each.name for each in operands),
        needed=sum(
            each.default is each.empty and each.kind is not each.VAR_POSITIONAL
            for each in operands
        ),
        variadic=any(each.kind is each.VAR_POSITIONAL for each in operands),
        attributes=tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
        semantics=semantics,
        rule=rule,
    )


# --- elementwise -------------------------------------------------------------------

_FLOATS: Final = frozenset({ep.DataType.FLOAT32, ep.DataType.FLOAT16})
# int64 is in programs for engines that have it, see Target
_NUMBERS: Final = _FLOATS | {ep.DataType.INT32, ep.DataType.INT64}
_BOOL: Final = frozenset({ep.DataType.BOOL})

ELEMENTWISE: Final[Mapping[str, tuple[frozenset[ep.DataType], int, str]]] = {
    "abs": (_NUMBERS, 1, "the absolute value"),
    "acos": (_FLOATS, 1, "the inverse cosine"),
    "acosh": (_FLOATS, 1, "the inverse hyperbolic cosine"),
    "asin": (_FLOATS, 1, "the inverse sine"),
    "asinh": (_FLOATS, 1, "the inverse hyperbolic sine"),
    "atan": (_FLOATS, 1, "the inverse tangent"),
    "atanh": (_FLOATS, 1, "the inverse hyperbolic tangent"),
    "ceil": (_FLOATS, 1, "the least integer that is not less"),
    "cos": (_FLOATS, 1, "the cosine"),
    "cosh": (_FLOATS, 1, "the hyperbolic cosine"),
    "erf": (_FLOATS, 1, "the error function"),
    "exp": (_FLOATS, 1, "e to the power of x"),
    "floor": (_FLOATS, 1, "the greatest integer that is not greater"),
    "log": (_FLOATS, 1, "the natural logarithm, with nothing added to x"),
    "logical_not": (_BOOL, 1, "whether x is false"),
    "neg": (_NUMBERS, 1, "x with the other sign"),
    "relu": (_FLOATS, 1, "x where positive, else 0"),
    "round": (_FLOATS, 1, "the nearest integer, the even one of two"),
    "rsqrt": (_FLOATS, 1, "1 / sqrt(x), with nothing added to x"),
    "sigmoid": (_FLOATS, 1, "1 / (1 + exp(-x))"),
    "sign": (_NUMBERS, 1, "-1, 0 or 1"),
    "silu": (_FLOATS, 1, "x * sigmoid(x)"),
    "sin": (_FLOATS, 1, "the sine"),
    "sinh": (_FLOATS, 1, "the hyperbolic sine"),
    "sqrt": (_FLOATS, 1, "the square root"),
    "tan": (_FLOATS, 1, "the tangent"),
    "tanh": (_FLOATS, 1, "the hyperbolic tangent"),
    "add": (_NUMBERS, 2, "x + y"),
    "divide": (_FLOATS, 2, "x / y"),
    "maximum": (_NUMBERS, 2, "the larger of two"),
    "minimum": (_NUMBERS, 2, "the smaller of two"),
    "mul": (_NUMBERS, 2, "x * y"),
    "pow": (_FLOATS, 2, "x to the power of y"),
    "sub": (_NUMBERS, 2, "x - y"),
    "logical_and": (_BOOL, 2, "whether both are true"),
    "logical_or": (_BOOL, 2, "whether one is true"),
    "logical_xor": (_BOOL, 2, "whether just one is true"),
}
"""Results have the operands' type: which types, how many operands, and semantics."""

COMPARISONS: Final[Mapping[str, str]] = {
    "equal": "x == y",
    "not_equal": "x != y",
    "greater": "x > y",
    "greater_equal": "x >= y",
    "less": "x < y",
    "less_equal": "x <= y",
}
"""Of numbers or, the first two, bools; results are bools."""


def _elementwise(name: str, types: frozenset[ep.DataType]) -> Callable[..., Any]:
    def unary(x: Value) -> Sequence[Result]:
        _require(x.dtype in types, f"{name} of {x.dtype}")
        return [(x.dtype, x.shape)]

    def binary(x: Value, y: Value) -> Sequence[Result]:
        _require(x.dtype in types, f"{name} of {x.dtype}")
        _require_same(name, x, y)
        return [(x.dtype, _broadcast(x.shape, y.shape))]

    return unary if ELEMENTWISE[name][1] == 1 else binary


def _compare(x: Value, y: Value) -> Sequence[Result]:
    _require_same("a comparison", x, y)
    return [(ep.DataType.BOOL, _broadcast(x.shape, y.shape))]


for _name, (_types, _count, _semantics) in ELEMENTWISE.items():
    _add(_name, _elementwise(_name, _types), _semantics)
for _name, _semantics in COMPARISONS.items():
    _add(_name, _compare, _semantics)


@_primitive
def gelu(x: Value, *, approximate: bool) -> Sequence[Result]:
    """x times the normal distribution's share below x, or tanh's approximation of it"""
    return [(x.dtype, x.shape)]


@_primitive
def cast(x: Value, *, dtype: ep.DataType) -> Sequence[Result]:
    """x in another type: floats lose fractions as integers, 0 is false"""
    return [(dtype, x.shape)]


@_primitive
def select(condition: Value, x: Value, y: Value) -> Sequence[Result]:
    """x where the condition is true, else y, whatever the other is (also NaN)"""
    _require(condition.dtype in _BOOL, f"select by {condition.dtype}")
    _require_same("select", x, y)
    return [(x.dtype, _broadcast(condition.shape, _broadcast(x.shape, y.shape)))]


@_primitive
def identity(x: Value) -> Sequence[Result]:
    """x, for outputs that are inputs or constants"""
    return [(x.dtype, x.shape)]


# --- where elements are ------------------------------------------------------------


@_primitive
def reshape(x: Value, *, shape: Shape) -> Sequence[Result]:
    """the elements in order in another shape"""
    before, after = product(x.shape), product(shape)
    _require(before == after, f"reshape of {_describe(x.shape)} to {_describe(shape)}")
    return [(x.dtype, shape)]


@_primitive
def transpose(x: Value, *, permutation: Numbers) -> Sequence[Result]:
    """dimension i of the result is dimension permutation[i] of x"""
    _require(sorted(permutation) == list(range(x.rank)), f"transpose by {permutation}")
    return [(x.dtype, tuple(x.shape[axis] for axis in permutation))]


@_primitive
def broadcast_to(x: Value, *, shape: Shape) -> Sequence[Result]:
    """x repeated, where it has size 1 or no dimension, to a shape"""
    _require(_broadcast(x.shape, shape) == shape, f"broadcast to {_describe(shape)}")
    return [(x.dtype, shape)]


@_primitive
def tile(x: Value, *, repeats: Numbers) -> Sequence[Result]:
    """x repeated as a whole, repeats[i] times along axis i"""
    _require(len(repeats) == x.rank, f"tile of rank {x.rank} by {repeats}")
    return [(x.dtype, tuple(a * b for a, b in zip(x.shape, repeats, strict=True)))]


@_primitive
def concat(*operands: Value, axis: int) -> Sequence[Result]:
    """the operands one after another along an axis"""
    first = operands[0]
    for other in operands[1:]:
        _require_same("concat", first, other)
        same = all(
            a == b or i == axis
            for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True))
        )
        _require(
            same, f"concat of {_describe(first.shape)} and {_describe(other.shape)}"
        )
    total = sum((each.shape[axis] for each in operands[1:]), first.shape[axis])
    return [(first.dtype, _replaced(first.shape, {axis: total}))]


@_primitive
def split(x: Value, *, axis: int, sizes: Numbers) -> Sequence[Result]:
    """pieces of x, one after another along an axis, of the given sizes"""
    return [(x.dtype, _replaced(x.shape, {axis: size})) for size in sizes]


@_primitive
def slice_(
    x: Value, *, starts: Numbers, stops: tuple[int | None, ...], steps: Numbers
) -> Sequence[Result]:
    """every steps[i]-th element of starts[i] up to, not including, stops[i]

    There is one of each for each dimension.  Steps are positive; a stop of ``None`` is
    the end of a dimension, whose size may be known in runs only.
    """
    shape: list[Extent] = []
    for size, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        _require(step >= 1 and start >= 0, f"slice from {start} by {step}")
        end = size if stop is None else stop
        count = quotient(end - start + (step - 1), step)
        assert count is not None
        if isinstance(count, int):
            count = max(count, 0)
        shape.append(count)
    return [(x.dtype, tuple(shape))]


@_primitive
def reverse(x: Value, *, axes: Numbers) -> Sequence[Result]:
    """the elements in opposite order along axes"""
    return [(x.dtype, x.shape)]


@_primitive
def pad(x: Value, *, mode: str, pads: Pairs, value: float | bool) -> Sequence[Result]:
    """x with elements around: of the value, or by mode ``reflect`` or ``edge``

    The mode for the value is ``constant``.  There is a pair for each dimension; none is
    negative.
    """
    _require(mode in ("constant", "reflect", "edge"), f"pad by {mode}")
    return [
        (x.dtype, tuple(s + a + b for s, (a, b) in zip(x.shape, pads, strict=True)))
    ]


@_primitive
def gather(x: Value, indices: Value, *, axis: int) -> Sequence[Result]:
    """numpy.take: x's elements at indices along an axis; indices are in range"""
    _require_index("gather", indices)
    return [(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])]


@_primitive
def gather_along_axis(x: Value, indices: Value, *, axis: int) -> Sequence[Result]:
    """numpy.take_along_axis: x and indices have the same rank; indices in range"""
    _require_index("gather_along_axis", indices)
    _require(x.rank == indices.rank, "gather_along_axis of different ranks")
    return [(x.dtype, indices.shape)]


@_primitive
def gather_nd(x: Value, indices: Value) -> Sequence[Result]:
    """x[tuple(index)] for each index, the last dimension of indices; in range"""
    _require_index("gather_nd", indices)
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Misused("gather_nd by indices of unknown depth")
    return [(x.dtype, indices.shape[:-1] + x.shape[depth:])]


@_primitive
def scatter_nd(x: Value, indices: Value, updates: Value) -> Sequence[Result]:
    """x, where x[tuple(index)] is replaced by updates; in range, none twice"""
    _require_index("scatter_nd", indices)
    return [(x.dtype, x.shape)]


# --- along axes --------------------------------------------------------------------


def _reduced(x: Value, *, axes: Numbers, keep: bool) -> Shape:
    if keep:
        return _replaced(x.shape, dict.fromkeys(axes, 1))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


REDUCTIONS: Final[Mapping[str, str]] = {
    "reduce_sum": "the sum along axes",
    "reduce_mean": "the mean along axes",
    "reduce_max": "the largest along axes",
    "reduce_min": "the smallest along axes",
    "reduce_prod": "the product along axes",
}
"""Whether the axes stay, with size 1, is said by ``keep``."""


def _reduce(x: Value, *, axes: Numbers, keep: bool) -> Sequence[Result]:
    _require(x.dtype in _NUMBERS, f"a reduction of {x.dtype}")
    return [(x.dtype, _reduced(x, axes=axes, keep=keep))]


for _name, _semantics in REDUCTIONS.items():
    _add(_name, _reduce, _semantics)


@_primitive
def argmax(x: Value, *, axis: int, keep: bool) -> Sequence[Result]:
    """the position, int32, of the first of the largest along an axis"""
    return [(ep.DataType.INT32, _reduced(x, axes=(axis,), keep=keep))]


@_primitive
def argmin(x: Value, *, axis: int, keep: bool) -> Sequence[Result]:
    """the position, int32, of the first of the smallest along an axis"""
    return [(ep.DataType.INT32, _reduced(x, axes=(axis,), keep=keep))]


@_primitive
def topk(x: Value, *, k: int, axis: int, largest: bool) -> Sequence[Result]:
    """the k largest or smallest along an axis, best first, and where they are (int32)

    Of equal ones the first is the better.
    """
    shape = _replaced(x.shape, {axis: k})
    return [(x.dtype, shape), (ep.DataType.INT32, shape)]


@_primitive
def cumsum(x: Value, *, axis: int, exclusive: bool, backward: bool) -> Sequence[Result]:
    """the sum of all elements before along an axis, and of this if not exclusive"""
    return [(x.dtype, x.shape)]


@_primitive
def softmax(x: Value, *, axis: int) -> Sequence[Result]:
    """exp(x - max(x)) / sum(exp(x - max(x))) along an axis"""
    _require(x.dtype in _FLOATS, f"softmax of {x.dtype}")
    return [(x.dtype, x.shape)]


# --- linear algebra, windows -------------------------------------------------------


@_primitive
def matmul(x: Value, y: Value) -> Sequence[Result]:
    """numpy.matmul of operands of rank 2 or more; the other dimensions broadcast"""
    _require_same("matmul", x, y)
    _require(min(x.rank, y.rank) >= 2, "matmul of a vector")
    _require(
        x.shape[-1] == y.shape[-2],
        f"matmul of {_describe(x.shape)} and {_describe(y.shape)}",
    )
    batch = _broadcast(x.shape[:-2], y.shape[:-2])
    return [(x.dtype, (*batch, x.shape[-2], y.shape[-1]))]


@_primitive
def conv(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Numbers,
    dilations: Numbers,
    pads: Pairs,
    groups: int,
) -> Sequence[Result]:
    """correlation of [N, C, *spatial] with [M, C / groups, *kernel], plus [M]

    1, 2 or 3 spatial dimensions, with zeros around.
    """
    return [(x.dtype, (x.shape[0], weight.shape[0], *_windows(
        x, weight.numbers[2:], strides, dilations, pads
    )))]  # fmt: skip


@_primitive
def conv_transpose(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    strides: Numbers,
    dilations: Numbers,
    pads: Pairs,
    output_pads: Numbers,
    groups: int,
) -> Sequence[Result]:
    """what has x as its convolution by [C, M / groups, *kernel], plus [M]

    Each spatial size is (size - 1) * stride + (kernel - 1) * dilation + 1 + output pad,
    less the pads, which are cut off, as much before as after.
    """
    spatial = [
        (size - 1) * stride + (kernel - 1) * dilation + 1 + extra - before - after
        for size, kernel, stride, dilation, extra, (before, after) in zip(
            x.shape[2:], weight.numbers[2:], strides, dilations, output_pads, pads,
            strict=True,
        )
    ]  # fmt: skip
    return [(x.dtype, (x.shape[0], weight.shape[1] * groups, *spatial))]


@_primitive
def max_pool(
    x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers, pads: Pairs
) -> Sequence[Result]:
    """the largest in each window of [N, C, *spatial]; what is around counts not"""
    spatial = _windows(x, kernel, strides, dilations, pads)
    return [(x.dtype, (*x.shape[:2], *spatial))]


@_primitive
def avg_pool(
    x: Value, *, kernel: Numbers, strides: Numbers, pads: Pairs, count_pads: bool
) -> Sequence[Result]:
    """the mean of each window of [N, C, *spatial]; zeros around count or do not"""
    spatial = _windows(x, kernel, strides, (1,) * len(kernel), pads)
    return [(x.dtype, (*x.shape[:2], *spatial))]


@_primitive
def resize(
    x: Value,
    *,
    shape: Numbers,
    mode: str,
    coordinates: str,
    rounding: str,
    scales: tuple[float, ...],
) -> Sequence[Result]:
    """[N, C, H, W] resampled to [N, C, *shape]

    Mode ``linear`` or ``nearest``.  By *coordinates* position i there is here, with s
    of *scales* and sizes n, m: ``half_pixel`` (i + 0.5) / s - 0.5, ``asymmetric``
    i / s, ``align_corners`` i * (n - 1) / (m - 1).  Beyond the edge is what the edge
    is.  For ``nearest`` a position is rounded by *rounding*: ``floor``, ``ceil``,
    ``round_prefer_floor`` or ``round_prefer_ceil``.
    """
    _require(mode in ("linear", "nearest"), f"resize by {mode}")
    return [(x.dtype, (*x.shape[:2], *shape))]


# -----------------------------------------------------------------------------------


def _windows(
    x: Value, kernel: Numbers, strides: Numbers, dilations: Numbers, pads: Pairs
) -> Shape:
    found: list[Extent] = []
    for size, width, stride, dilation, (before, after) in zip(
        x.shape[2:], kernel, strides, dilations, pads, strict=True
    ):
        room = size + before + after - (width - 1) * dilation - 1
        steps = quotient(room, stride)
        _require(
            steps is not None and (not isinstance(room, int) or room >= 0),
            f"windows of {width} in a size of {size}",
        )
        assert steps is not None
        found.append(steps + 1)
    return tuple(found)


def _broadcast(one: Shape, other: Shape) -> Shape:
    rank = max(len(one), len(other))
    pairs = zip(
        (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True
    )
    found = []
    for a, b in pairs:
        known = isinstance(a, int) and isinstance(b, int)
        _require(
            not known or a == b or 1 in (a, b),
            f"{_describe(one)} beside {_describe(other)}",
        )
        found.append(broadcast(a, b))
    return tuple(found)


def _replaced(shape: Shape, sizes: Mapping[int, Extent]) -> Shape:
    return tuple(sizes.get(axis, size) for axis, size in enumerate(shape))


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise Misused(found)


def _require_same(name: str, one: Value, other: Value) -> None:
    _require(one.dtype == other.dtype, f"{name} of {one.dtype} and {other.dtype}")


def _require_index(name: str, indices: Value) -> None:
    _require(indices.dtype is ep.DataType.INT32, f"{name} by {indices.dtype}")


def _describe(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
