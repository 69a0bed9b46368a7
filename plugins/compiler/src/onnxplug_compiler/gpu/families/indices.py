"""Indices of elements, which kernels check.

Those of int64 are two words: one that is no int32 is out of range anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_WORD: Final = np.dtype(np.uint32)
FLAG: Final = Operand("flag", 0, True)
"""The flag of an index out of range."""


class Indexed(Parameters):
    """What kernels with indices have in common; their arrays are the data, the indices,
    the target and the flag, and the first sizes how many invocations there are."""

    data: Operand
    indices: Operand
    target: Operand

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.data, self.indices, self.target, FLAG

    def checked(self, body: Body, at: Sequence[str], size: str) -> str:
        """The index that lies at *at*, counted from the front of an axis of *size*;
        where it is out of range, the flag is raised, and it is 0."""
        return checked_index(body, self.indices, 1, at, size, 3)


def checked_index(
    body: Body, indices: Operand, number: int, at: Sequence[str], size: str, flag: int
) -> str:
    """An index, counted from the front of an axis of *size*; where it is out of range,
    the flag is raised, and it is 0.

    Args:
        number: of the indices among the kernel's arrays.
        at: where it lies in them.
        flag: the number of the flag.
    """
    signed, fits = signed_index(body, indices, number, at)
    from_front = body.let(
        "i32", body.dialect.select(f"{signed} < 0", f"{signed} + i32({size})", signed)
    )
    found = f"{fits} && {from_front} >= 0 && {from_front} < i32({size})"
    is_in = body.let("i1", found)
    with body.when(f"!{is_in}"):
        body.raise_flag(flag)
    return body.let("u32", body.dialect.select(is_in, f"u32({from_front})", "0u"))


def signed_index(
    body: Body, indices: Operand, number: int, at: Sequence[str]
) -> tuple[str, str]:
    """An index as an int32, and whether it is one."""
    if indices.element == "i32":
        return body.load(number, body.place(number, at)), "true"
    low = body.load(number, body.place(number, [*at, "0u"]))
    high = body.load(number, body.place(number, [*at, "1u"]))
    signed = body.let("i32", body.dialect.reinterpret("i32", low))
    top = body.dialect.reinterpret("i32", high)
    return signed, body.let("i1", f"{top} == ({signed} >> 31u)")


def index_words(indices: View) -> View:
    """Indices as kernels read them."""
    if indices.dtype.itemsize == 8:
        return as_bits(indices)
    return indices


def raised_flag(recorder: Recorder[Any], label: str) -> View:
    """A flag that an index out of range raises."""
    flag = recorder.check(lambda _: IndexError(f"an index of {label} is out of range"))
    return View.contiguous(flag.buffer, _WORD, (), flag.offset)


def record_indexed(
    recorder: Recorder[Any],
    make: Any,
    data: View,
    indices: View,
    target: View,
    numbers: Sequence[Any],
    sizes: Sequence[int],
    count: int,
    label: str,
) -> None:
    """Record a kernel that *make* makes of its operands and *numbers*."""
    words = index_words(indices)
    kernel = make(
        operand(data), operand(words), operand(target, written=True), *numbers
    )
    views = [data, words, target, raised_flag(recorder, label)]
    launch(recorder, kernel, views, sizes, math.ceil(count / LANES), label)


def no_empty_axes(shape: Sequence[int], label: str) -> None:
    """Where an index that is out of range may be taken for 0.

    Raises:
        ValueError: there is nothing at 0.
    """
    if 0 in shape:
        raise ValueError(f"{label} of an array without elements")
