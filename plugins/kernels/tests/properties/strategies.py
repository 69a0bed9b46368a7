"""What properties are tried on: shapes, axes, and arrays of every element type.

An array is drawn as bytes, each of which chooses one of 256 values of its element type:
that is fast, and shrinks toward zeros.  Inputs cannot be written to, so a kernel that
overwrites one fails, and they do not always lie in memory in row-major order.

``ONNXPLUG_EXAMPLES=2000`` in the environment tries that many examples of every property
instead of the usual few; then ``--hypothesis-seed=1`` tries others than without.  With
``ONNXPLUG_EXAMPLES=all``, as ``make test-exhaustive`` has it, they are those that the
properties ask for, of which a part is tried by default.
"""

from __future__ import annotations

import functools
import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
import onnx
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from onnx import helper

Array: TypeAlias = np.ndarray[Any, Any]
Dtype: TypeAlias = np.dtype[Any]
Shape: TypeAlias = tuple[int, ...]
T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., None])

Values: TypeAlias = Literal[
    "any", "finite", "ordinary", "special", "positive", "powers", "whole"
]
"""Which numbers an array has.

any: NaN, infinities, the largest, the smallest, both zeros, and what lies between.
finite: those without NaN and infinities.
ordinary: finite ones of magnitudes from 1/64 to 8, and zero.
special: those of the ordinary ones, NaN, and infinities.
positive: those of the ordinary ones that are larger than zero.
powers: 1/2, 1, 2, their negatives, zero, NaN, and infinities: products are exact.
whole: whole numbers from -4 to 4, of which sums of products are exact.
"""

_COUNT = os.environ.get("ONNXPLUG_EXAMPLES", "")

_SHARE: Final = 1 if _COUNT == "all" else 3
"""One in so many of the examples that a property asks for is tried."""

MAX_SIZE = 240
"""Elements that are drawn one by one; no shape of :func:`shapes` has more."""


def examples(count: int) -> Callable[[Test], Test]:
    """Try *count* examples, always the same, of a property that takes ``draw``."""
    chosen = settings(
        max_examples=int(_COUNT) if _COUNT.isdecimal() else math.ceil(count / _SHARE),
        derandomize=not _COUNT.isdecimal(),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Test) -> Test:
        return chosen(given(draw=st.builds(Draw, st.data()))(test))

    return decorate


# element types


@functools.cache
def dtypes_of(
    op_type: str, parameter: str = "T", *, domain: str = "", version: int | None = None
) -> tuple[Dtype, ...]:
    """The element types that the schema of an operator allows for *parameter*.

    Strings are objects.  By default the schema is the newest.
    """
    latest = onnx.defs.onnx_opset_version() if not domain else 5
    schema = onnx.defs.get_schema(op_type, version or latest, domain)
    (constraint,) = (
        entry for entry in schema.type_constraints if entry.type_param_str == parameter
    )
    names = [
        text.removeprefix("tensor(").removesuffix(")")
        for text in constraint.allowed_type_strs
        if text.startswith("tensor(")
    ]
    numbers = [onnx.TensorProto.DataType.Value(name.upper()) for name in names]
    return tuple(helper.tensor_dtype_to_np_dtype(number) for number in numbers)


def is_float(dtype: Dtype) -> bool:
    return "float" in dtype.name


def is_integer(dtype: Dtype) -> bool:
    return "int" in dtype.name


def limits(dtype: Dtype) -> tuple[int, int]:
    """The smallest and the largest integer of *dtype*."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


# shapes

_SIDES = (1, 2, 3, 4, 2, 3, 5, 2, 3, 7, 3, 8)


@functools.cache
def shapes(min_rank: int = 0, max_rank: int = 4, *, empty: bool = True) -> list[Shape]:
    """Shapes of at most :data:`MAX_SIZE` elements; without *empty* of at least one."""
    generator = random.Random(min_rank + 10 * max_rank)
    chosen = []
    for rank in range(min_rank, max_rank + 1):
        for _ in range(50 if rank else 20):
            shape: list[int] = []
            for _ in range(rank):
                side = generator.choice(_SIDES)
                shape.append(min(side, MAX_SIZE // math.prod(shape)))
            if empty and shape and generator.random() < 0.15:
                shape[generator.randrange(rank)] = 0
            chosen.append(tuple(shape))
    return sorted(chosen, key=lambda shape: (len(shape), math.prod(shape) or 99))


@functools.cache
def shapes_within(whole: Shape) -> list[Shape]:
    """Shapes that broadcast to *whole*: some of its sides are 1, or left out."""
    found = [whole] * (2 << len(whole))
    for dropped in (0, 0, 1, 2, len(whole)):
        for ones in range(1 << len(whole)):
            shape = [1 if ones >> axis & 1 else n for axis, n in enumerate(whole)]
            found.append(tuple(shape[min(dropped, len(whole)) :]))
    return found


# what is drawn


class Draw:
    """Draws what one example of a property is made of."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one_of(self, values: Sequence[T]) -> T:
        """One of *values*; the first is the simplest."""
        # a strategy for these values would take as long to make as a test
        value = values[self.integer(0, len(values) - 1)]
        note(value)
        return value

    def flag(self) -> bool:
        return bool(self.integer(0, 1))

    def integer(self, low: int, high: int) -> int:
        """A number from *low* to *high*."""
        return self._data.draw(_numbers(low, high))

    def dtype(
        self,
        op_type: str,
        parameter: str = "T",
        kind: Callable[[Dtype], bool] | None = None,
        **schema: Any,
    ) -> Dtype:
        """One of :func:`dtypes_of` an operator, of a kind."""
        known = dtypes_of(op_type, parameter, **schema)
        return self.one_of(known if kind is None else [*filter(kind, known)])

    def shape(self, min_rank: int = 0, max_rank: int = 4, *, empty: bool = True) -> Any:
        """One of :func:`shapes`."""
        return self.one_of(shapes(min_rank, max_rank, empty=empty))

    def shapes(self, count: int = 2, *, max_rank: int = 4) -> list[Shape]:
        """*count* shapes that broadcast together."""
        within = shapes_within(self.shape(0, max_rank))
        return [self.one_of(within) for _ in range(count)]

    def axis(self, rank: int) -> int:
        """One of *rank* axes, counted from either end."""
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int, *, fewest: int = 0) -> list[int]:
        """Some axes, none of them twice, in any order and counted from either end."""
        every = self._data.draw(st.permutations(range(rank))) if rank else []
        chosen = every[: self.integer(min(fewest, rank), rank)]
        return [axis - rank if self.flag() else axis for axis in chosen]

    def array(self, dtype: Any, shape: Sequence[int], values: Values = "any") -> Array:
        """An array that cannot be written to."""
        return self.of(table_of(np.dtype(dtype), values), shape)

    def integers(
        self, low: int, high: int, shape: Sequence[int], dtype: Any = np.int64
    ) -> Array:
        """Whole numbers from *low* to *high*, which are at most 256."""
        return self.of(np.arange(low, high + 1).astype(dtype), shape)

    def of(self, table: Array, shape: Sequence[int]) -> Array:
        """An array of *shape* with values of *table*, of at most 256.

        Large arrays are drawn by a seed.
        """
        size = math.prod(shape)
        if size <= MAX_SIZE:
            *places, order = self._data.draw(_bytes(size + 1))
            drawn = np.array(places, np.uint8)
        else:
            order = seed = self.integer(0, 9999)
            drawn = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        array = table[drawn if len(table) == 256 else drawn % len(table)]
        array = array.reshape(tuple(shape))
        if size > 1:
            array = _in_order(array, _ORDERS[order % len(_ORDERS)])
        array.flags.writeable = False
        return array


_numbers = functools.cache(st.integers)


@functools.cache
def _bytes(count: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=count, max_size=count)


_ORDERS = ("C", "C", "C", "F", "backward", "spread")


def _in_order(array: Array, order: str) -> Array:
    """A copy of *array* that may lie in memory in another way than row by row."""
    match order:
        case "F":
            return array.copy("F")
        case "backward":
            flip = (slice(None, None, -1),) * array.ndim
            return array[flip].copy()[flip]
        case "spread":
            return np.repeat(array, 2, axis=-1)[..., ::2]
    return array


@functools.cache
def table_of(dtype: Dtype, values: Values) -> Array:
    """The values that arrays of *dtype* are made of, the simplest ones first."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "O":
        return _strings()
    if dtype.kind == "c":
        part = _floats(np.dtype(f"float{dtype.itemsize * 4}"), values)
        number = np.zeros(len(part), dtype)
        number.real[:], number.imag[:] = part, np.where(part, np.roll(part, 7), 0)
        return number
    return _integers(dtype, values) if is_integer(dtype) else _floats(dtype, values)


def _integers(dtype: Dtype, values: Values) -> Array:
    low, high = limits(dtype)
    if values in ("whole", "ordinary", "special", "powers"):
        low, high = max(low, -4), min(high, 4)
    elif values == "positive":
        low, high = 1, min(high, 9)
    if high - low < 256:
        found = sorted(range(low, high + 1), key=lambda n: (abs(n), n < 0))
    else:
        small = [n for k in range(60) for n in (k, -k)]
        ends = [n for k in range(20) for n in (high - k, low + k)]
        powers = [s << k for k in range(6, dtype.itemsize * 8) for s in (1, -1)]
        found = [n for n in (*small, *ends, *powers) if low <= n <= high]
        found = list(dict.fromkeys(found))[:256]
    return np.array(found, np.int64 if low < 0 else np.uint64).astype(dtype)


def _floats(dtype: Dtype, values: Values) -> Array:
    info: Any = ml_dtypes.finfo(dtype)
    if dtype.itemsize == 1 and values in ("any", "finite"):
        bits = 1 << info.bits
        found = np.arange(bits, dtype=np.uint8).view(dtype)
        wide = found.astype(np.float32)
        found = found[np.lexsort((np.signbit(wide), np.abs(wide)))]
        return found if values == "any" else found[np.isfinite(found.astype("f"))]
    small = [s * n / d for n in range(5) for d in (1, 2, 4) for s in (1, -1)]
    if values == "whole":
        whole = [n for k in range(5) for n in (k, -k)]
        return np.array(whole, np.float64).astype(dtype)
    if values == "powers":
        powers = [1.0, -1.0, 2.0, -2.0, 0.5, -0.5] * 4
        return np.array([*powers, 0, np.nan, np.inf, -np.inf]).astype(dtype)
    generator = np.random.default_rng(7)
    drawn = generator.choice([-1, 1], 256) * 2.0 ** generator.uniform(-6, 3, 256)
    if values in ("ordinary", "special"):
        special = [np.nan, np.inf, -np.inf] if values == "special" else []
        return np.array([0.0, *small[6:], *special, *drawn[:220]]).astype(dtype)
    if values == "positive":
        return np.abs([*small[6:], *drawn[:220]]).astype(dtype)
    numbers = np.array([*small, *(s * k for k in range(3, 24) for s in (1, -1))])
    least, largest = info.smallest_subnormal, info.max
    edges = [least, info.tiny, info.tiny - least, largest, info.eps, 1 - info.epsneg]
    whole = [s * v for v in edges for s in (-1, 1)]
    special = [np.nan, np.inf, -np.inf] * 4 if values == "any" else []
    widest = int(np.log2(np.float64(largest))) - 1
    wild = drawn[100:] * 2.0 ** generator.uniform(-widest, widest - 3, 156)
    table = [
        np.array(part, np.float64).astype(dtype)
        for part in (numbers, whole, special, drawn[:90], wild)
    ]
    return np.concatenate(table)[:256]


def _strings() -> Array:
    words = [
        "", "a", "b", "ab", "A", "aB", "1", "-2", "0", "2.5", " ", "a b", "\t", "ß",
        "İ", "ı", "é", "e\u0301", "漢字", "🙂", "a,b", ",", "aa", "ba", "NaN", "x\ny",
    ]  # fmt: skip
    table = np.empty(len(words), object)
    table[:] = words
    return table
