"""How images of codes come to convolutions: as differences from their zero point, or as
they are, where these are multiplied faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_border, record_padded
from onnxplug_compiler.schedule.operations.convolution import padded_shape, windows_of
from onnxplug_compiler.schedule.operations.depthwise import Depthwise
from onnxplug_compiler.schedule.operations.geometry import Geometry
from onnxplug_compiler.schedule.operations.registry import F32, Plan

_EXACT: Final = 258
"""Terms of a sum of products of two differences of codes, which have nine bits with
their sign, that float32 holds exactly."""

_RAISE: Final = 128
"""What makes codes with a sign codes without one."""

_U8: Final = np.dtype(np.uint8)


def record_differences(plan: Plan, codes: Factor, out: View) -> None:
    """Write what codes differ from their zero points by to *out*."""
    element = element_of(out.dtype)
    assert element is not None
    chain = Formula(element)
    value = chain.read_wide(codes.codes.view)
    if codes.zero is not None:
        whole = codes.zero.view.broadcast_to(out.shape)
        value = chain.step("Sub", value, chain.read_wide(whole))
    if codes.offset:  # no part of the code, of which all networks need one
        of_all = plan.recorder.constant(np.array(codes.offset, np.int16))
        value = chain.step("Sub", value, chain.read_wide(of_all))
    chain.record(plan.recorder, value, out, "ConvInteger")


def exact_windows(
    plan: Plan, conv: Call, image: Factor, filters: Factor, shape: tuple[int, ...]
) -> list[Depthwise] | None:
    """A convolution as windows of float32, in which sums of integers are exact, if each
    channel, or each small group of them, is convolved by itself.

    Args:
        shape: of the result.
    """
    images, kernel = image.codes.view, filters.codes.view
    if conv.attributes["group"] < 2 or math.prod(kernel.shape[1:]) > _EXACT:
        return None
    recorder = plan.recorder
    wide = recorder.channels_last(F32, images.shape)
    factors = recorder.temporary(F32, kernel.shape)
    parts = windows_of(plan, conv, wide, factors, shape)
    if parts is not None:
        record_differences(plan, image, wide)
        record_differences(plan, filters, factors)
    return parts


def of_floats(after: Epilogue) -> Epilogue:
    """What becomes of sums of int32, for sums of float32 that are integers."""
    chain, builder = after.chain, ChainBuilder()
    tile = builder.step("Cast", [builder.input("f32")], chain.inputs[0])
    others = [builder.input(element) for element in chain.inputs[1:]]
    results = builder.append(chain, [tile, *others])
    return after._replace(chain=builder.build(results))


class Surrounded:
    """Codes as they are, channels last and with their zero point around them.

    Args:
        is_raised: those with a sign become by 128 larger, and have none.

    Attributes:
        padded: the array, with all that windows reach.
    """

    def __init__(
        self, plan: Plan, image: Factor, geometry: Geometry, *, is_raised: bool
    ) -> None:
        self.plan, self.image, self.before = plan, image, geometry.before
        view = image.codes.view
        self.raised = _RAISE if is_raised and view.dtype != _U8 else 0
        pads = *geometry.before, *geometry.after
        self.is_there = not (self.raised or any(pads)) and view.strides[1] == 1
        self.padded = view
        if not self.is_there:
            shape = padded_shape(view.shape, geometry)
            dtype = _U8 if self.raised else view.dtype
            self.padded = plan.recorder.channels_last(dtype, shape)

    def factor(self, windows: View) -> Factor:
        """What windows of the array stand for."""
        zero, offset = self.image.zero, self.image.offset + self.raised
        zeros = zero and Codes(zero.view.broadcast_to(windows.shape))
        return Factor(Codes(windows), zeros, offset)

    def record(self) -> None:
        """Write the array, if it is not there."""
        if self.is_there:
            return
        recorder, starts = self.plan.recorder, (0, 0, *self.before)
        view, zeros = self.image.codes.view, self.image.zero
        if zeros is None:
            zero = recorder.constant(np.array(self.image.offset, view.dtype))
        else:
            zero = zeros.view
        if not self.raised:
            record_padded(recorder, view, self.padded, starts, value=zero)
            return
        border = recorder.temporary(_U8, ())
        self._record_raised(zero, border)
        self._record_raised(view, self.padded.slice(starts, view.shape))
        record_border(recorder, self.padded, starts, view.shape, border)

    def _record_raised(self, source: View, target: View) -> None:
        chain = Formula("i16")
        value = chain.step("Add", chain.read_wide(source), chain.number(_RAISE))
        chain.record(self.plan.recorder, value, target, "Codes")


def is_of_integers(arrays: Sequence[View]) -> bool:
    """Whether all arrays have codes of a byte."""
    return all(element_of(each.dtype) in ("i8", "u8") for each in arrays)
