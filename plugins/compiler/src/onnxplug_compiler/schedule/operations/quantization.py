"""Numbers as small integers, with a scale and a zero point: chains of casts.

Those that are no steps of a chain have scales for blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.frontend.quantization import (
    accepts_codes,
    accepts_scaled,
    axis_of_scales,
    mixed_types,
)
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import dequantised, in_steps, quantised
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Support, Target
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


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    x, scale = given(inputs), given(inputs, 1)
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is not None and zero.shape != scale.shape and zero.size * scale.size != 1:
        raise NotCompiled(f"zero points of {zero.shape} for {scale.shape}", call)
    block = int(call.attributes.get("block_size", 0))
    if not block:
        if scale.size != 1 and scale.shape != (
            x.shape[axis_of_scales(call.attributes, x.shape)],
        ):
            raise NotCompiled(f"scales of {scale.shape} for {x.shape}", call)
        return
    axis = axis_of_scales(call.attributes, x.shape)
    blocks = -(-x.shape[axis] // block) if block > 0 else -1
    if scale.shape != (*x.shape[:axis], blocks, *x.shape[axis + 1 :]):
        raise NotCompiled(f"scales of {scale.shape} for blocks of {block}", call)


def _parts(plan: Plan, call: Call, whole: list[View]) -> list[tuple[list[View], ...]]:
    """Arrays of the input's shape with their scales and zero points, repeated in
    blocks; in two parts where the last block is shorter."""
    shape = whole[0].shape
    parameters = [plan.view(name) for name in call.inputs[1:3] if name is not None]
    block, axis = (
        int(call.attributes["block_size"]),
        axis_of_scales(call.attributes, shape),
    )
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
        value, scale = (chain.read_wide(each) for each in (x, parameters[0]))
        zero = chain.read_wide(parameters[1]) if len(parameters) > 1 else None
        value = dequantised(chain, value, scale, zero)
        chain.record(plan.recorder, value, out, call.op_type)


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
        x_there, scale = (chain.read(each) for each in (x, parameters[0]))
        steps = in_steps(chain, x_there, scale, narrow)
        zero = chain.read_wide(parameters[1]) if len(parameters) > 1 else None
        element = element_of(out.dtype)
        assert element is not None
        saturates = bool(call.attributes.get("saturate", 1))
        found = quantised(chain, steps, zero, element, saturates=saturates)
        chain.record(plan.recorder, found, out, call.op_type)


register(
    "DequantizeLinear com.microsoft.DequantizeLinear",
    Operation(_record_dequantize, accepts_scaled, _check),
)
register(
    "QuantizeLinear com.microsoft.QuantizeLinear",
    Operation(_record_quantize, accepts_scaled, _check),
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
    record_range(recorder, x, targets, call.op_type)


def record_range(
    recorder: Recorder[Target], x: View, targets: Sequence[View], label: str
) -> None:
    """Quantise *x* to uint8 as its range and zero need it.

    Args:
        targets: uint8 of x's shape, float32 and uint8 without axes: the codes, the
            scale and the zero point.
    """
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
    if reason := mixed_types(call, dtypes, [(0, 2), (3, 5)]):
        return reason
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
