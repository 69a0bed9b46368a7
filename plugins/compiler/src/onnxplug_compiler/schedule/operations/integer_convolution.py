"""Convolutions of small integers."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.frontend.quantization import accepts_codes, mixed_types
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import quantised
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape
from onnxplug_compiler.schedule.coded_convolutions import (
    CONVOLUTIONS,
    CodedConvolution,
    as_conv,
    record_parts,
)
from onnxplug_compiler.schedule.elementwise import Finish
from onnxplug_compiler.schedule.operations.coded import zero_of_weights
from onnxplug_compiler.schedule.operations.convolution import (
    check_convolution,
    per_channel,
)
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_I16: Final = np.dtype(np.int16)
_BYTES: Final = frozenset({"i8", "u8"})

_FILLED: Final[weakref.WeakValueDictionary[Any, np.ndarray[Any, Any]]] = (
    weakref.WeakValueDictionary()
)
"""Filters with more channels, by shape and content; who packs them keeps them."""


def _of_bytes(dtypes: Dtypes, positions: Sequence[int]) -> bool:
    found = [dtypes[n] for n in positions if n < len(dtypes)]
    return all(each is None or element_of(each) in _BYTES for each in found)


def spread(plan: Plan, view: View, x: View, *, rows: bool) -> View:
    """A zero point or scale, repeated to the shape of *x*.

    Args:
        rows: a vector has one for each place of the first axis.
    """
    if view.size == 1:
        return as_shape(plan, view, ()).broadcast_to(x.shape)
    if not rows or view.shape != x.shape[:1]:
        raise NotCompiled(f"zero points of {view.shape} for {x.shape}")
    return as_shape(plan, view, (view.size, *[1] * (len(x.shape) - 1))).broadcast_to(
        x.shape
    )


def integers(plan: Plan, call: Call, positions: Sequence[int]) -> CodedConvolution:
    """The convolution of integers that *call* computes.

    Args:
        positions: of the input, the weights, and their zero points among the inputs of
            *call*.
    """
    x, w, x_zero, w_zero = map(call.input, positions)
    assert x is not None and w is not None
    codes, (offset, of_filters) = plan.view(w), zero_of_weights(plan, w_zero)
    whole = _in_fours(plan, call, w, w_zero)
    if of_filters is not None:
        of_filters = spread(plan, of_filters, codes, rows=True)
    known, zero = zero_of_weights(plan, x_zero)
    of_all = None if zero is None else Codes(as_shape(plan, zero, ()))
    image = Factor(Codes(plan.view(x)), of_all, known)
    conv = as_conv(call, *positions[:2])
    return CodedConvolution(conv, image, codes, of_filters, offset, whole=whole)


def _in_fours(plan: Plan, call: Call, w: str, w_zero: str | None) -> View | None:
    """Known filters with channels of zeros behind them, to a multiple of four."""
    channels = plan.known(w).shape[1]
    more = -channels % 4
    if int(call.attributes["group"]) > 1 or not 0 < more < channels:
        return None
    codes = plan.known(w).content
    zero = np.zeros((), np.int8) if w_zero is None else plan.known(w_zero).content
    if codes is None or zero is None:
        return None
    shape = (codes.shape[0], more, *codes.shape[2:])
    if zero.size > 1 and zero.shape != codes.shape[:1]:
        return None
    zeros = zero.reshape((-1, *[1] * (codes.ndim - 1))).astype(codes.dtype)
    filled = np.concatenate([codes, np.broadcast_to(zeros, shape)], axis=1)
    # a plan that is made anew, as a packed form was refused, finds the same array
    key = str(filled.shape), hashlib.sha256(filled.tobytes()).digest()
    return plan.recorder.constant(_FILLED.setdefault(key, filled))


def _accepts_integer(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if not _of_bytes(dtypes, (0, 1, 2, 3)):
        return f"ConvInteger is not compiled for {', '.join(map(str, dtypes))}"
    if reason := mixed_types(call, dtypes, [(0, 2), (1, 3)]):
        return reason
    return accepts_codes(call, dtypes, target, more=frozenset({"i32"}))


def _check_integer(call: Call, inputs: Inputs, results: Results) -> None:
    check_convolution(as_conv(call, 0, 1), inputs[:2], results[:1])


def _integer(plan: Plan, call: Call) -> CodedConvolution:
    return integers(plan, call, (0, 1, 2, 3))


def _record_with_chain(plan: Plan, call: Call) -> None:
    raise AssertionError("convolutions are recorded with their chains")


CONVOLUTIONS["ConvInteger"] = _integer
register("ConvInteger", Operation(_record_with_chain, _accepts_integer, _check_integer))


def _accepts_linear(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if not _of_bytes([*dtypes, call.dtypes[0]], (0, 2, 3, 5, 7, len(dtypes))):
        return f"QLinearConv is not compiled for {', '.join(map(str, dtypes))}"
    if reason := mixed_types(call, dtypes, [(0, 2), (3, 5)]):
        return reason
    return accepts_codes(call, dtypes, target, more=frozenset({"i32"}))


def _check_linear(call: Call, inputs: Inputs, results: Results) -> None:
    both = given(inputs), given(inputs, 3)
    check_convolution(as_conv(call, 0, 3), both, results[:1])
    bias = inputs[8] if len(inputs) > 8 else None
    if bias is not None and bias.shape != both[1].shape[:1]:
        raise NotCompiled(f"{bias.shape} is none for {both[1].shape[0]} filters", call)


def _record_linear(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    names = call.inputs
    out = plan.destination(output)
    chain = Formula("f32")
    total = chain.tile_of("i32")

    def read(position: int, element: str = "f32") -> Number:
        """One number for each channel, or for all."""
        name = names[position]
        assert name is not None
        view = plan.view(name)
        axes = [1] * (len(out.shape) - 2) if view.size != 1 else []
        shape = (view.size, *axes) if view.size != 1 else ()
        spread = as_shape(plan, view, shape).broadcast_to(out.shape)
        return chain.cast(chain.read(spread), element)

    if call.input(8) is not None:
        total = chain.step("Add", total, read(8, "i32"), element="i32")
    factor = chain.step("Div", chain.step("Mul", read(1), read(4)), read(6))
    steps = chain.step("Mul", chain.cast(total, "f32"), factor)
    element = element_of(out.dtype)
    assert element is not None
    found = quantised(chain, steps, read(7), element)
    made = integers(plan, call, (0, 3, 2, 5))
    record_parts(plan, made, chain.epilogue([found], [out]), call.op_type)


register("QLinearConv", Operation(_record_linear, _accepts_linear, _check_linear))


# what a pattern made: weights are codes


def _check_dequantized(call: Call, inputs: Inputs, results: Results) -> None:
    codes, scale = given(inputs, 1), given(inputs, 2)
    zero, bias = inputs[3], inputs[4]
    check_convolution(as_conv(call, 0, 1), inputs[:2], results[:1])
    if zero is not None and zero.shape != scale.shape and zero.size * scale.size != 1:
        raise NotCompiled(f"zero points of {zero.shape} for {scale.shape}", call)
    if bias is not None and bias.shape != codes.shape[:1]:
        raise NotCompiled(f"{bias.shape} is none for {codes.shape[0]} filters", call)


def _made_by_pattern(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _dequantized(plan: Plan, call: Call) -> CodedConvolution:
    x_name, w_name, scale, zero, bias = call.inputs[:5]
    assert x_name is not None and w_name is not None and scale is not None
    x, codes = plan.view(x_name), plan.view(w_name)
    zeros, scales = (
        None if name is None else spread(plan, plan.view(name), codes, rows=True)
        for name in (zero, scale)
    )
    added = None if bias is None else per_channel(plan.view(bias), len(x.shape) - 2)
    return CodedConvolution(
        as_conv(call, 0, 1),
        Factor(Codes(x)),
        codes,
        zeros,
        scale=scales,
        finish=Finish(addend=added),
    )


CONVOLUTIONS["DequantizedConv"] = _dequantized
register(
    "DequantizedConv",
    Operation(_record_with_chain, _made_by_pattern, _check_dequantized),
)
