"""ONNX Runtime's operators on numbers that are 8-bit integers with a scale and a zero
point: chains of casts, and products of codes.

A scale and a zero point are those of a whole tensor.  Zero points that are added before
a result is rounded, and those that are added after, are so as in ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import quantised
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import MEAN, SUM, slides_of
from onnxplug_compiler.schedule.coded import as_shape
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_kernels.windows import Windows

BYTES: Final = frozenset({"i8", "u8"})
_I32: Final = np.dtype(np.int32)
_ONE_AXIS_SINCE: Final = 13
"""The opset before which QLinearSoftmax is over all axes from the given one on."""


def full_name(call: Call) -> str:
    """The operator's name with its domain."""
    return f"com.microsoft.{call.op_type}"


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts codes of a byte, and parameters of floats."""
    codes, name = target.elements(full_name(call)), full_name(call)
    if not codes:
        return f"{name} is not compiled"
    for dtype in (*dtypes, *call.dtypes):
        element = None if dtype is None else element_of(dtype)
        if dtype is not None and element not in {"f32", "i1", "i32", *codes}:
            return f"{name} is not compiled for {dtype}"
    return None


class _Scaled(NamedTuple):
    """What codes stand for: ``(codes - zero) * scale``; float32, one element each."""

    scale: View
    zero: View


def _scales(plan: Plan, call: Call, *positions: int) -> list[_Scaled]:
    """What is at these positions, and behind: scales, and zero points, of which what is
    left out is 0.

    All are in one array, as kernels have few.
    """
    names = [call.input(n) for first in positions for n in (first, first + 1)]
    if None in names[::2]:
        raise NotCompiled(f"{full_name(call)} lacks a scale", call)
    contents = [np.zeros(1) if n is None else plan.known(n).content for n in names]
    known = [np.float32(each.reshape(())) for each in contents if each is not None]
    recorder = plan.recorder
    if len(known) == len(names):
        whole = recorder.constant(np.array(known, np.float32))
    else:
        whole = recorder.temporary(F32, (len(names),))
        for number, name in enumerate(names):
            place, chain = whole.slice((number,), (1,)), Formula("f32")
            value = chain.number(0.0)
            if name is not None:
                value = chain.read_wide(as_shape(plan, plan.view(name), (1,)))
            chain.record(recorder, value, place, call.op_type)
    found = [as_shape(plan, whole.slice((n,), (1,)), ()) for n in range(len(names))]
    pairs = zip(found[::2], found[1::2], strict=True)
    return [_Scaled(*each) for each in pairs]


def codes_at(plan: Plan, call: Call, position: int) -> View:
    """An input that is there.

    Raises:
        NotCompiled: it is not.
    """
    name = call.input(position)
    if name is None:
        raise NotCompiled(f"{full_name(call)} lacks input {position}", call)
    return plan.view(name)


def _centered(chain: Formula, codes: View, of: _Scaled) -> Number:
    return chain.step("Sub", chain.read_wide(codes), chain.read(of.zero))


def _dequantized(chain: Formula, codes: View, of: _Scaled) -> Number:
    return chain.step("Mul", _centered(chain, codes, of), chain.read(of.scale))


def _record_quantized(
    plan: Plan, chain: Formula, value: Number, of: _Scaled, out: View, label: str
) -> None:
    """Write a value in steps of a scale, the zero point added when they are rounded."""
    steps = chain.step("Div", value, chain.read(of.scale))
    _record_steps(plan, chain, steps, chain.read(of.zero), out, label)


def _record_steps(
    plan: Plan,
    chain: Formula,
    steps: Number,
    zero: Number | None,
    out: View,
    label: str,
) -> None:
    element = element_of(out.dtype)
    assert element is not None
    chain.record(plan.recorder, quantised(chain, steps, zero, element), out, label)


def destination_of(plan: Plan, call: Call) -> View:
    """Where the result goes."""
    output = call.outputs[0]
    assert output is not None
    return plan.destination(output)


def check_parameters(*positions: int) -> Callable[[Call, Inputs, Results], None]:
    """What checks that scales and zero points at *positions* are single numbers."""

    def check(call: Call, inputs: Inputs, results: Results) -> None:
        for position in positions:
            value = inputs[position] if position < len(inputs) else None
            if value is not None and value.size != 1:
                raise NotCompiled(f"input {position} has shape {value.shape}", call)

    return check


# elements by themselves


def _record_add(plan: Plan, call: Call) -> None:
    """In ONNX Runtime's order: the zero points first, then b and then a."""
    scales, chain = _scales(plan, call, 1, 4, 6), Formula("f32")
    step = chain.read(scales[2].scale)
    ratios = [chain.step("Div", chain.read(each.scale), step) for each in scales[1::-1]]
    total = chain.read(scales[2].zero)
    for ratio, each in zip(ratios, scales[1::-1], strict=True):
        shift = chain.step("Mul", ratio, chain.read(each.zero))
        total = chain.step("Sub", total, shift)
    for ratio, position in zip(ratios, (3, 0), strict=True):
        value = chain.read_wide(codes_at(plan, call, position))
        total = chain.step("Add", chain.step("Mul", value, ratio), total)
    _record_steps(plan, chain, total, None, destination_of(plan, call), call.op_type)


def _record_mul(plan: Plan, call: Call) -> None:
    """The zero point of the result is added before that is rounded."""
    scales, chain = _scales(plan, call, 1, 4, 6), Formula("f32")
    factors = [
        _centered(chain, codes_at(plan, call, position), of)
        for position, of in ((0, scales[0]), (3, scales[1]))
    ]
    a, b, c = (chain.read(each.scale) for each in scales)
    factor = chain.step("Div", chain.step("Mul", a, b), c)
    steps = chain.step("Mul", chain.step("Mul", *factors), factor)
    steps = chain.step("Add", steps, chain.read(scales[2].zero))
    _record_steps(plan, chain, steps, None, destination_of(plan, call), call.op_type)


def _record_activation(plan: Plan, call: Call) -> None:
    (x, y), chain = _scales(plan, call, 1, 3), Formula("f32")
    value = _dequantized(chain, codes_at(plan, call, 0), x)
    if call.op_type == "QLinearSigmoid":
        value = chain.step("Sigmoid", value)
    else:
        slope = chain.number(float(call.attributes.get("alpha", 0.01)))
        below = chain.step("Less", value, chain.number(0.0), element="i1")
        value = chain.step("Where", below, chain.step("Mul", value, slope), value)
    _record_quantized(plan, chain, value, y, destination_of(plan, call), call.op_type)


def _record_where(plan: Plan, call: Call) -> None:
    (x, y, z), chain = _scales(plan, call, 2, 5, 7), Formula("f32")
    chosen = chain.read(codes_at(plan, call, 0))
    values = [
        _dequantized(chain, codes_at(plan, call, position), of)
        for position, of in ((1, x), (4, y))
    ]
    value = chain.step("Where", chosen, *values)
    _record_quantized(plan, chain, value, z, destination_of(plan, call), call.op_type)


register(
    "com.microsoft.QLinearAdd",
    Operation(_record_add, _accepts, check_parameters(1, 2, 4, 5, 6, 7)),
)
register(
    "com.microsoft.QLinearMul",
    Operation(_record_mul, _accepts, check_parameters(1, 2, 4, 5, 6, 7)),
)
register(
    "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid",
    Operation(_record_activation, _accepts, check_parameters(1, 2, 3, 4)),
)
register(
    "com.microsoft.QLinearWhere",
    Operation(_record_where, _accepts, check_parameters(2, 3, 5, 6, 7, 8)),
)


# parts


def _check_concat(call: Call, inputs: Inputs, results: Results) -> None:
    if len(inputs) < 5 or len(inputs) % 3 != 2 or None in inputs:
        raise NotCompiled(f"QLinearConcat of {len(inputs)} inputs", call)
    shape = given(results).shape
    axis = normal_axis(int(call.attributes["axis"]), len(shape))
    total = 0
    for position in range(2, len(inputs), 3):
        part = given(inputs, position).shape
        if (*part[:axis], 0, *part[axis + 1 :]) != (
            *shape[:axis],
            0,
            *shape[axis + 1 :],
        ):
            raise NotCompiled(f"a part of {part} in {shape}", call)
        total += part[axis]
    if total != shape[axis]:
        raise NotCompiled(f"parts of {total} along {axis} in {shape}", call)
    parameters = [n for n in range(len(inputs)) if n < 2 or n % 3 != 2]
    check_parameters(*parameters)(call, inputs, results)


def _requantising(
    plan: Plan, call: Call, first: int, dtype: np.dtype[Any], made: np.dtype[Any]
) -> View | None:
    """What codes of a part are as those of the result, if that is known, and looked up
    faster than computed."""
    recorder = plan.recorder
    if not BYTES.issubset(recorder.target.elements("MappedCodes")):
        return None
    if not recorder.target.tables.maps_quickly(recorder):
        return None
    names = [call.input(position) for position in (first + 1, first + 2, 0, 1)]
    contents = [np.zeros(()) if n is None else plan.known(n).content for n in names]
    known = [np.float32(each.reshape(())) for each in contents if each is not None]
    if len(known) < len(contents):
        return None
    scale, zero, step, shift = known
    limits, codes = np.iinfo(made), np.arange(256, dtype=np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        steps = np.rint((codes.astype(np.float32) - zero) * scale / step) + shift
        # NaN becomes some code, as in a chain
        bounded = np.clip(np.nan_to_num(steps), limits.min, limits.max)
    return recorder.constant(bounded.astype(made).view(np.uint8))


def _record_concat(plan: Plan, call: Call) -> None:
    firsts = range(2, len(call.inputs), 3)
    y, *scales = _scales(plan, call, 0, *(first + 1 for first in firsts))
    out, start = destination_of(plan, call), 0
    axis = normal_axis(int(call.attributes["axis"]), len(out.shape))
    for first, of in zip(firsts, scales, strict=True):
        codes = codes_at(plan, call, first)
        starts = [0] * len(codes.shape)
        starts[axis], start = start, start + codes.shape[axis]
        if not codes.size:
            continue
        target = out.slice(starts, codes.shape)
        table = _requantising(plan, call, first, codes.dtype, out.dtype)
        if table is not None:
            tables = plan.recorder.target.tables
            tables.record_mapped(plan.recorder, codes, table, target, call.op_type)
            continue
        chain = Formula("f32")
        value = _dequantized(chain, codes, of)
        _record_quantized(plan, chain, value, y, target, call.op_type)


register(
    "com.microsoft.QLinearConcat", Operation(_record_concat, _accepts, _check_concat)
)


# axes


def _check_pool(call: Call, inputs: Inputs, results: Results) -> None:
    x = given(inputs).shape
    if len(x) < 3 or 0 in x:
        raise NotCompiled(f"QLinearGlobalAveragePool of {x}", call)
    count = math.prod(x[axis] for axis in _axes_of_pool(call, len(x)))
    if 255 * count >= 1 << 31:
        raise NotCompiled(f"int32 does not hold sums of {count} codes", call)
    check_parameters(1, 2, 3, 4)(call, inputs, results)


def _axes_of_pool(call: Call, rank: int) -> tuple[int, ...]:
    """The axes of an image that QLinearGlobalAveragePool is over."""
    last = bool(call.attributes.get("channels_last", 0))
    return tuple(range(1, rank - 1)) if last else tuple(range(2, rank))


def _record_pool(plan: Plan, call: Call) -> None:
    """The sum of the integers is exact, and scaled by one number."""
    x, y = _scales(plan, call, 1, 3)
    out, codes, recorder = (
        destination_of(plan, call),
        codes_at(plan, call, 0),
        plan.recorder,
    )
    axes = _axes_of_pool(call, len(codes.shape))
    wide, total = (
        recorder.ordered_like(each, each.shape, _I32) for each in (codes, out)
    )
    chain = Formula("i32")
    value, zero = (chain.cast(chain.read(each), "i32") for each in (codes, x.zero))
    chain.record(recorder, chain.step("Sub", value, zero), wide, call.op_type)
    recorder.target.reductions.record_reduce(recorder, "ReduceSum", wide, total, axes)
    chain = Formula("f32")
    count = float(math.prod(codes.shape[axis] for axis in axes))
    step = chain.step("Mul", chain.read(y.scale), chain.number(count))
    factor = chain.step("Div", chain.read(x.scale), step)
    steps = chain.step("Mul", chain.read_wide(total), factor)
    _record_steps(plan, chain, steps, chain.read(y.zero), out, call.op_type)


def _images(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes with the channels second; others have them last."""
    rank = len(shape)
    if call.attributes.get("channels_last", 0):
        return (0, rank - 1, *range(1, rank - 1))
    return tuple(range(rank))


def _placed(call: Call, shape: tuple[int, ...]) -> Windows:
    """The windows of a pool over what has its channels second.

    Raises:
        NotCompiled: there are none that kernels take.
    """
    from onnxplug_kernels.pool import pooling_windows

    names = "strides", "pads", "auto_pad", "ceil_mode"
    attributes = {n: call.attributes[n] for n in names if n in call.attributes}
    if len(shape) - 2 not in (1, 2, 3):
        raise NotCompiled(f"{call.op_type} of {shape}", call)
    try:
        kernel = call.attributes["kernel_shape"]
        return pooling_windows(shape[2:], kernel, **attributes)
    except ValueError as error:
        raise NotCompiled(str(error), call) from error


def _check_windows(call: Call, inputs: Inputs, results: Results) -> None:
    x, y = (
        tuple(each[axis] for axis in _images(call, each))
        for each in (given(inputs).shape, given(results).shape)
    )
    if y != (*x[:2], *_placed(call, x).count):
        raise NotCompiled(f"{call.op_type} of {x} gives {y}", call)
    check_parameters(1, 2, 3, 4)(call, inputs, results)


def _record_windows(plan: Plan, call: Call) -> None:
    """The zero point of the result is added before that is rounded."""
    x, y = _scales(plan, call, 1, 3)
    codes, out = codes_at(plan, call, 0), destination_of(plan, call)
    codes, out = (each.transpose(_images(call, each.shape)) for each in (codes, out))
    windows, recorder = _placed(call, codes.shape), plan.recorder
    wide, found = (
        recorder.ordered_like(each, each.shape, F32) for each in (codes, out)
    )
    chain = Formula("f32")
    chain.record(recorder, _dequantized(chain, codes, x), wide, call.op_type)
    pads = (*windows.begin, *windows.end)
    slides = slides_of(windows.kernel, windows.strides, windows.dilations, pads)
    # padding that counts does so beyond its end, too
    whole = bool(call.attributes.get("count_include_pad", 0))
    recorder.target.pools.record_pool(
        recorder, SUM if whole else MEAN, wide, found, slides, label=call.op_type
    )
    chain = Formula("f32")
    mean = chain.read(found)
    if whole:
        mean = chain.step("Div", mean, chain.number(float(math.prod(windows.kernel))))
    steps = chain.step("Div", mean, chain.read(y.scale))
    steps = chain.step("Add", steps, chain.read(y.zero))
    _record_steps(plan, chain, steps, None, out, call.op_type)


def _check_mean(call: Call, inputs: Inputs, results: Results) -> None:
    if 0 in given(inputs).shape:
        raise NotCompiled(f"a mean of {given(inputs).shape}", call)
    check_parameters(1, 2, 3, 4)(call, inputs, results)


def _record_mean(plan: Plan, call: Call) -> None:
    x, y = _scales(plan, call, 1, 3)
    codes, out, recorder = (
        codes_at(plan, call, 0),
        destination_of(plan, call),
        plan.recorder,
    )
    rank = len(codes.shape)
    axes = normal_axes(call.attributes.get("axes") or range(rank), rank)
    wide = recorder.temporary(F32, codes.shape)
    mean = recorder.temporary(F32, out.shape)
    chain = Formula("f32")
    chain.record(recorder, _dequantized(chain, codes, x), wide, call.op_type)
    recorder.target.reductions.record_reduce(
        recorder, "ReduceMean", wide, mean, tuple(sorted(axes))
    )
    chain = Formula("f32")
    value = chain.read(mean)
    _record_quantized(plan, chain, value, y, out, call.op_type)


def _record_softmax(plan: Plan, call: Call) -> None:
    """A whole number of the result's steps makes one."""
    x, y = _scales(plan, call, 1, 3)
    out, codes, recorder = (
        destination_of(plan, call),
        codes_at(plan, call, 0),
        plan.recorder,
    )
    if not out.size:
        return
    shape = codes.shape
    axis = normal_axis(int(call.attributes.get("axis", -1)), len(shape))
    rows, along = shape, axis
    if int(call.attributes.get("opset", 0)) < _ONE_AXIS_SINCE:
        rows, along = (math.prod(shape[:axis]), math.prod(shape[axis:])), 1
    matrix = (math.prod(rows[:-1]), rows[-1])
    target, family = out.reshape(matrix), recorder.target.coded_rows
    if family is not None and target is not None and along == len(rows) - 1:
        codes = as_shape(plan, codes, matrix)
        chain = Formula("f32")
        steps = _steps_of_one(plan, call, chain, chain.tile(), y)
        # the zero point, which all have, makes no difference
        family.record_between_codes(
            recorder,
            codes,
            x.scale,
            None,
            _record_rows,
            chain.epilogue([steps], [target]),
            label=call.op_type,
        )
        return
    chain = Formula("f32")
    scaled = chain.step("Mul", chain.read_wide(codes), chain.read(x.scale))
    values, found = (recorder.temporary(F32, shape) for _ in range(2))
    chain.record(recorder, scaled, values, call.op_type)
    recorder.target.rows.record_softmax(
        recorder,
        as_shape(plan, values, rows),
        as_shape(plan, found, rows),
        axis=along,
        label=call.op_type,
    )
    chain = Formula("f32")
    steps = _steps_of_one(plan, call, chain, chain.read(found), y)
    chain.record(recorder, steps, out, call.op_type)


def _record_rows(recorder: Recorder[Any], x: View, out: View) -> None:
    recorder.target.rows.record_softmax(recorder, x, out)


def _steps_of_one(
    plan: Plan, call: Call, chain: Formula, share: Number, y: _Scaled
) -> Number:
    """The codes of shares of one, of which a whole number of steps makes one."""
    scale, dtype = call.input(3), call.dtypes[0]
    known = None if scale is None else plan.known(scale).content
    if known is None:
        whole = chain.step("Floor", chain.step("Reciprocal", chain.read(y.scale)))
    else:  # a device's quotient may be off by its last place, and much is cut off then
        with np.errstate(all="ignore"):
            whole = chain.number(float(np.floor(np.float32(1) / known.reshape(()))))
    element = None if dtype is None else element_of(dtype)
    assert element is not None
    steps = chain.step("Mul", share, whole)
    codes: Number = quantised(chain, steps, chain.read(y.zero), element)
    return codes


register(
    "com.microsoft.QLinearGlobalAveragePool",
    Operation(_record_pool, _accepts, _check_pool),
)
register(
    "com.microsoft.QLinearAveragePool",
    Operation(_record_windows, _accepts, _check_windows),
)
register(
    "com.microsoft.QLinearReduceMean",
    Operation(_record_mean, _accepts, _check_mean),
)
register(
    "com.microsoft.QLinearSoftmax",
    Operation(_record_softmax, _accepts, check_parameters(1, 2, 3, 4)),
)
