"""DFT and STFT."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled, integer
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Support, Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copies, record_padded
from onnxplug_compiler.schedule.fourier import divide, record_transform
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)

_AXIS_INPUT_SINCE: Final = 20
_COMPLEX: Final = 2


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[0] != F32:
        return f"{call.op_type} is compiled for float32; found {dtypes[0]}"
    return computed(call, dtypes[:1], target)


class _Sizes(NamedTuple):
    """The sizes of a transform.

    Attributes:
        axis: along which it goes.
        length: of the transform.
        parts: 1 of real numbers, 2 of complex ones.
        bins: how many results there are.
        mirrored: the input is half of what real numbers transform to, which they are
            to be again.
    """

    axis: int
    length: int
    parts: int
    bins: int
    mirrored: bool = False

    def check(self, call: Call) -> None:
        """Raise if it is not computed."""
        parts = _COMPLEX if self.mirrored else self.parts
        if self.parts not in (1, _COMPLEX) or self.length < 1:
            raise NotCompiled(f"{self.parts} parts of {self.length} numbers", call)
        if divide(self.length, parts, self.bins) is None:
            raise NotCompiled(f"the length {self.length} has a large factor", call)


# DFT


def _dft_sizes(call: Call, inputs: Inputs, results: Results) -> _Sizes:
    shape, rank = given(inputs).shape, len(given(inputs).shape)
    axis = int(call.attributes.get("axis", 1))
    if call.version >= _AXIS_INPUT_SINCE:
        axis = -2 if call.input(2) is None else integer(call, inputs[2], "the axis")
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise NotCompiled(f"the axis {axis} of {shape}", call)
    axis, mirrored = axis % rank, False
    length = shape[axis]
    if call.attributes["inverse"] and call.attributes["onesided"]:
        mirrored, length = True, 2 * (length - 1)
    if call.input(1) is not None:
        length = integer(call, inputs[1], "the length")
    bins = given(results).shape[axis]
    return _Sizes(axis, length, shape[-1], bins, mirrored)


def _check_dft(call: Call, inputs: Inputs, results: Results) -> None:
    sizes = _dft_sizes(call, inputs, results)
    sizes.check(call)
    shape = list(given(inputs).shape)
    shape[sizes.axis], shape[-1] = sizes.bins, 1 if sizes.mirrored else _COMPLEX
    half = call.attributes["onesided"] and not sizes.mirrored
    bins = sizes.length // 2 + 1 if half else sizes.length
    if given(results).shape != tuple(shape) or sizes.bins != bins:
        raise NotCompiled(f"{call.op_type} of {given(inputs).shape}", call)


def _record_dft(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    sizes = _dft_sizes(call, inputs, [plan.known(output)])
    x = plan.view(source)
    rank, shape = len(x.shape), plan.known(output).shape
    rest = [axis for axis in range(rank - 1) if axis != sizes.axis]
    order = (*rest, rank - 1, sizes.axis)
    numbers = x.transpose(order)
    *lead, parts, count = numbers.shape
    if 0 in shape:
        plan.destination(output)
        return
    batch = math.prod(lead)
    merged = numbers.reshape((batch, parts, count))
    if merged is None:
        merged = plan.contiguous(numbers).reshape((batch, parts, count))
    assert merged is not None
    recorder = plan.recorder
    if sizes.mirrored:
        merged = _mirrored(recorder, merged, sizes.length)
    else:
        merged = _fitted(recorder, merged, sizes.length)
    inverse = bool(call.attributes["inverse"])
    one = merged.reshape((1, *merged.shape))
    assert one is not None
    found = record_transform(recorder, one, sizes.bins, inverse=inverse)
    if sizes.mirrored:
        found = found.slice((0, 0, 0, 0), (1, batch, sizes.bins, 1))
    apart = found.reshape((*lead, sizes.bins, found.shape[3]))
    assert apart is not None
    back = [0] * rank
    for place, axis in enumerate((*rest, sizes.axis, rank - 1)):
        back[axis] = place
    plan.alias(output, apart.transpose(back))


def _fitted(recorder: Recorder[Target], x: View, length: int) -> View:
    """[batch, parts, *length*] of the first numbers, and zeros behind them."""
    batch, parts, count = x.shape
    if count >= length:
        return x.slice((0, 0, 0), (batch, parts, length))
    whole = recorder.temporary(F32, (batch, parts, length))
    record_padded(recorder, x, whole, (0, 0, 0))
    return whole


def _mirrored(recorder: Recorder[Target], x: View, length: int) -> View:
    """All numbers of which the first half is given, as real numbers transform to them:
    [batch, parts, *length*]."""
    batch, parts, _ = x.shape
    half = _fitted(recorder, x, length // 2 + 1)
    whole = recorder.temporary(F32, (batch, parts, length))
    pairs = (length - 1) // 2

    def part(view: View, number: int, start: int, count: int, step: int = 1) -> View:
        return view.slice((0, number, start), (batch, 1, count), (1, 1, step))

    copies = [
        (part(half, 0, 0, length // 2 + 1), part(whole, 0, 0, length // 2 + 1)),
        (part(half, 0, 1, pairs), part(whole, 0, length - 1, pairs, -1)),
    ]
    if parts == _COMPLEX:
        copies.append((part(half, 1, 1, pairs), part(whole, 1, 1, pairs)))
        # of those that are their own counterparts, imaginary parts do not count
        zero = recorder.constant(np.zeros(1, np.float32)).broadcast_to((batch, 1, 1))
        for place in (0, length // 2) if length % 2 == 0 else (0,):
            copies.append((zero, part(whole, 1, place, 1)))
        formula = Formula("f32")
        negative = formula.step("Neg", formula.read(part(half, 1, 1, pairs)))
        target = part(whole, 1, length - 1, pairs, -1)
        formula.record(recorder, negative, target, "DFT mirror")
    record_copies(recorder, copies, "DFT mirror")
    return whole


register("DFT", Operation(_record_dft, _accepts, _check_dft, known=frozenset({1, 2})))


# STFT


def _stft_sizes(call: Call, inputs: Inputs, results: Results) -> tuple[_Sizes, int]:
    """The sizes of the transforms, and the step from each to the next."""
    shape = given(inputs).shape
    step = integer(call, inputs[1], "the step")
    window = inputs[2] if call.input(2) is not None else None
    if call.input(3) is not None:
        length = integer(call, inputs[3], "the length")
    else:
        length = shape[1] if window is None else window.size
    parts = shape[2] if len(shape) > _COMPLEX else 1
    return _Sizes(1, length, parts, given(results).shape[2]), step


def _check_stft(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if len(shape) not in (2, 3) or len(given(results).shape) != 4:
        raise NotCompiled(f"STFT of {shape}", call)
    sizes, step = _stft_sizes(call, inputs, results)
    sizes.check(call)
    length = sizes.length
    bins = length // 2 + 1 if call.attributes["onesided"] else length
    window = inputs[2] if call.input(2) is not None else None
    if step < 1 or length > shape[1] or (window and window.shape != (length,)):
        raise NotCompiled(f"frames of {length} by {step} of {shape}", call)
    frames = (shape[1] - length) // step + 1
    if given(results).shape != (shape[0], frames, bins, _COMPLEX):
        raise NotCompiled(f"{frames} frames give {given(results).shape}", call)


def _record_stft(plan: Plan, call: Call) -> None:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    sizes, step = _stft_sizes(call, inputs, [plan.known(output)])
    shape = plan.known(output).shape
    if 0 in shape:
        plan.destination(output)
        return
    x = plan.view(source)
    batch, frames = shape[:2]
    along, part = x.strides[1], x.strides[2] if len(x.shape) > _COMPLEX else 0
    numbers = View(
        x.buffer,
        x.offset,
        x.dtype,
        (batch, frames, sizes.parts, sizes.length),
        (x.strides[0], along * step, part, along),
    )
    name = call.input(2)
    window = None if name is None else plan.view(name)
    spectrum = record_transform(plan.recorder, numbers, sizes.bins, window=window)
    plan.alias(output, spectrum)


register(
    "STFT", Operation(_record_stft, _accepts, _check_stft, known=frozenset({1, 3}))
)
