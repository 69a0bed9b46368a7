"""Products and convolutions of numbers that both are codes: sums of integers, scaled.

What patterns make; see :mod:`~...frontend.patterns.quantised`.  Sums are exact, so a
result differs from that of the numbers, which are rounded before they are summed, by
the rounding of its scale alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import MAKERS, CodedProduct, as_shape
from onnxplug_compiler.schedule.coded_convolutions import (
    CONVOLUTIONS,
    CodedConvolution,
)
from onnxplug_compiler.schedule.elementwise import Finish
from onnxplug_compiler.schedule.operations.coded import (
    product_of_views,
    repeated,
    zero_of_weights,
)
from onnxplug_compiler.schedule.operations.convolution import per_channel
from onnxplug_compiler.schedule.operations.integer_convolution import integers
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Operation,
    Plan,
    register,
)


def _name(call: Call, position: int) -> str:
    name = call.inputs[position]
    assert name is not None
    return name


def _scale(plan: Plan, names: Sequence[str], label: str) -> View:
    """What sums are multiplied with: one number, or a vector; the product of both."""
    contents = [plan.known(name).content for name in names]
    known = [each for each in contents if each is not None]
    shape = max((plan.known(name).shape for name in names), key=math.prod)
    if math.prod(shape) == 1:
        shape = ()
    if len(known) == len(names):
        with np.errstate(all="ignore"):
            one, other = (np.asarray(each, np.float32).reshape(-1) for each in known)
            return plan.recorder.constant((one * other).reshape(shape))
    found, chain = plan.recorder.temporary(F32, shape), Formula("f32")
    views = [as_shape(plan, plan.view(name), ()) if plan.known(name).size == 1
             else plan.view(name) for name in names]  # fmt: skip
    value = chain.step("Mul", *map(chain.read_wide, views))
    chain.record(plan.recorder, value, found, label)
    return found


def _product(plan: Plan, call: Call) -> CodedProduct:
    output = call.outputs[0]
    assert output is not None
    attributes = call.attributes
    a, b = (plan.view(_name(call, position)) for position in (0, 3))
    a, b = (
        view.transpose((1, 0)) if attributes[turn] else view
        for view, turn in ((a, "transA"), (b, "transB"))
    )
    zero = call.input(2)
    if zero is not None and zero_of_weights(plan, zero) == (0, None):
        zero = None
    offset, of_columns = zero_of_weights(plan, call.input(5))
    zeros = (
        None if zero is None else repeated(plan, plan.view(zero), a.shape, rows=False),
        None if of_columns is None else repeated(plan, of_columns, b.shape, rows=False),
    )
    product = product_of_views(plan, (a, b), zeros, plan.known(output).shape, offset)
    return product._replace(
        finish=Finish(
            sums="i32",
            scale=_scale(plan, [_name(call, 1), _name(call, 4)], call.op_type),
            alpha=float(attributes["alpha"]),
            addend=call.input(6),
            beta=float(attributes["beta"]),
        )
    )


def _convolution(plan: Plan, call: Call) -> CodedConvolution:
    made = integers(plan, call, (0, 3, 2, 5))
    scale = _scale(plan, [_name(call, 1), _name(call, 4)], call.op_type)
    rank, bias = len(made.codes.shape) - 2, call.input(6)
    return made._replace(
        finish=Finish(
            sums="i32",
            scale=per_channel(scale, rank) if scale.shape else scale,
            addend=None if bias is None else per_channel(plan.view(bias), rank),
        )
    )


def _made_by_pattern(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _record_with_chain(plan: Plan, call: Call) -> None:
    raise AssertionError("products are recorded with their chains")


MAKERS["QuantizedMatMul"] = _product
CONVOLUTIONS["QuantizedConv"] = _convolution
for _op_type in ("QuantizedMatMul", "QuantizedConv"):
    register(_op_type, Operation(_record_with_chain, _made_by_pattern))
