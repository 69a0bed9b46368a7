"""ONNX Runtime's products of matrices of codes, whose result is floats or codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled, broadcasts_to
from onnxplug_compiler.frontend.quantization import mixed_types
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import quantised
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape, coded_products
from onnxplug_compiler.schedule.operations.coded import (
    product_of_views,
    repeated,
    zero_of_weights,
)
from onnxplug_compiler.schedule.operations.linear_quantization import (
    BYTES,
    check_parameters,
    codes_at,
    destination_of,
    full_name,
)
from onnxplug_compiler.schedule.operations.quantization import (
    as_shape_in_place,
    record_range,
)
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

_I32 = np.dtype(np.int32)
_ZERO_POINTS: Final = {
    "DynamicQuantizeMatMul": [(1, 3)],
    "MatMulIntegerToFloat": [(0, 4), (1, 5)],
    "QGemm": [(0, 2), (3, 5)],
}
"""Positions of codes, and of their zero point."""


def _check_product(call: Call, inputs: Inputs, results: Results) -> None:
    """Of DynamicQuantizeMatMul and MatMulIntegerToFloat."""
    a, b, y = given(inputs).shape, given(inputs, 1).shape, given(results).shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2] or y[-2:] != (a[-2], b[-1]):
        raise NotCompiled(f"{a} and {b} do not multiply to {y}", call)
    if 0 in (*a, *b):
        raise NotCompiled(f"{a} and {b} have no elements", call)
    of_columns = [2, 3] if call.op_type == "DynamicQuantizeMatMul" else [3, 5]
    _check_columns(call, inputs, of_columns, b[-1])
    if call.op_type == "MatMulIntegerToFloat":
        check_parameters(2, 4)(call, inputs, results)
    bias = inputs[of_columns[1] + 1] if len(inputs) > of_columns[1] + 1 else None
    if bias is not None and bias.shape != b[-1:]:
        raise NotCompiled(f"a bias of {bias.shape} for {b[-1]} columns", call)


def _check_columns(
    call: Call, inputs: Inputs, positions: Sequence[int], columns: int
) -> None:
    """Check that there is one number, or one for each column."""
    for position in positions:
        value = inputs[position] if position < len(inputs) else None
        if value is not None and value.size != 1 and value.shape != (columns,):
            raise NotCompiled(f"input {position} has shape {value.shape}", call)


def _factor(
    plan: Plan, above: Sequence[View], below: View | None, alpha: float, label: str
) -> View:
    """What sums are multiplied with: one number, or one for each column."""
    shape = max((each.shape for each in above), key=math.prod)
    if math.prod(shape) == 1:
        shape = ()
    found, chain = plan.recorder.temporary(F32, shape), Formula("f32")
    value = chain.number(alpha)
    for each in above:
        one = as_shape(plan, each, ()) if each.size == 1 else each
        value = chain.step("Mul", value, chain.read_wide(one))
    if below is not None:
        value = chain.step("Div", value, chain.read_wide(as_shape(plan, below, ())))
    chain.record(plan.recorder, value, found, label)
    return found


class _Sums(NamedTuple):
    """A product of codes, and what becomes of its sums.

    Attributes:
        a, b: the factors.
        a_zero: the zero point of the first.
        b_zero: the name of those of the second.
        addend: int32, is added to the sums, and repeated for them.
        factor: float32, of which sums are multiples.
        bias: is added to these.
        zero: of the result, which is rounded to codes.
    """

    a: View
    b: View
    a_zero: View | None
    b_zero: str | None
    factor: View
    addend: View | None = None
    bias: View | None = None
    zero: View | None = None


def _record_sums(plan: Plan, call: Call, sums: _Sums) -> None:
    out, recorder = destination_of(plan, call), plan.recorder
    offset, of_columns = zero_of_weights(plan, sums.b_zero)
    zeros = tuple(
        None if zero is None else repeated(plan, zero, view.shape, rows=False)
        for view, zero in ((sums.a, sums.a_zero), (sums.b, of_columns))
    )
    factors = sums.a, sums.b
    product = product_of_views(plan, factors, (zeros[0], zeros[1]), out.shape, offset)
    chain = Formula("f32")

    def read(view: View) -> Number:
        """A view that is repeated for all sums."""
        whole = view.broadcast_to(out.shape)
        return chain.read(as_shape(plan, whole, product.folded))

    total = chain.tile_of("i32")
    if sums.addend is not None:
        total = chain.step("Add", total, read(sums.addend), element="i32")
    value = chain.step("Mul", chain.cast(total, "f32"), read(sums.factor))
    if sums.bias is not None:
        value = chain.step("Add", value, chain.cast(read(sums.bias), "f32"))
    element = element_of(out.dtype)
    assert element is not None
    if element in BYTES:
        zero = None
        if sums.zero is not None:
            zero = chain.cast(read(as_shape(plan, sums.zero, ())), "f32")
        value = quantised(chain, value, zero, element)
    after = chain.epilogue(
        [chain.cast(value, element)], [as_shape_in_place(out, product.folded)]
    )
    tile = recorder.temporary(_I32, product.folded)
    coded_products(recorder).record_coded(
        recorder, product.a, product.b, tile, epilogue=after, label=call.op_type
    )


def _optional(plan: Plan, call: Call, position: int) -> View | None:
    name = call.input(position)
    return None if name is None else plan.view(name)


def _record_to_float(plan: Plan, call: Call) -> None:
    a, b, *scales = (codes_at(plan, call, position) for position in range(4))
    _record_sums(
        plan,
        call,
        _Sums(
            a,
            b,
            _optional(plan, call, 4),
            call.input(5),
            _factor(plan, scales, None, 1.0, call.op_type),
            bias=_optional(plan, call, 6),
        ),
    )


def _record_dynamic(plan: Plan, call: Call) -> None:
    """Of a factor that is quantised as its range needs it."""
    a, b, b_scale = (codes_at(plan, call, position) for position in range(3))
    recorder, u8 = plan.recorder, np.dtype(np.uint8)
    codes, zero = recorder.temporary(u8, a.shape), recorder.temporary(u8, ())
    scale = recorder.temporary(F32, ())
    record_range(recorder, a, [codes, scale, zero], call.op_type)
    _record_sums(
        plan,
        call,
        _Sums(
            codes,
            b,
            zero,
            call.input(3),
            _factor(plan, [scale, b_scale], None, 1.0, call.op_type),
            bias=_optional(plan, call, 4),
        ),
    )


def _check_gemm(call: Call, inputs: Inputs, results: Results) -> None:
    a, b, y = given(inputs).shape, given(inputs, 3).shape, given(results).shape
    if len(a) != 2 or len(b) != 2 or 0 in (*a, *b):
        raise NotCompiled(f"QGemm of {a} and {b}", call)
    turned = [bool(call.attributes.get(f"trans{name}", 0)) for name in "AB"]
    if a[not turned[0]] != b[turned[1]] or y != (a[turned[0]], b[not turned[1]]):
        raise NotCompiled(f"{a} and {b} do not multiply to {y}", call)
    if (call.input(7) is None) != (call.input(8) is None):
        raise NotCompiled("QGemm has one of y_scale and y_zero_point", call)
    _check_columns(call, inputs, (4, 5), y[1])
    check_parameters(1, 2, 7, 8)(call, inputs, results)
    c = inputs[6] if len(inputs) > 6 else None
    if c is not None and not broadcasts_to(c.shape, y):
        raise NotCompiled(f"{c.shape} does not broadcast to {y}", call)


def _record_gemm(plan: Plan, call: Call) -> None:
    a, b = codes_at(plan, call, 0), codes_at(plan, call, 3)
    a, b = (
        view.transpose((1, 0)) if call.attributes.get(f"trans{name}", 0) else view
        for view, name in ((a, "A"), (b, "B"))
    )
    scales = [codes_at(plan, call, position) for position in (1, 4)]
    alpha = float(call.attributes.get("alpha", 1.0))
    _record_sums(
        plan,
        call,
        _Sums(
            a,
            b,
            _optional(plan, call, 2),
            call.input(5),
            _factor(plan, scales, _optional(plan, call, 7), alpha, call.op_type),
            addend=_optional(plan, call, 6),
            zero=_optional(plan, call, 8),
        ),
    )


def _accepts_product(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Accepts codes of a byte as factors, but for the first of a dynamic one."""
    is_dynamic = call.op_type == "DynamicQuantizeMatMul"
    second = 3 if call.op_type == "QGemm" else 1
    factors = (dtypes[second],) if is_dynamic else (dtypes[0], dtypes[second])
    for dtype in factors:
        if dtype is not None and element_of(dtype) not in BYTES:
            return f"{full_name(call)} is not compiled for {dtype}"
    pairs = _ZERO_POINTS[call.op_type]
    if reason := mixed_types(call, dtypes, pairs):
        return reason
    others = [d for d in (*dtypes, *call.dtypes) if d is not None]
    if any(element_of(d) not in BYTES | NARROW_FLOATS | {"i32"} for d in others):
        return f"{full_name(call)} is not compiled for {', '.join(map(str, others))}"
    return (
        None
        if target.elements(full_name(call))
        else f"{full_name(call)} is not compiled"
    )


register(
    "com.microsoft.MatMulIntegerToFloat",
    Operation(_record_to_float, _accepts_product, _check_product),
)
register(
    "com.microsoft.DynamicQuantizeMatMul",
    Operation(_record_dynamic, _accepts_product, _check_product),
)
register("com.microsoft.QGemm", Operation(_record_gemm, _accepts_product, _check_gemm))
