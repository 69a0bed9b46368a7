"""Caches of keys and values as commands; see ``ir.caches.Caches``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_compiler.ir.traced import smaller
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.attention.commands import record_cached_attention
from onnxplug_cpu.compiler.kernels.attention.in_use import InUse, in_use_words
from onnxplug_cpu.compiler.kernels.caches.keep import KeepRows
from onnxplug_cpu.compiler.kernels.caches.place import PlaceRows
from onnxplug_cpu.compiler.kernels.rows import byte_strides

if TYPE_CHECKING:
    from onnxplug_compiler.ir.caches import Rotation, Starts
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.words import Word

__all__ = ["record_cached_attention", "record_kept", "record_placed"]

_ELEMENTS: Final = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
}  # fmt: skip
_FAULTS: Final = {
    1: "a row has no place in the cache: give it room for all rows, no negative "
    "lengths, and as query_seqlens from 0 to as many rows as there are",
    2: "a row stands at a position that the tables of cosines and sines have not",
    3: "the cache before has fewer rows than the lengths say",
}


def record_kept(
    recorder: Recorder,
    past: View,
    present: View,
    starts: Starts | None,
    *,
    label: str = "",
) -> None:
    """See ``ir.caches.Caches.record_kept``; of any dtype of up to 8 bytes.

    Raises:
        ValueError: another dtype, or rows whose elements are apart.
    """
    for name, view in (("a cache", present), ("the cache before", past)):
        _check(name, view, present.dtype_name)
    if not present.size:
        return
    batches, heads, rows, size = present.shape
    matrices = batches * heads
    chunks = chunks_for(present.nbytes / BYTES_PER_SECOND, recorder.target.workers)
    parts = smaller(-(-chunks // matrices), rows)
    form = None if starts is None else InUse.of(starts, None, None)
    words: dict[str, Word] = {
        **_strides("past", past),
        "past_rows": past.shape[2],
        **_strides("present", present),
        "present_rows": rows,
        "heads": heads,
        "size": size,
        "parts": parts,
        "flag": 0 if starts is None else _flag(recorder, label),
        **({} if starts is None else in_use_words(starts, None, None, 1)),
    }
    call(
        recorder,
        Kernel(KeepRows(form, f"u{8 * present.dtype.itemsize}")),
        words,
        chunks=matrices * parts,
        label=f"{label}: keep {rows} rows",
        nbytes=past.nbytes + present.nbytes,
    )


def record_placed(
    recorder: Recorder,
    new: View,
    out: View,
    starts: Starts,
    *,
    rotation: Rotation | None = None,
    shifted: bool = True,
    label: str = "",
) -> None:
    """See ``ir.caches.Caches.record_placed``; of float32, into float32, float16 or
    bfloat16, or integers of 8 bits.

    Raises:
        ValueError: another dtype, or rows whose elements are apart.
    """
    _check("rows", new, "float32")
    _check("a cache", out, *_ELEMENTS)
    if not new.size:
        return
    batches, heads, rows, size = new.shape
    turns, places = "", None
    words: dict[str, Word] = dict.fromkeys(
        "half cos cos_row sin sin_row positions places places_batch places_row".split(),
        0,
    )
    if rotation is not None:
        turns = "pairs" if rotation.interleaved else "halves"
        places = rotation.places
        words |= _angles(rotation)
    lines = batches * heads * rows
    seconds = 2 * new.nbytes / BYTES_PER_SECOND
    parts = smaller(lines, chunks_for(seconds, recorder.target.workers))
    form = PlaceRows(
        InUse.of(starts, None, None),
        turns,
        places is not None,
        bool(shifted),
        _ELEMENTS[out.dtype_name],
    )
    words |= {
        **_strides("new", new),
        **_strides("out", out),
        "out_rows": out.shape[2],
        "heads": heads,
        "rows": rows,
        "size": size,
        "lines": lines,
        "parts": parts,
        "flag": _flag(recorder, label),
        **in_use_words(starts, None, None, 1),
    }
    call(
        recorder,
        Kernel(form),
        words,
        chunks=parts,
        label=f"{label}: place {lines} rows",
        nbytes=new.nbytes + new.size * out.dtype.itemsize,
    )


def _flag(recorder: Recorder, label: str) -> Word:
    return recorder.check(lambda found: IndexError(f"{label}: {_FAULTS[found]}"))


def _angles(rotation: Rotation) -> dict[str, Word]:
    cos, sin, places = rotation.cos, rotation.sin, rotation.places
    for table in (cos, sin):
        if table.dtype_name != "float32" or (
            table.shape[1] > 1 and table.strides[1] != 1
        ):
            raise ValueError(f"angles are {table.dtype} with strides {table.strides}")
    words: dict[str, Word] = {
        "half": cos.shape[1],
        "cos": cos.address,
        "cos_row": cos.strides[0] * 4,
        "sin": sin.address,
        "sin_row": sin.strides[0] * 4,
        "positions": smaller(cos.shape[0], sin.shape[0]),
    }
    if places is not None:
        if places.dtype_name != "int64":
            raise ValueError(f"positions are {places.dtype}; expected int64")
        batch, row = byte_strides(places)
        words |= {"places": places.address, "places_batch": batch, "places_row": row}
    return words


def _strides(name: str, view: View) -> dict[str, Word]:
    batch, head, row, _ = byte_strides(view)
    return {
        name: view.address,
        f"{name}_batch": batch,
        f"{name}_head": head,
        f"{name}_row": row,
    }


def _check(name: str, view: View, *wanted: str) -> None:
    if view.dtype_name not in wanted or (view.shape[3] > 1 and view.strides[3] != 1):
        raise ValueError(
            f"{name} of {view.dtype} with the strides {view.strides}; expected "
            f"{', '.join(wanted)} with 1 in the last axis"
        )
