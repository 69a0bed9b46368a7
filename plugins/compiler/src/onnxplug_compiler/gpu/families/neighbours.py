"""Neighbouring elements that a lane reads or writes at once, where they lie so.

Where an array begins is known when a kernel runs, not before, so kernels look at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.gpu.command import operand
from onnxplug_compiler.gpu.families.vectors import MOST_BYTES
from onnxplug_compiler.gpu.render.body import BYTES, KINDS, Body
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Neighbours:
    """Neighbouring elements of the last axis.

    Args:
        width: how many there are; 1: each element is by itself.
        numbers: of the kernel's arrays which lie so.
    """

    def __init__(self, body: Body, width: int, numbers: Sequence[int]) -> None:
        self._body, self._width = body, width
        self._aligned = {
            number: body.let("i1", body.aligned(number, width))
            for number in numbers
            if width > 1
        }

    def loop(self, length: str, lanes: int) -> Any:
        """Visit all of *length* elements by lanes; gives the first of some."""
        if self._width == 1:
            return self._body.loop(length, "lane", f"{lanes}u")
        first, step = f"lane * {self._width}u", f"{lanes * self._width}u"
        return self._body.loop(length, first, step)

    def load(self, number: int, place: str) -> list[str]:
        """The elements of an array from a place on."""
        body, width = self._body, self._width
        if width == 1:
            return [body.load(number, place)]
        vectors, kind = body.dialect.vectors, KINDS[body.element(number)]
        assert vectors is not None
        found = [body.var(kind, body.number(kind, 0)) for _ in range(width)]
        aligned = self._aligned[number]
        with body.when(aligned):
            values = body.load_vector(vectors, number, place, width)
            for name, value in zip(found, values, strict=True):
                body.assign(name, value)
        with body.when(f"!{aligned}"):
            for n, name in enumerate(found):
                body.assign(name, body.load(number, f"({place} + {n})"))
        return found

    def store(self, number: int, place: str, values: Sequence[str]) -> None:
        """Write the elements of an array from a place on."""
        body, width = self._body, self._width
        if width == 1:
            body.store(number, place, values[0])
            return
        vectors, kind = body.dialect.vectors, KINDS[body.element(number)]
        assert vectors is not None
        values = [body.let(kind, value) for value in values]
        aligned = self._aligned[number]
        with body.when(aligned):
            body.store_vector(vectors, number, place, values)
        with body.when(f"!{aligned}"):
            for n, value in enumerate(values):
                body.store(number, f"({place} + {n})", value)


def width_of(recorder: Recorder[Any], views: Sequence[View], each: int) -> int:
    """How many neighbours of the last axis a lane takes at once, of *each* that it
    visits; 1 where the target has no vectors, or elements do not lie so."""
    nbytes = [BYTES[operand(view).element] for view in views]
    length = views[0].shape[-1]
    if not all(nbytes) or any(view.buffer.nbytes > MOST_BYTES for view in views):
        return 1
    if length > 1 and any(view.strides[-1] != 1 for view in views):
        return 1
    width = max(1, shapes_of(recorder).vector // max(nbytes))
    lines = [
        stride
        for view in views
        for size, stride in zip(view.shape[:-1], view.strides[:-1], strict=True)
        if size > 1
    ]
    while width > 1 and (
        length % width or each < width or any(n % width for n in lines)
    ):
        width //= 2
    return width
