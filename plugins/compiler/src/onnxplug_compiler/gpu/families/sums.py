"""Sums of words before each of them: in chunks, whose sums one workgroup sums."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch
from onnxplug_compiler.gpu.render.body import Body, Operand, Pair
from onnxplug_compiler.gpu.render.dialect import Warps
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_LANES: Final = 256
_EACH: Final = 4
"""Words that a lane sums by itself."""

_CHUNK: Final = _LANES * _EACH
_WORD: Final = np.dtype(np.uint32)
_COUNT: Final = np.dtype(np.int64)


def _scanned(body: Body, value: str, shared: str) -> str:
    """The sum of the values of all lanes up to one's own (W. D. Hillis and G. L.
    Steele, "Data parallel algorithms", 1986); *shared* has all of them."""
    if body.dialect.warps is not None:
        return _scanned_by_warps(body, body.dialect.warps, value, shared)
    body.assign(f"{shared}[lane]", value)
    body.wait()
    apart = 1
    while apart < _LANES:
        near = body.let("u32", body.dialect.select(f"lane < {apart}u", "0u", "1u"))
        other = body.let("u32", f"{shared}[lane - {near} * {apart}u] * {near}")
        body.wait()
        body.assign(f"{shared}[lane]", f"{shared}[lane] + {other}")
        body.wait()
        apart *= 2
    return body.let("u32", f"{shared}[lane]")


def _scanned_by_warps(body: Body, warps: Warps, value: str, shared: str) -> str:
    """As :func:`_scanned`: in each warp, and then with the sums of those before it."""
    size = warps.size
    within = body.let("u32", f"lane % {size}u")
    found = body.var("u32", value)
    apart = 1
    while apart < size:
        other = body.let("u32", warps.shift_up(found, apart))
        more = body.dialect.select(f"{within} < {apart}u", "0u", other)
        body.assign(found, f"{found} + {more}")
        apart *= 2
    with body.when(f"{within} == {size - 1}u"):
        body.assign(f"{shared}[lane / {size}u]", found)
    body.wait()
    with body.loop(f"lane / {size}u") as number:
        body.assign(found, f"{found} + {shared}[{number}]")
    body.wait()
    body.assign(f"{shared}[lane]", found)
    body.wait()
    return found


class ChunkSumKernel(Parameters):
    """The sum of each chunk; the sizes are how many chunks and how many words."""

    lanes = _LANES
    sizes = 2

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("u32", 1), Operand("u32", 1, True)

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            total = body.var("u32", "0u")
            base = body.let("u32", f"block * {_CHUNK}u")
            with body.loop(f"{_CHUNK}u", "lane", f"{_LANES}u") as number:
                at = body.let("u32", f"{base} + {number}")
                with body.when(f"{at} < {body.size(1)}"):
                    value = body.load(0, body.place(0, [at]))
                    body.assign(total, f"{total} + {value}")
            shared = body.array("u32", _LANES)
            found = body.reduced(
                "u32", total, _LANES, lambda a, b: f"{a} + {b}", shared
            )
            with body.when("lane == 0u"):
                body.store(1, body.place(1, ["block"]), found)


class SumKernel(Parameters):
    """The sums before each word of a line, in place, and of them all; one workgroup
    goes from piece to piece.  The size is how many there are."""

    lanes = _LANES
    sizes = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("u32", 1, True), Operand("i64", 0, True)

    def write(self, body: Body) -> None:
        shared = body.array("u32", _LANES)
        carried = body.var("u32", "0u")
        with body.loop(body.size(0), step=f"{_LANES}u") as first:
            at = body.let("u32", f"{first} + lane")
            inside = body.let("i1", f"{at} < {body.size(0)}")
            near = body.let("u32", body.dialect.select(inside, at, "0u"))
            loaded = body.load(0, body.place(0, [near]))
            value = body.let("u32", body.dialect.select(inside, loaded, "0u"))
            upto = _scanned(body, value, shared)
            with body.when(inside):
                body.store(0, body.place(0, [at]), f"{carried} + {upto} - {value}")
            body.assign(carried, f"{carried} + {shared}[{_LANES - 1}u]")
            body.wait()
        with body.when("lane == 0u"):
            body.store(1, body.place(1, []), Pair(carried, "0u"))


class ChunkSumsKernel(Parameters):
    """The sums before each word, from those before each chunk; the sizes are how many
    chunks and how many words."""

    lanes = _LANES
    sizes = 2

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("u32", 1), Operand("u32", 1), Operand("u32", 1, True)

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            first = body.let("u32", f"block * {_CHUNK}u + lane * {_EACH}u")
            values = []
            for number in range(_EACH):
                at = body.let("u32", f"{first} + {number}u")
                inside = body.let("i1", f"{at} < {body.size(1)}")
                near = body.let("u32", body.dialect.select(inside, at, "0u"))
                loaded = body.load(0, body.place(0, [near]))
                value = body.let("u32", body.dialect.select(inside, loaded, "0u"))
                values.append((at, inside, value))
            own = body.let("u32", " + ".join(value for _, _, value in values))
            shared = body.array("u32", _LANES)
            upto = _scanned(body, own, shared)
            base = body.load(1, body.place(1, ["block"]))
            total = body.let("u32", f"{base} + {upto} - {own}")
            for at, inside, value in values:
                with body.when(inside):
                    body.store(2, body.place(2, [at]), total)
                total = body.let("u32", f"{total} + {value}")


def record_sums(recorder: Recorder[Any], words: View, total: View, label: str) -> View:
    """The sums of the words before each one.

    Args:
        words: u32, one axis, in C order, at least one.
        total: one element of int64, which takes the sum of them all.
    """
    count = words.size
    chunks = math.ceil(count / _CHUNK)
    parts = recorder.temporary(_WORD, (chunks,))
    found = recorder.temporary(_WORD, (count,))
    name = f"{label} sums"
    sizes = (chunks, count)
    whole = View(total.buffer, total.offset, total.dtype, (), ())
    launch(recorder, ChunkSumKernel(), [words, parts], sizes, chunks, name)
    launch(recorder, SumKernel(), [parts, whole], (chunks,), 1, name)
    launch(recorder, ChunkSumsKernel(), [words, parts, found], sizes, chunks, name)
    return found
