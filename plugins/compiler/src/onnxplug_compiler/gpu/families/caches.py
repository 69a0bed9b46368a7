"""Caches of keys and values: new rows are written where they belong, and those that
are in use attended to, of which only the device knows how many there are."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import as_bits, launch, lies_alike, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.flash import FlashKernel, tile_of
from onnxplug_compiler.gpu.families.indices import index_words, signed_index
from onnxplug_compiler.gpu.families.tensor_flash import by_tensor_cores
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.caches import Rotation, Starts
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_WORD: Final = np.dtype(np.uint32)
_FLAG: Final = Operand("flag", 0, True)


class PlacingKernel(Parameters):
    """Writes rows, rotated or not; the sizes are how many elements there are, those of
    the axes, rows of the target, and what is added to a start; then the positions of a
    table, and how many elements of a row are rotated.

    The arrays are the rows, the target, a flag, the starts, and those that there are of
    the tables, and the positions.

    Attributes:
        starts: how they are read.
        turns: the tables' element; empty if nothing is rotated.
        places: how positions are read; ``None``: rows have those of the target.
        interleaved, shifted: see ``ir.caches``.
    """

    source: Operand
    target: Operand
    starts: Operand
    clamped: bool
    turns: str
    places: Operand | None
    interleaved: bool
    shifted: bool

    lanes = LANES
    sizes = 9

    @property
    def operands(self) -> tuple[Operand, ...]:
        found = [self.source, self.target, _FLAG, self.starts]
        if self.turns:
            found += [Operand(self.turns, 2)] * 2
        if self.places is not None:
            found.append(self.places)
        return tuple(found)

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            image, head, line, place = body.coordinates(number, range(1, 5))
            start, there = self.start(body, image)
            value = body.load(0, body.place(0, [image, head, line, place]))
            if self.turns:
                at = [image, head, line, place]
                value, known = self.rotated(body, at, start, value)
                there = body.let("i1", f"{there} && {known}")
            row = line
            if self.shifted:
                row = body.let("u32", f"u32({start}) + {line}")
                there = body.let("i1", f"{there} && {row} < {body.size(5)}")
            with body.when(f"!({there})"):
                body.raise_flag(2)
            with body.when(there):
                at = [image, head, row, place]
                body.store(1, body.place(1, at), value)

    def start(self, body: Body, image: str) -> tuple[str, str]:
        """The first row of an image, and whether it is one."""
        found, fits = signed_index(body, self.starts, 3, [image])
        # far from where a sum has another sign
        fits = f"{fits} && {found} >= -0x40000000 && {found} < 0x40000000"
        first = f"{found} + {body.dialect.word(6)}"
        if self.clamped:
            first = f"max({first}, 0)"
        first = body.let("i32", body.dialect.select(fits, first, "-1"))
        is_there = body.let("i1", f"{first} >= 0")
        return body.let("i32", f"max({first}, 0)"), is_there

    def rotated(
        self, body: Body, at: list[str], start: str, value: str
    ) -> tuple[str, str]:
        """An element of a pair that is rotated, and whether its angle is known."""
        image, head, line, place = at
        select = body.dialect.select
        if self.places is None:
            position, known = body.let("i32", f"{start} + i32({line})"), "true"
        else:
            position, known = signed_index(body, self.places, 6, [image, line])
        known = f"{known} && {position} >= 0 && {position} < {body.dialect.word(7)}"
        known = body.let("i1", known)
        angle = body.let("u32", select(known, f"u32({position})", "0u"))
        half = body.let("u32", f"{body.size(8)} / 2u")
        turns = body.let("i1", f"{place} < {body.size(8)}")
        if self.interleaved:
            is_first = body.let("i1", f"{place} % 2u == 0u")
            pair = f"{place} / 2u"
            other = select(is_first, f"{place} + 1u", f"{place} - 1u")
        else:
            is_first = body.let("i1", f"{place} < {half}")
            pair = select(is_first, place, f"{place} - {half}")
            other = select(is_first, f"{place} + {half}", f"{place} - {half}")
        pair = body.let("u32", select(turns, pair, "0u"))
        other = body.let("u32", select(turns, other, place))
        beside = body.load(0, body.place(0, [image, head, line, other]))
        cos, sin = (
            body.load(table, body.place(table, [angle, pair])) for table in (4, 5)
        )
        turned = f"{value} * {cos} + {select(is_first, f'-{beside}', beside)} * {sin}"
        return body.let("f32", select(turns, turned, value)), known


class KeepingKernel(Parameters):
    """Copies rows before a start, and writes zeros behind; the sizes are how many
    elements there are, those of the axes, rows of the source, and what is added to a
    start.

    Attributes:
        starts: how they are read; ``None`` if all rows are copied.
        checked: a flag tells of a start behind the rows of the source.
    """

    source: Operand
    target: Operand
    starts: Operand | None
    checked: bool

    lanes = LANES
    sizes = 7

    @property
    def operands(self) -> tuple[Operand, ...]:
        found = [self.source, self.target]
        found += [] if self.starts is None else [self.starts]
        return (*found, _FLAG) if self.checked else tuple(found)

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(1, 5))
            image, head, row, place = at
            kept = f"{row} < {body.size(5)}"
            if self.starts is not None:
                found, fits = signed_index(body, self.starts, 2, [image])
                start = body.let("i32", f"{found} + {body.dialect.word(6)}")
                if self.checked:
                    with body.when(f"{fits} && {start} > i32({body.size(5)})"):
                        body.raise_flag(3)
                kept = f"{fits} && i32({row}) < {start} && {kept}"
            kept = body.let("i1", kept)
            near = body.let("u32", body.dialect.select(kept, row, "0u"))
            value = body.load(0, body.place(0, [image, head, near, place]))
            value = body.let("u32", body.dialect.select(kept, value, "0u"))
            body.store(1, body.place(1, at), value)


def record_kept(
    recorder: Recorder[Any],
    past: View,
    present: View,
    starts: Starts | None,
    *,
    label: str = "Cache",
) -> None:
    """See ``ir.caches.Caches``."""
    if not present.size:
        return
    source, target = _in_words(past, present)
    rows, more, starting = past.shape[2], list[View](), None
    # where there are as many, new rows behind them have no place
    checked = starts is not None and rows < present.shape[2]
    if starts is not None:
        more.append(index_words(starts.view))
        starting = operand(more[0])
    if checked:
        message = f"{label} has rows before the new ones that a cache of {rows} has not"
        more.append(_view_of(recorder.check(lambda _: IndexError(message))))
    kernel = KeepingKernel(
        operand(source), operand(target, written=True), starting, checked
    )
    if not rows:  # there is nothing to read, but a row that nobody keeps
        source = target.slice((0,) * 4, (*target.shape[:2], 1, target.shape[3]))
    launch(
        recorder,
        kernel,
        [source, target, *more],
        (target.size, *target.shape, rows, 0 if starts is None else starts.first),
        math.ceil(target.size / LANES),
        label,
        in_place=lies_alike(past, present),
    )


def _view_of(flag: Address) -> View:
    return View.contiguous(flag.buffer, _WORD, (), flag.offset)


def _in_words(past: View, present: View) -> tuple[View, View]:
    """The same memory as few elements as both allow."""
    views = as_bits(past), as_bits(present)
    if past.dtype.itemsize > 4:
        raise ValueError(f"a cache of {past.dtype} is not written")
    each = 4 // past.dtype.itemsize
    if any(
        view.strides[-1] != 1
        or view.offset % 4
        or view.shape[-1] % each
        or any(stride % each for stride in view.strides[:-1])
        for view in views
    ):
        return views
    one, other = (
        View(
            view.buffer,
            view.offset,
            _WORD,
            (*view.shape[:-1], view.shape[-1] // each),
            (*(stride // each for stride in view.strides[:-1]), 1),
        )
        for view in views
    )
    return one, other


def record_placed(
    recorder: Recorder[Any],
    new: View,
    out: View,
    starts: Starts,
    *,
    rotation: Rotation | None = None,
    shifted: bool = True,
    label: str = "Cache",
) -> None:
    """See ``ir.caches.Caches``."""
    if not new.size:
        return
    if not out.shape[2]:
        raise ValueError(f"{label} into a cache without rows")
    if rotation is None:
        new, out = as_bits(new), as_bits(out)
    rows, table = out.shape[2], 0 if rotation is None else rotation.cos.shape[0]
    message = f"{label} writes rows that a cache of {rows} has not"
    message += f", or rotates by positions beyond its {table}" if table else ""
    flag = recorder.check(lambda _: IndexError(message))
    views = [new, out, _view_of(flag)]
    places, positions, many = None, 0, 0
    views.append(index_words(starts.view))
    start = operand(views[-1])
    if rotation is not None:
        views += [rotation.cos, rotation.sin]
        positions, many = rotation.cos.shape[0], 2 * rotation.cos.shape[1]
        if not positions:
            raise ValueError(f"{label} rotates by tables without positions")
        if rotation.places is not None:
            views.append(index_words(rotation.places))
            places = operand(views[-1])
    kernel = PlacingKernel(
        operand(new),
        operand(out, written=True),
        start,
        starts.clamped,
        "" if rotation is None else operand(rotation.cos).element,
        places,
        rotation is not None and rotation.interleaved,
        shifted,
    )
    launch(
        recorder,
        kernel,
        views,
        (new.size, *new.shape, out.shape[2], starts.first, positions, many),
        math.ceil(new.size / LANES),
        label,
        6 * new.size if rotation else 0,
    )


def record_cached_attention(
    recorder: Recorder[Any],
    q: View,
    k: View,
    v: View,
    out: View,
    starts: Starts,
    *,
    scale: float,
    mask: View | None = None,
    causal: bool = False,
    window: int | None = None,
    softcap: float = 0.0,
    sinks: View | None = None,
    label: str = "Attention",
) -> None:
    """See ``ir.caches.Caches``."""
    if not out.size:
        return
    batch, heads, queries, depth = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if not keys:
        raise ValueError("attention to no keys")
    rows = heads // groups * queries
    tile = tile_of(rows, depth, v.shape[-1])
    if tile is None:
        raise ValueError(f"heads of {depth} and {v.shape[-1]} elements are too large")
    message = f"{label} has a length that a cache of {keys} rows cannot have"
    flag = recorder.check(lambda _: IndexError(message))
    words = index_words(starts.view)
    views = [q, k, v, out]
    if mask is not None:
        views.append(mask.broadcast_to((batch, heads, queries, keys)))
    views += [words, _view_of(flag)]
    views += [] if sinks is None else [sinks]
    kernel = FlashKernel(
        operand(q).element, tile, depth, v.shape[-1],
        "" if mask is None else operand(mask).element,
        causal, float(scale), float(softcap), False, -math.inf, "masked_zero",
        operand(words), starts.clamped, window is not None,
        "" if sinks is None else operand(sinks).element,
    )  # fmt: skip
    kernel, views[:3] = by_tensor_cores(recorder, kernel, rows, [q, k, v])
    blocks = -(-rows // kernel.tile.rows)
    count = batch * groups * blocks
    sizes = count, blocks, groups, heads // groups, queries, keys
    launch(
        recorder,
        kernel,
        views,
        (*sizes, starts.first, starts.end, window or 0),
        count,
        label,
        2 * batch * heads * queries * keys * (depth + v.shape[-1]),
    )
