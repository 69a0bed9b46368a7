"""How images of codes come to convolutions: as differences from their zero point, or as
they are, where these are multiplied faster."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.coded import PIXEL, Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder, Step
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import MOST_CODED_TERMS
from onnxplug_compiler.schedule.copies import record_border, record_padded
from onnxplug_compiler.schedule.operations.convolution import padded_shape, windows_of
from onnxplug_compiler.schedule.operations.depthwise import Depthwise
from onnxplug_compiler.schedule.operations.geometry import Geometry
from onnxplug_compiler.schedule.operations.registry import F32, Plan

_U8: Final = np.dtype(np.uint8)
_U32: Final = np.dtype(np.uint32)

_MOVES: Final = {"i8": (128, np.dtype(np.uint8)), "u8": (-128, np.dtype(np.int8))}
"""What makes codes with a sign codes without one, and the other way round."""


def record_differences(recorder: Recorder[Target], codes: Factor, out: View) -> None:
    """Write what codes differ from their zero points by to *out*."""
    element = element_of(out.dtype)
    assert element is not None
    chain = Formula(element)
    value = chain.read_wide(codes.codes.view)
    if codes.zero is not None:
        whole = codes.zero.view.broadcast_to(out.shape)
        value = chain.step("Sub", value, chain.read_wide(whole))
    if codes.offset:  # no part of the code, of which all networks need one
        of_all = recorder.constant(np.array(codes.offset, np.int16))
        value = chain.step("Sub", value, chain.read_wide(of_all))
    chain.record(recorder, value, out, "ConvInteger")


def exact_windows(
    plan: Plan, conv: Call, image: Factor, filters: Factor, shape: tuple[int, ...]
) -> list[Depthwise] | None:
    """A convolution as windows of float32, in which sums of integers are exact, if each
    channel, or each small group of them, is convolved by itself.

    Args:
        shape: of the result.
    """
    images, kernel = image.codes.view, filters.codes.view
    recorder, windows = plan.recorder, plan.recorder.target.windows
    many = math.prod(kernel.shape[1:]) > MOST_CODED_TERMS
    if conv.attributes["group"] < 2 or many or windows is None:
        return None
    wide, takes_codes = images, windows.takes_codes()
    if not takes_codes:
        wide = recorder.channels_last(F32, images.shape)
    coded = windows_of(plan, conv, wide, kernel, shape)
    if coded is None:
        return None
    factors = _float_filters(plan, filters)
    parts = windows_of(plan, conv, wide, factors, shape)
    assert parts is not None
    if not takes_codes:
        record_differences(recorder, image, wide)
        return parts
    if kernel.dtype == np.int8 and filters.zero is None and not filters.offset:
        pairs = zip(parts, coded, strict=True)
        parts = [part._replace(codes=each.weights) for part, each in pairs]
    if not image.offset and image.zero is None:
        return parts
    zero = _float_zero(plan, image)
    return [part._replace(zero=zero) for part in parts]


def _float_filters(plan: Plan, filters: Factor) -> View:
    """Differences of filters' codes as float32, with consecutive channels; of constants
    they are computed once."""
    view, zero = filters.codes.view, filters.zero
    filter_, *inner = range(len(view.shape))
    order = (*inner[1:], inner[0], filter_)
    shape = [view.shape[axis] for axis in order]
    back = [order.index(axis) for axis in (filter_, *inner)]
    zeros = None if zero is None else zero.view
    if not isinstance(view.buffer, Constant) or not _is_known(zeros):
        factors = plan.recorder.temporary(F32, shape).transpose(back)
        record_differences(plan.recorder, filters, factors)
        return factors

    def record(recorder: Recorder[Target], source: View, target: Address) -> None:
        out = View.contiguous(target.buffer, F32, shape, target.offset)
        factor = filters._replace(codes=Codes(source))
        record_differences(recorder, factor, out.transpose(back))

    form = view.dtype_name, view.offset, view.shape, view.strides, filters.offset
    layout = f"windows of codes {form} {_described(zeros)}"
    packed = plan.recorder.packed(view, layout, view.size * F32.itemsize, record)
    found = View.contiguous(packed.buffer, F32, shape, packed.offset)
    return found.transpose(back)


def _is_known(view: View | None) -> bool:
    """Whether a view, if there is one, is of a constant whose elements are at hand."""
    if view is None:
        return True
    return isinstance(view.buffer, Constant) and view.buffer.key is None


def _described(zeros: View | None) -> str:
    """Known zero points."""
    if zeros is None:
        return ""
    assert isinstance(zeros.buffer, Constant)
    content = hashlib.sha256(zeros.buffer.array.tobytes()).hexdigest()
    return f"from {zeros.dtype_name} {zeros.offset} {zeros.strides} {content}"


def _float_zero(plan: Plan, codes: Factor) -> View:
    """The zero point of all codes as one number of float32; of a constant it is
    computed once."""
    if codes.zero is None:
        return plan.recorder.constant(np.array(codes.offset, np.float32))
    view, offset = codes.zero.view, codes.offset
    place = View(view.buffer, view.offset, view.dtype, (), ())

    def record(recorder: Recorder[Target], source: View, target: Address) -> None:
        chain = Formula("f32")
        value = chain.step("Add", chain.read_wide(source), chain.number(offset))
        out = View.contiguous(target.buffer, F32, (), target.offset)
        chain.record(recorder, value, out, "ConvInteger")

    if not isinstance(view.buffer, Constant):
        zero = plan.recorder.temporary(F32, ())
        record(plan.recorder, place, zero.address)
        return zero
    layout = f"zero point {view.dtype_name} {view.offset} and {offset}"
    packed = plan.recorder.packed(place, layout, F32.itemsize, record)
    return View.contiguous(packed.buffer, F32, (), packed.offset)


def of_floats(after: Epilogue) -> Epilogue:
    """What becomes of sums of int32, for sums of float32 that are integers."""
    chain, builder = after.chain, ChainBuilder()
    sums = builder.input("f32")
    tile = builder.step("Cast", [sums], chain.inputs[0])
    others = [builder.input(element) for element in chain.inputs[1:]]
    as_floats = {Step("Cast", (0,), "f32"): sums}
    results = builder.append(chain, [tile, *others], as_floats)
    return after._replace(chain=builder.build(results))


class Surrounded:
    """Codes as they are, channels last and with their zero point around them.

    Args:
        channels: at least as many as there are; those beyond may be anything.
        is_moved: those with a sign become by 128 larger, and have none, and those
            without one become by as much smaller.

    Attributes:
        padded: the array, with all that windows reach.
    """

    def __init__(
        self,
        plan: Plan,
        image: Factor,
        geometry: Geometry,
        channels: int,
        *,
        is_moved: bool,
    ) -> None:
        self.plan, self.image, self.before = plan, image, geometry.before
        view = image.codes.view
        element = element_of(view.dtype)
        assert element is not None
        self.moved, dtype = _MOVES[element] if is_moved else (0, view.dtype)
        self.dtype: np.dtype[Any] = dtype
        pads = *geometry.before, *geometry.after
        is_whole = view.shape[1] >= channels and view.strides[1] == 1
        self.is_there = is_whole and not (self.moved or any(pads))
        self.padded = view
        if not self.is_there:
            count, _, *rest = padded_shape(view.shape, geometry)
            shape = (count, max(view.shape[1], channels), *rest)
            self.padded = plan.recorder.channels_last(self.dtype, shape)

    def factor(self, windows: View) -> Factor:
        """What windows of the array stand for."""
        zero, offset = self.image.zero, self.image.offset + self.moved
        zeros = zero and Codes(zero.view.broadcast_to(windows.shape))
        return Factor(Codes(windows), zeros, offset)

    def record(self) -> None:
        """Write the array, if it is not there."""
        if self.is_there:
            return
        recorder, starts = self.plan.recorder, (0, 0, *self.before)
        view, zeros = self.image.codes.view, self.image.zero
        joins = self._joins_planes()
        channels = PIXEL if joins else view.shape[1]
        sizes = (self.padded.shape[0], channels, *self.padded.shape[2:])
        padded = self.padded.slice([0] * len(sizes), sizes)
        if zeros is None:
            code = np.array(self.image.offset + self.moved, self.padded.dtype)
            border = recorder.constant(code)
        elif self.moved:
            border = recorder.temporary(self.dtype, ())
            self._record_moved(zeros.view, border)
        else:
            border = zeros.view
        if not (self.moved or joins):
            record_padded(recorder, view, padded, starts, value=border)
            return
        inside = padded.slice(starts, (view.shape[0], channels, *view.shape[2:]))
        if joins:
            self._record_pixels(view, inside)
        else:
            self._record_moved(view, inside)
        record_border(recorder, padded, starts, inside.shape, border)

    def _joins_planes(self) -> bool:
        """Whether up to four channels, each by itself in memory, become pixels."""
        view, padded = self.image.codes.view, self.padded
        return (
            padded.shape[1] == PIXEL
            and padded.strides[1] == 1
            and 1 < view.shape[1] <= PIXEL
            and view.strides[-1] == 1
        )

    def _record_pixels(self, view: View, inside: View) -> None:
        """Write the channels of a pixel at once, and zeros for those that it lacks."""
        chain, axes = Formula("u32"), len(view.shape)
        shape = view.shape[0], 1, *view.shape[2:]
        first, *others = (
            chain.read_wide(_bytes(view).slice([0, channel] + [0] * (axes - 2), shape))
            for channel in range(view.shape[1])
        )
        pixel = first
        for channel, code in enumerate(others, 1):
            by = chain.number(8 * channel)
            code = chain.step("BitShift", code, by, direction="LEFT")
            pixel = chain.step("BitwiseOr", pixel, code)
        if self.moved:
            pixel = chain.step("BitwiseXor", pixel, chain.number(0x80808080))
        strides = tuple(stride // PIXEL for stride in inside.strides)
        pixels = View(inside.buffer, inside.offset, _U32, shape, strides)
        chain.record(self.plan.recorder, pixel, pixels, "Codes")

    def _record_moved(self, source: View, target: View) -> None:
        # by 128, as bytes alone, of which vectors have the most
        chain = Formula("u8")
        value = chain.step("BitwiseXor", chain.read(_bytes(source)), chain.number(128))
        chain.record(self.plan.recorder, value, _bytes(target), "Codes")


def _bytes(view: View) -> View:
    """Codes of a byte without their signs."""
    return View(view.buffer, view.offset, _U8, view.shape, view.strides)


def is_of_integers(arrays: Sequence[View]) -> bool:
    """Whether all arrays have codes of a byte."""
    return all(element_of(each.dtype) in ("i8", "u8") for each in arrays)
