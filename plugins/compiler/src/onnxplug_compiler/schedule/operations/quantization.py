"""Numbers as small integers, with a scale and a zero point: chains of casts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape, coded_products
from onnxplug_compiler.schedule.operations.coded import integer_product, zero_point
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

_LIMITS: Final = {
    "i2": (-2, 1),
    "u2": (0, 3),
    "i4": (-8, 7),
    "u4": (0, 15),
    "i8": (-128, 127),
    "u8": (0, 255),
    "i16": (-32768, 32767),
    "u16": (0, 65535),
}
"""What numbers are quantised to, of integers."""

_FLOATS: Final = frozenset(
    {"f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn"}
)
"""The same of floats."""


def accepts_codes(
    call: Call, dtypes: Dtypes, target: Support, more: Collection[str] = ()
) -> str | None:
    """Accepts codes that the target takes as elements of the operator, and floats.

    Args:
        more: elements that are taken as well.
    """
    codes = target.elements(call.op_type)
    if not codes:
        return f"{call.op_type} is not compiled"
    taken = NARROW_FLOATS.union(codes, more)
    for dtype in (*dtypes, *call.dtypes):
        if dtype is not None and element_of(dtype) not in taken:
            return f"{call.op_type} is not compiled for {dtype}"
    return None


def _accepts_quantize(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    result = call.dtypes[0]
    if result is not None and element_of(result) not in _LIMITS.keys() | _FLOATS:
        return f"QuantizeLinear is not compiled to {result}"
    if call.attributes.get("precision") not in (None, 0, 1):
        return "QuantizeLinear is compiled to divide in the scale's type or float32"
    scale = dtypes[1]
    if scale is not None and element_of(scale) not in NARROW_FLOATS:
        return f"QuantizeLinear is not compiled for a scale of {scale}"
    return accepts_codes(call, dtypes, target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, scale = given(inputs), given(inputs, 1)
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is not None and zero.shape != scale.shape and zero.size * scale.size != 1:
        raise NotCompiled(f"zero points of {zero.shape} for {scale.shape}", call)
    block = int(call.attributes.get("block_size", 0))
    if not block:
        if scale.size != 1 and scale.shape != (x.shape[_axis(call, x.shape)],):
            raise NotCompiled(f"scales of {scale.shape} for {x.shape}", call)
        return
    axis = _axis(call, x.shape)
    blocks = -(-x.shape[axis] // block) if block > 0 else -1
    if scale.shape != (*x.shape[:axis], blocks, *x.shape[axis + 1 :]):
        raise NotCompiled(f"scales of {scale.shape} for blocks of {block}", call)


def _axis(call: Call, shape: tuple[int, ...]) -> int:
    """The axis of scales; of a vector the one there is."""
    rank = len(shape)
    if rank < 2:
        return 0
    return normal_axis(int(call.attributes.get("axis", 1)), rank)


def _parts(plan: Plan, call: Call, whole: list[View]) -> list[tuple[list[View], ...]]:
    """Arrays of the input's shape with their scales and zero points, repeated; in two
    parts where the last block is shorter."""
    shape = whole[0].shape
    parameters = [plan.view(name) for name in call.inputs[1:3] if name is not None]
    block = int(call.attributes.get("block_size", 0))
    axis = _axis(call, shape)
    if not block:
        one = [
            as_shape(plan, each, ())
            if each.size == 1
            else as_shape(plan, each, (each.size, *[1] * (len(shape) - 1 - axis)))
            for each in parameters
        ]
        return [(whole, [each.broadcast_to(shape) for each in one])]
    found: list[tuple[list[View], ...]] = []
    full, rest = divmod(shape[axis], block)
    for first, count, size in ((0, full, block), (full, 1, rest)):
        if not count * size:
            continue
        starts = [0] * len(shape)
        sizes = [*shape]
        starts[axis], sizes[axis] = first * block, count * size
        apart = (*shape[:axis], count, size, *shape[axis + 1 :])
        views = [as_shape_in_place(each.slice(starts, sizes), apart) for each in whole]
        starts[axis], sizes[axis] = first, count
        scales = [each.slice(starts, sizes) for each in parameters]
        lined = (*shape[:axis], count, 1, *shape[axis + 1 :])
        repeated = [as_shape(plan, each, lined).broadcast_to(apart) for each in scales]
        found.append((views, repeated))
    return found


def as_shape_in_place(view: View, shape: tuple[int, ...]) -> View:
    """*view* as an array of another shape, without a copy.

    Raises:
        NotCompiled: its axes do not split so.
    """
    found = view.reshape(shape)
    if found is None:
        raise NotCompiled(f"the axes of {view.shape} do not become {shape}")
    return found


def _record_dequantize(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    both = [plan.view(source), plan.destination(output)]
    for (x, out), parameters in _parts(plan, call, both):
        if not out.size:
            continue
        chain = Formula("f32")
        value = chain.read_wide(x)
        scale = chain.read_wide(parameters[0])
        if len(parameters) > 1:
            value = chain.step("Sub", value, chain.read_wide(parameters[1]))
        chain.record(plan.recorder, chain.step("Mul", value, scale), out, call.op_type)


def quantised(
    chain: Formula,
    steps: Number,
    zero: Number | None,
    element: str,
    *,
    saturates: bool = True,
) -> Number:
    """*steps*, in float32, rounded, with a zero point added, and saturated; of floats
    only where *saturates*, and rounded when the zero point is added."""
    if element in _FLOATS:
        if zero is not None:
            steps = chain.step("Add", steps, zero)
        return chain.cast(steps, element, saturate=int(saturates))
    value = chain.step("Round", steps)
    if zero is not None:
        value = chain.step("Add", value, zero)
    low, high = (chain.number(float(limit)) for limit in _LIMITS[element])
    value = chain.step("Min", chain.step("Max", value, low), high)
    return chain.cast(value, element)


def _record_quantize(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    both = [plan.view(source), plan.destination(output)]
    for (x, out), parameters in _parts(plan, call, both):
        if not out.size:
            continue
        chain, narrow = Formula("f32"), element_of(parameters[0].dtype)
        assert narrow is not None
        if call.attributes.get("precision"):
            narrow = "f32"
        # in the precision of the scale
        x_there, scale = (
            chain.cast(chain.cast(chain.read(each), narrow), "f32")
            for each in (x, parameters[0])
        )
        steps = chain.step("Div", x_there, scale)
        if narrow != "f32":
            steps = chain.cast(chain.cast(steps, narrow), "f32")
        zero = chain.read_wide(parameters[1]) if len(parameters) > 1 else None
        element = element_of(out.dtype)
        assert element is not None
        saturates = bool(call.attributes.get("saturate", 1))
        found = quantised(chain, steps, zero, element, saturates=saturates)
        chain.record(plan.recorder, found, out, call.op_type)


register(
    "DequantizeLinear com.microsoft.DequantizeLinear",
    Operation(_record_dequantize, accepts_codes, _check),
)
register(
    "QuantizeLinear com.microsoft.QuantizeLinear",
    Operation(_record_quantize, _accepts_quantize, _check),
)


# with the range of the numbers themselves


def _check_dynamic(call: Call, inputs: Inputs, results: Results) -> None:
    if not given(inputs).size:
        raise NotCompiled("the range of no elements", call)


def _record_dynamic(plan: Plan, call: Call) -> None:
    source = call.inputs[0]
    assert source is not None
    x, recorder = plan.view(source), plan.recorder
    u8 = np.dtype(np.uint8)
    forms: list[tuple[np.dtype[Any], tuple[int, ...]]] = [
        *((u8, x.shape), (F32, ()), (u8, ()))
    ]
    targets = []
    for position, (dtype, shape) in enumerate(forms):
        name = call.output(position)
        targets.append(
            recorder.temporary(dtype, shape) if name is None else plan.destination(name)
        )
    record_range(plan, x, targets, call.op_type)


def record_range(plan: Plan, x: View, targets: Sequence[View], label: str) -> None:
    """Quantise *x* to uint8 as its range and zero need it.

    Args:
        targets: uint8 of x's shape, float32 and uint8 without axes: the codes, the
            scale and the zero point.
    """
    recorder = plan.recorder
    ends = []
    for kind in ("ReduceMin", "ReduceMax"):
        end = recorder.temporary(x.dtype, ())
        axes = tuple(range(len(x.shape)))
        recorder.target.reductions.record_reduce(recorder, kind, x, end, axes)
        ends.append(end)
    chain = Formula("f32")
    nothing = chain.number(0.0)
    low = chain.step("Min", chain.read_wide(ends[0]), nothing)
    high = chain.step("Max", chain.read_wide(ends[1]), nothing)
    span = chain.step("Sub", high, low)
    is_nothing = chain.step("Equal", span, nothing, element="i1")
    step = chain.step("Div", span, chain.number(255.0))
    step = chain.step("Where", is_nothing, chain.number(1.0), step)
    middle = chain.step("Div", chain.step("Neg", low), step)
    zero = quantised(chain, middle, None, "u8")
    chain.record_all(recorder, [step, zero], targets[1:], label)
    chain = Formula("f32")
    value = chain.read_wide(x)
    scale, zero = (chain.read_wide(each.broadcast_to(x.shape)) for each in targets[1:])
    found = quantised(chain, chain.step("Div", value, scale), zero, "u8")
    chain.record(recorder, found, targets[0], label)


register(
    "DynamicQuantizeLinear",
    Operation(_record_dynamic, accepts_codes, _check_dynamic, any_output=True),
)


# products


def _accepts_product(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    for dtype in (*(dtypes[n] for n in (0, 2, 3, 5, 7) if n < len(dtypes)),):
        if dtype is not None and element_of(dtype) not in ("i8", "u8"):
            kind = element_of(dtype)
            if kind not in NARROW_FLOATS:
                return f"{call.op_type} is not compiled for {dtype}"
    if call.dtypes[0] is not None and element_of(call.dtypes[0]) not in ("i8", "u8"):
        return f"{call.op_type} is not compiled to {call.dtypes[0]}"
    return accepts_codes(call, dtypes, target)


def _check_product(call: Call, inputs: Inputs, results: Results) -> None:
    a, b, y = given(inputs).shape, given(inputs, 3).shape, given(results).shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2] or y[-2:] != (a[-2], b[-1]):
        raise NotCompiled(f"{a} and {b} do not multiply to {y}", call)


def _record_product(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    shape = given(plan.results(call)).shape
    names = [call.inputs[n] for n in (0, 3, 2, 5)]
    product = integer_product(plan, names, shape)
    out = plan.destination(output)
    chain = Formula("f32")
    total = chain.tile_of("i32")
    scales = []
    for position, is_row in ((1, True), (4, False), (6, True)):
        scale = zero_point(plan, call.inputs[position], shape, rows=is_row)
        assert scale is not None
        scales.append(chain.read_wide(as_shape(plan, scale, product.folded)))
    factor = chain.step("Div", chain.step("Mul", scales[0], scales[1]), scales[2])
    zero = zero_point(plan, call.inputs[7], shape, rows=True)
    assert zero is not None
    added = chain.read_wide(as_shape(plan, zero, product.folded))
    element = element_of(out.dtype)
    assert element is not None
    steps = chain.step("Mul", chain.cast(total, "f32"), factor)
    found = quantised(chain, steps, added, element)
    after: Epilogue = chain.epilogue([found], [as_shape_in_place(out, product.folded)])
    tile = plan.recorder.temporary(np.dtype(np.int32), product.folded)
    a, b = product.a, product.b
    coded_products(plan.recorder).record_coded(
        plan.recorder, a, b, tile, epilogue=after, label=call.op_type
    )


register("QLinearMatMul", Operation(_record_product, _accepts_product, _check_product))
