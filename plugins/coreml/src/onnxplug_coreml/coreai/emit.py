"""Programs in Core AI's words: one function for each primitive."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.positions import nearest
from onnxplug_coreml.lowering.primitives import COMPARISONS
from onnxplug_coreml.lowering.program import Operation, Program, Value

ENTRY: Final = "main"
"""The name of the function that a model has."""


def emit(authoring: Any, program: Program) -> Any:
    """The program as Core AI's ``AIProgram``.

    Its inputs and outputs are called as the program's values are.

    Args:
        authoring: ``coreai.authoring``.
    """
    module = authoring.Module.create()
    with module:
        authoring.graph(_body(authoring, program), provided_name=ENTRY)
    return authoring.AIProgram(module)


def _body(authoring: Any, program: Program) -> Callable[..., Any]:
    """A function as ``coreai.authoring.graph`` reads them: by its annotations."""

    def body(*inputs: Any) -> Any:
        values = dict(
            zip((port.value.name for port in program.inputs), inputs, strict=True)
        )
        writer = Writer(authoring, program, values)
        for operation in program.operations:
            writer.write(operation)
        return tuple(writer.value(value.name) for value in program.results)

    kinds = {
        port.value.name: _annotated(authoring, port.value) for port in program.inputs
    }
    results = tuple(_annotated(authoring, value) for value in program.results)
    result = results[0] if len(results) == 1 else tuple[results]  # type: ignore[valid-type]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in kinds
    ]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body.__annotations__ = {**kinds, "return": result}
    return body


def _annotated(authoring: Any, value: Value) -> Any:
    kind = _tensor_type(authoring, value.dtype, value.shape, value.name)
    return Annotated[authoring.Value, kind]


def _tensor_type(
    authoring: Any, dtype: ep.DataType, shape: Sequence[Any], name: str | None = None
) -> Any:
    sizes = tuple(size if isinstance(size, int) else -1 for size in shape)
    return authoring.TensorType(sizes, dtype.numpy, name)


class Writer:
    """Writes operations into the graph that is being made."""

    def __init__(
        self, authoring: Any, program: Program, values: dict[str, Any]
    ) -> None:
        self.authoring = authoring
        self._program = program
        self._values = values
        self.kinds = {value.name: value for value in program.values()}

    def write(self, operation: Operation) -> None:
        """Write one operation."""
        operands = [None if x is None else self.value(x) for x in operation.inputs]
        results = _EMITTERS[operation.primitive](
            self, operation, *operands, **operation.attributes
        )
        if len(operation.outputs) == 1:
            results = [results]
        for value, result in zip(operation.outputs, results, strict=True):
            self._values[value.name] = result

    def value(self, name: str) -> Any:
        """What the graph has of this name."""
        if name not in self._values:
            self._values[name] = self.constant(self._program.constants[name].array)
        return self._values[name]

    def constant(self, array: Any) -> Any:
        """An array as a constant."""
        from coreai.authoring.constant import constant

        return constant(np.asarray(array, order="C"))

    def like(self, operation: Operation, number: float) -> Any:
        """A scalar of the type of the operation's first operand."""
        assert operation.inputs[0] is not None
        dtype = self.kinds[operation.inputs[0]].dtype
        return self.constant(np.asarray(number, dtype.numpy))

    def scalar_type(self, operation: Operation) -> Any:
        """The operation's element type, as numpy's scalar type."""
        return operation.outputs[0].dtype.numpy.type

    def sizes(self, shape: Sequence[Any]) -> Any:
        """A shape as the engine wants it: one size may be -1, to be found by it."""
        numbers = [size if isinstance(size, int) else -1 for size in shape]
        return self.constant(np.asarray(numbers, np.int32))

    def indices(self, numbers: Sequence[int]) -> Any:
        """Numbers as int32."""
        return self.constant(np.asarray(numbers, np.int32))

    def counts(self, numbers: Sequence[int] | int) -> Any:
        """Numbers as uint32."""
        return self.constant(np.asarray(numbers, np.uint32))


_EMITTERS: Final[dict[str, Callable[..., Any]]] = {}


def _emits(function: Callable[..., Any]) -> Callable[..., Any]:
    _EMITTERS[function.__name__.lstrip("_")] = function
    return function


def _directly(name: str) -> Callable[..., Any]:
    def emit_directly(writer: Writer, operation: Operation, *operands: Any) -> Any:
        return getattr(writer.authoring, name)(*operands)

    return emit_directly


_DIRECT: Final[Mapping[str, str]] = {
    "abs": "abs_",
    **{
        name: name
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf",
            "exp", "log", "relu", "rsqrt", "sigmoid", "silu", "sin", "sinh", "sqrt",
            "tan", "tanh", "gather_nd", "scatter_nd",
        )
    },
    "logical_not": "not_",
    "round": "round_",
    **{
        name: f"broadcasting_{name}"
        for name in (
            "add", "divide", "maximum", "minimum", "mul", "pow", "sub",
            "equal", "not_equal", "greater",
        )
    },
    "logical_and": "broadcasting_and",
    "logical_or": "broadcasting_or",
    "logical_xor": "broadcasting_xor",
    "matmul": "broadcasting_batch_matmul",
    "select": "broadcasting_where",
}  # fmt: skip

for _name, _target in _DIRECT.items():
    _EMITTERS[_name] = _directly(_target)


# --- elementwise -------------------------------------------------------------------


@_emits
def _floor(writer: Writer, operation: Operation, x: Any) -> Any:
    # the engine has floor_divide, but that of infinity is NaN
    a = writer.authoring
    near = a.round_(x)
    above = a.cast(a.broadcasting_greater(near, x), writer.scalar_type(operation))
    return a.broadcasting_sub(near, above)


@_emits
def _ceil(writer: Writer, operation: Operation, x: Any) -> Any:
    return _neg(
        writer, operation, _floor(writer, operation, _neg(writer, operation, x))
    )


@_emits
def _neg(writer: Writer, operation: Operation, x: Any) -> Any:
    return writer.authoring.broadcasting_mul(x, writer.like(operation, -1))


@_emits
def _sign(writer: Writer, operation: Operation, x: Any) -> Any:
    a = writer.authoring
    zero, one, minus = (writer.like(operation, number) for number in (0, 1, -1))
    below = a.broadcasting_where(a.broadcasting_greater(zero, x), minus, x)
    return a.broadcasting_where(a.broadcasting_greater(x, zero), one, below)


@_emits
def _greater_equal(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    a = writer.authoring
    return a.broadcasting_or(a.broadcasting_greater(x, y), a.broadcasting_equal(x, y))


@_emits
def _less(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    return writer.authoring.broadcasting_greater(y, x)


@_emits
def _less_equal(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    a = writer.authoring
    return a.broadcasting_or(a.broadcasting_greater(y, x), a.broadcasting_equal(x, y))


assert set(COMPARISONS) <= set(_EMITTERS)


@_emits
def _gelu(writer: Writer, operation: Operation, x: Any, *, approximate: bool) -> Any:
    return writer.authoring.gelu(x, approximate="tanh" if approximate else "none")


@_emits
def _identity(writer: Writer, operation: Operation, x: Any) -> Any:
    kind = operation.outputs[0]
    return writer.authoring.transpose(x, writer.counts(range(kind.rank)))


@_emits
def _cast(writer: Writer, operation: Operation, x: Any, *, dtype: ep.DataType) -> Any:
    return writer.authoring.cast(x, dtype.numpy.type)


# --- where elements are ------------------------------------------------------------


@_emits
def _reshape(writer: Writer, operation: Operation, x: Any, *, shape: Any) -> Any:
    return writer.authoring.reshape(x, writer.sizes(shape))


@_emits
def _transpose(
    writer: Writer, operation: Operation, x: Any, *, permutation: Sequence[int]
) -> Any:
    return writer.authoring.transpose(x, writer.counts(permutation))


@_emits
def _broadcast_to(writer: Writer, operation: Operation, x: Any, *, shape: Any) -> Any:
    return writer.authoring.broadcast_to(x, writer.counts(shape))


@_emits
def _tile(
    writer: Writer, operation: Operation, x: Any, *, repeats: Sequence[int]
) -> Any:
    return writer.authoring.tile(x, writer.counts(repeats))


@_emits
def _concat(writer: Writer, operation: Operation, *operands: Any, axis: int) -> Any:
    return writer.authoring.concat(writer.constant(np.int32(axis)), list(operands))


@_emits
def _split(
    writer: Writer, operation: Operation, x: Any, *, axis: int, sizes: Sequence[int]
) -> Any:
    pieces = [_piece(writer, operation, x, axis, *ends) for ends in _ends(sizes)]
    return pieces if len(pieces) > 1 else pieces[0]


def _ends(sizes: Sequence[int]) -> list[tuple[int, int]]:
    stops = [int(stop) for stop in np.cumsum(sizes)]
    return list(zip([0, *stops], stops, strict=False))


def _piece(
    writer: Writer, operation: Operation, x: Any, axis: int, start: int, stop: int
) -> Any:
    assert operation.inputs[0] is not None
    rank = writer.kinds[operation.inputs[0]].rank
    starts, stops = [0] * rank, [_END] * rank
    starts[axis], stops[axis] = start, stop
    return _cut(writer, x, starts, stops, [1] * rank)


_END: Final = 2**31 - 1


def _cut(
    writer: Writer, x: Any, starts: Sequence[int], stops: Sequence[int], steps: Any
) -> Any:
    return writer.authoring.slice_(
        x, writer.indices(starts), writer.indices(stops), writer.indices(steps)
    )


@_emits
def _slice(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    starts: Sequence[int],
    stops: Sequence[int | None],
    steps: Sequence[int],
) -> Any:
    ends = [_END if stop is None else stop for stop in stops]
    return _cut(writer, x, starts, ends, steps)


@_emits
def _reverse(
    writer: Writer, operation: Operation, x: Any, *, axes: Sequence[int]
) -> Any:
    return writer.authoring.reverse(x, writer.indices(axes))


_PADDING: Final = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


@_emits
def _pad(
    writer: Writer, operation: Operation, x: Any, *, mode: str, pads: Any, value: Any
) -> Any:
    flat = [number for pair in pads for number in pair]
    return writer.authoring.pad(
        x, writer.counts(flat), writer.like(operation, value), _PADDING[mode]
    )


@_emits
def _gather(
    writer: Writer, operation: Operation, x: Any, indices: Any, *, axis: int
) -> Any:
    assert operation.inputs[0] is not None
    assert operation.inputs[1] is not None
    rank, depth = (writer.kinds[name].rank for name in operation.inputs[:2] if name)
    return _taken(writer, x, indices, rank, depth, axis)


def _taken(
    writer: Writer, x: Any, indices: Any, rank: int, depth: int, axis: int
) -> Any:
    """numpy.take of *x* of a rank and *indices* of rank *depth*."""
    a = writer.authoring
    if axis:
        front = [axis, *(each for each in range(rank) if each != axis)]
        x = a.transpose(x, writer.counts(front))
    found = a.gather_nd(x, a.expand_dims(indices, writer.indices([depth])))
    if not axis:
        return found
    before = range(depth, depth + axis)
    after = range(depth + axis, depth + rank - 1)
    return a.transpose(found, writer.counts([*before, *range(depth), *after]))


@_emits
def _gather_along_axis(
    writer: Writer, operation: Operation, x: Any, indices: Any, *, axis: int
) -> Any:
    return writer.authoring.gather_along_axis(
        x, indices, writer.constant(np.int32(axis))
    )


# --- along axes --------------------------------------------------------------------


def _reducing(name: str) -> Callable[..., Any]:
    def emit_reduction(
        writer: Writer, operation: Operation, x: Any, *, axes: Sequence[int], keep: bool
    ) -> Any:
        reduced = getattr(writer.authoring, name)(x, writer.indices(axes))
        return _dropped(writer, reduced, axes, keep)

    return emit_reduction


def _dropped(writer: Writer, x: Any, axes: Sequence[int], keep: bool) -> Any:
    return x if keep else writer.authoring.shrink_dims(x, writer.indices(axes))


for _name in ("sum", "mean", "max", "min"):
    _EMITTERS[f"reduce_{_name}"] = _reducing(f"reduce_{_name}")
_EMITTERS["reduce_prod"] = _reducing("reduce_product")


@_emits
def _argmax(
    writer: Writer, operation: Operation, x: Any, *, axis: int, keep: bool
) -> Any:
    a = writer.authoring
    found = a.cast(a.argmax(x, writer.constant(np.int32(axis))), np.int32)
    return _dropped(writer, found, (axis,), keep)


@_emits
def _argmin(
    writer: Writer, operation: Operation, x: Any, *, axis: int, keep: bool
) -> Any:
    opposite = _neg(writer, operation, x)
    return _argmax(writer, operation, opposite, axis=axis, keep=keep)


@_emits
def _topk(
    writer: Writer, operation: Operation, x: Any, *, k: int, axis: int, largest: bool
) -> Any:
    a = writer.authoring
    order = a.argsort(
        x,
        writer.constant(np.int32(axis)),
        writer.constant(np.bool_(largest)),
        writer.constant(np.bool_(True)),
    )
    where = a.cast(_piece(writer, operation, order, axis, 0, k), np.int32)
    return a.gather_along_axis(x, where, writer.constant(np.int32(axis))), where


@_emits
def _cumsum(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    axis: int,
    exclusive: bool,
    backward: bool,
) -> Any:
    a = writer.authoring
    sums = a.scan(x, writer.counts(axis), writer.constant(np.bool_(backward)), "sum")
    if not exclusive:
        return sums
    kind = operation.outputs[0]
    pads = [[0, 0] for _ in range(kind.rank)]
    pads[axis][1 if backward else 0] = 1
    padded = _pad(writer, operation, sums, mode="constant", pads=pads, value=0)
    size = kind.numbers[axis]
    start = 1 if backward else 0
    return _piece(writer, operation, padded, axis, start, start + size)


@_emits
def _softmax(writer: Writer, operation: Operation, x: Any, *, axis: int) -> Any:
    return writer.authoring.softmax(x, writer.constant(np.int32(axis)))


# --- windows -----------------------------------------------------------------------


def _surrounded(
    writer: Writer, operation: Operation, x: Any, pads: Any, value: float
) -> Any:
    """With *value* around; windows are not padded by the engine."""
    if not any(map(any, pads)):
        return x
    full = ((0, 0), (0, 0), *pads)
    return _pad(writer, operation, x, mode="constant", pads=full, value=value)


def _in_two(numbers: Sequence[Any], other: Any) -> list[Any]:
    """What there is for each spatial dimension, with one more if there is just one."""
    return [*numbers, other] if len(numbers) == 1 else list(numbers)


def _spatial(operation: Operation, writer: Writer) -> int:
    assert operation.inputs[0] is not None
    return writer.kinds[operation.inputs[0]].rank - 2


def _widened(writer: Writer, x: Any, spatial: int) -> Any:
    """[N, C, L] as [N, C, L, 1]; the engine's windows have 2 or 3 dimensions."""
    if spatial > 1:
        return x
    return writer.authoring.expand_dims(x, writer.indices([3]))


def _narrowed(writer: Writer, x: Any, spatial: int) -> Any:
    if spatial > 1:
        return x
    return writer.authoring.shrink_dims(x, writer.indices([3]))


def _biased(writer: Writer, x: Any, bias: Any, spatial: int) -> Any:
    if bias is None:
        return x
    a = writer.authoring
    axes = list(range(1, max(spatial, 2) + 1))
    return a.broadcasting_add(x, a.expand_dims(bias, writer.indices(axes)))


@_emits
def _conv(
    writer: Writer,
    operation: Operation,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
    groups: int,
) -> Any:
    spatial = len(strides)
    convolve = getattr(writer.authoring, f"conv{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, 0)
    found = convolve(
        _widened(writer, x, spatial),
        _widened(writer, weight, spatial),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two(dilations, 1)),
        writer.counts(groups),
    )
    return _narrowed(writer, _biased(writer, found, bias, spatial), spatial)


@_emits
def _conv_transpose(
    writer: Writer,
    operation: Operation,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
    output_pads: Sequence[int],
    groups: int,
) -> Any:
    spatial = len(strides)
    convolve = getattr(writer.authoring, f"conv_transpose{max(spatial, 2)}d")
    found = convolve(
        _widened(writer, x, spatial),
        _widened(writer, weight, spatial),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two([before for before, _ in pads], 0)),
        writer.counts(_in_two(dilations, 1)),
        writer.counts(_in_two(output_pads, 0)),
        writer.counts(groups),
    )
    return _narrowed(writer, _biased(writer, found, bias, spatial), spatial)


@_emits
def _max_pool(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Any,
) -> Any:
    spatial = len(kernel)
    pool = getattr(writer.authoring, f"maxpool{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, -np.inf)
    kind = operation.outputs[0]
    shape = [*kind.shape[:2], *_in_two(kind.shape[2:], 1)]
    found = pool(
        _tensor_type(writer.authoring, kind.dtype, shape),
        _widened(writer, x, spatial),
        writer.counts(_in_two(kernel, 1)),
        writer.counts(_in_two(strides, 1)),
        writer.counts(_in_two(dilations, 1)),
        writer.constant(np.bool_(False)),
    )
    return _narrowed(writer, found, spatial)


@_emits
def _avg_pool(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    count_pads: bool,
) -> Any:
    a = writer.authoring
    spatial = len(kernel)
    pool = getattr(a, f"sumpool{max(spatial, 2)}d")
    x = _surrounded(writer, operation, x, pads, 0)
    total = pool(
        _widened(writer, x, spatial),
        writer.counts(_in_two(kernel, 1)),
        writer.counts(_in_two(strides, 1)),
        writer.counts((1,) * max(spatial, 2)),
    )
    total = _narrowed(writer, total, spatial)
    if count_pads or not any(map(any, pads)):
        return a.broadcasting_mul(total, writer.like(operation, 1 / np.prod(kernel)))
    assert operation.inputs[0] is not None
    sizes = writer.kinds[operation.inputs[0]].numbers[2:]
    dtype = operation.outputs[0].dtype.numpy
    counts = _inside(sizes, kernel, strides, pads, operation.outputs[0].numbers[2:])
    return a.broadcasting_divide(total, writer.constant(counts.astype(dtype)))


def _inside(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    windows: Sequence[int],
) -> Any:
    """How many elements of each window are not padding."""
    counts: Any = np.ones((), np.int64)
    for size, width, stride, (before, _), count in zip(
        sizes, kernel, strides, pads, windows, strict=True
    ):
        starts = np.arange(count) * stride - before
        here = np.minimum(starts + width, size) - np.maximum(starts, 0)
        counts = np.multiply.outer(counts, here)
    return counts


@_emits
def _resize(
    writer: Writer,
    operation: Operation,
    x: Any,
    *,
    shape: Sequence[int],
    mode: str,
    coordinates: str,
    rounding: str,
    scales: Sequence[float],
) -> Any:
    assert operation.inputs[0] is not None
    sizes = writer.kinds[operation.inputs[0]].numbers[2:]
    if mode == "nearest":
        positions = [
            nearest(*each, coordinates, rounding)
            for each in zip(sizes, shape, scales, strict=True)
        ]
        found = [_rounded(*each) for each in zip(sizes, shape, scales, strict=True)]
        if not all(map(np.array_equal, positions, found)):
            for axis, wanted in enumerate(positions, start=2):
                x = _taken(writer, x, writer.indices(wanted), 4, 1, axis)
            return x
        coordinates = "half_pixel"
    # the engine finds what is at (i + 0.5 - offset) / factor - 0.5
    factors, offsets = [1.0, 1.0], [0.0, 0.0]
    for size, wanted, scale in zip(sizes, shape, scales, strict=True):
        if coordinates == "align_corners":
            # of one position only the first is asked for
            scale = (wanted - 1) / (size - 1) if min(size, wanted) > 1 else wanted
        factors.append(scale)
        offsets.append(0.0 if coordinates == "half_pixel" else 0.5 * (1 - scale))
    return writer.authoring.interpolate(
        x,
        writer.indices(operation.outputs[0].numbers),
        writer.constant(np.asarray(factors, np.float32)),
        writer.constant(np.asarray(offsets, np.float32)),
        "linear" if mode == "linear" else "nearest_neighbor",
    )


def _rounded(size: int, wanted: int, scale: float) -> Any:
    """The positions that the engine takes for half pixels: ties go to even ones."""
    there = np.arange(wanted, dtype=np.float32) + np.float32(0.5)
    here = there / np.float32(scale) - np.float32(0.5)
    return np.clip(np.rint(here), 0, size - 1)
