"""Scaled dot product attention: how it is divided, and the commands that compute it.

Many queries: keys and values are packed into panels, then all scores of some queries
of one head, their softmax, and the products with the values are computed, in scratch
memory that stays in the second-level cache.  The rows are whole, so
that the softmax is the plain one, without the corrections of an online softmax.

Few queries, as in the generation of one token: keys and values are read once, where
they are.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.families import Undefined
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, Words
from onnxplug_cpu.compiler.kernels.attention.block import ManyQueries
from onnxplug_cpu.compiler.kernels.attention.codes import as_floats, codes_of
from onnxplug_cpu.compiler.kernels.attention.few import FewQueries
from onnxplug_cpu.compiler.kernels.attention.in_use import InUse, in_use_words
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    PackMatrices,
    PackPanel,
    panel_way,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
    tile_shape,
)
from onnxplug_cpu.compiler.kernels.rows import Operand, byte_strides
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection

    from onnxplug_compiler.ir.caches import Starts

_SCORE_BYTES = 64 << 10
"""Scratch memory for the scores of a chunk, but for a last tile."""
_FEW_QUERIES = 6
"""Up to so many queries of a key head it does not pay to pack keys and values."""
_CHUNK_FLOPS = 4e6
_FLOPS = 40e9  # of one thread, a second: to guess how long work takes
_NARROW: Final = {"float16": "f16", "bfloat16": "bf16"}
_CODES: Final = {"int8": "i8", "uint8": "n4"}
"""Elements of keys and values in caches."""


def record_attention(
    recorder: Recorder,
    q: View,
    k: View,
    v: View,
    out: View,
    *,
    scale: float,
    mask: View | None = None,
    causal: bool = False,
    past_length: int = 0,
    softcap: float = 0.0,
    undefined: Undefined = "masked_zero",
    hides: bool = False,
    fill: float = -math.inf,
    label: str = "",
) -> None:
    """See ``families.Attention.record_attention``; of float32, but that keys and values
    may both be of float16 or bfloat16.

    Raises:
        ValueError: shapes do not fit, another dtype, or a last axis is strided.
    """
    _check(q, k, v, out)
    if not out.size:
        return
    if mask is None and not causal and not k.strides[2] and not v.strides[2]:
        # of keys that are one, repeated, the softmax makes one with its value
        k, v = _first_key(k), _first_key(v)
    sizes = _Sizes.of(q, k, v)
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    label = label or (
        f"Attention {sizes.batches}×{sizes.heads}×{sizes.queries}×{sizes.keys}"
        f"×{sizes.size}"
    )
    work = _Work(recorder, sizes, q, k, v, out, mask, scale, softcap, label)
    work.causal, work.past = causal, past_length
    work.undefined, work.hides, work.fill = undefined, hides, fill
    if sizes.queries * (sizes.group if sizes.queries == 1 else 1) <= _FEW_QUERIES:
        work.record_few()
    else:
        work.record_blocks()


def record_cached_attention(
    recorder: Recorder,
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
    label: str = "",
) -> None:
    """See ``ir.caches.Caches.record_cached_attention``; of dtypes as those of
    :func:`record_attention`, and keys and values that are codes.

    Raises:
        ValueError: shapes do not fit, another dtype, or a last axis is strided.
    """
    if not out.size:
        return
    is_few = q.shape[2] == 1 or q.shape[2] <= _FEW_QUERIES
    if v.dtype_name in _CODES and not is_few:
        # which panels are not packed of
        k, v = (as_floats(recorder, view) for view in (k, v))
    _check(q, k, v, out, {**_NARROW, **_CODES})
    sizes = _Sizes.of(q, k, v)
    if sinks is not None and (
        sinks.dtype_name != "float32" or sinks.shape != (sizes.heads,)
    ):
        raise ValueError(f"{sinks.dtype} {sinks.shape} are no sinks of {sizes.heads}")
    if mask is not None:
        mask = mask.broadcast_to((*q.shape[:3], k.shape[2]))
    label = (
        f"{label or 'Attention'} {sizes.batches}×{sizes.heads}×{sizes.queries}"
        f"×{sizes.keys}×{sizes.size}"
    )
    work = _Work(recorder, sizes, q, k, v, out, mask, scale, softcap, label)
    work.causal, work.undefined = causal, "masked_zero"
    work.in_use = starts, window, sinks
    if is_few:
        work.record_few()
    else:
        work.record_blocks()


def _first_key(view: View) -> View:
    batches, heads, keys, size = view.shape
    return view.slice((0, 0, 0, 0), (batches, heads, min(keys, 1), size))


def _check(
    q: View, k: View, v: View, out: View, taken: Collection[str] = _NARROW
) -> None:
    for name, view in (("q", q), ("k", k), ("v", v), ("out", out)):
        wanted = v.dtype_name if name == "k" else "float32"
        narrow = name == "v" and view.dtype_name in taken
        if (view.dtype_name != wanted and not narrow) or len(view.shape) != 4:
            raise ValueError(
                f"{name} of attention is {view.dtype} {view.shape}; expected {wanted} "
                f"of rank 4"
            )
        if view.shape[3] > 1 and view.strides[3] != 1:
            raise ValueError(
                f"{name} of attention has the strides {view.strides}; expected 1 in "
                f"the last axis: copy it"
            )
    batches, heads, queries, size = q.shape
    _, kv_heads, keys, _ = v.shape
    width = codes_of(v)
    if (
        (*k.shape[:3], codes_of(k)) != (batches, kv_heads, keys, size)
        or v.shape[0] != batches
        or out.shape != (batches, heads, queries, width)
        or (heads and (not kv_heads or heads % kv_heads))
    ):
        raise ValueError(
            f"attention of {q.shape}, {k.shape} and {v.shape} does not give {out.shape}"
        )


class _Sizes(NamedTuple):
    batches: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    width: int

    @classmethod
    def of(cls, q: View, k: View, v: View) -> _Sizes:
        batches, heads, queries, size = q.shape
        _, kv_heads, keys, _ = k.shape
        return cls(batches, heads, kv_heads, queries, keys, size, codes_of(v))

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.kv_heads

    @property
    def flops(self) -> int:
        """Operations of the two products."""
        rows = self.batches * self.heads * self.queries
        return 2 * rows * self.keys * (self.size + self.width)


class _Work:
    """Attention while it is recorded."""

    causal = False
    past = 0
    undefined: Undefined = "nan"
    hides = False
    fill = -math.inf
    in_use: tuple[Starts, int | None, View | None] | None = None

    def __init__(
        self,
        recorder: Recorder,
        sizes: _Sizes,
        q: View,
        k: View,
        v: View,
        out: View,
        mask: View | None,
        scale: float,
        softcap: float,
        label: str,
    ) -> None:
        self.recorder, self.sizes = recorder, sizes
        self.q, self.k, self.v, self.out, self.mask = q, k, v, out, mask
        self.scale, self.softcap = scale, softcap
        self.label = label

    def _mask_operand(self) -> Operand | None:
        return None if self.mask is None else Operand.of("mask", self.mask, 3)

    def _mask_words(self) -> dict[str, Word]:
        if self.mask is None:
            return {}
        strides = byte_strides(self.mask)
        return {
            "mask": self.mask.address,
            "mask_batch": strides[0],
            "mask_head": strides[1],
            "mask_row": strides[2],
            "mask_spacing": strides[3],
        }

    def _strides(self, name: str, view: View) -> dict[str, Word]:
        batch, head, row, _ = byte_strides(view)
        return {
            name: view.address,
            f"{name}_batch": batch,
            f"{name}_head": head,
            f"{name}_row": row,
        }

    def _cache(self) -> InUse | None:
        return None if self.in_use is None else InUse.of(*self.in_use)

    def _cache_words(self, group: int = 1) -> dict[str, Word]:
        return {} if self.in_use is None else in_use_words(*self.in_use, group)

    def _factor(self) -> str:
        """The element of keys and values, if it is not f32."""
        return {**_NARROW, **_CODES}.get(self.k.dtype_name, "")

    def _nbytes(self) -> int:
        return self.q.nbytes + self.k.nbytes + self.v.nbytes + self.out.nbytes

    # few queries

    def record_few(self) -> None:
        """One command that reads keys and values where they are."""
        sizes = self.sizes
        heads, group, queries = sizes.heads, sizes.group, sizes.queries
        q, out, mask = self.q, self.out, self.mask
        if queries == 1 and group > 1:
            # the query heads of a key head are its queries
            q, out = (_grouped(view, group) for view in (q, out))
            mask = None if mask is None else _grouped(mask, group)
            heads, queries, group = sizes.kv_heads, group, 1
        self.q, self.out, self.mask = q, out, mask
        row = _padded_row(sizes.keys)
        scratch, distance = worker_memory(self.recorder, 4 * row * queries)
        grouped = self.sizes.queries == 1
        form = FewQueries(
            self.causal and not grouped,
            self.softcap != 0.0,
            self.undefined,
            self._mask_operand(),
            self.hides,
            self.fill,
            self._cache(),
            self._factor(),
        )
        keys = sizes.keys
        if self.causal and grouped and self.in_use is None:
            keys = min(keys, self.past + 1)
        words: dict[str, Word] = {
            **self._strides("q", q),
            **self._strides("k", self.k),
            **self._strides("v", self.v),
            **self._strides("out", out),
            **self._mask_words(),
            "heads": heads,
            "group": group,
            "queries": queries,
            "keys": keys,
            "size": sizes.size,
            "width": sizes.width,
            "past": self.past,
            "scale": _bits(self.scale),
            "softcap": _bits(self.softcap),
            "scores": scratch,
            "scores_distance": distance,
            "score_row": 4 * row,
            **self._cache_words(self.sizes.group if grouped else 1),
        }
        call(
            self.recorder,
            Kernel(form),
            words,
            chunks=sizes.batches * heads,
            label=self.label,
            flops=sizes.flops,
            nbytes=self._nbytes(),
        )

    # many queries

    def record_blocks(self) -> None:
        """A chunk packs the keys and values of a head and computes all its queries; or,
        where there are too few heads for the threads, all are packed first, and a chunk
        computes some queries."""
        recorder, sizes = self.recorder, self.sizes
        shape = tile_shape(recorder.target.isa)
        panel = shape.vectors * VECTOR_BYTES
        keys = _Packing(self.k.transpose((0, 1, 3, 2)), panel)
        values = _Packing(self.v, panel)
        tiles = -(-sizes.queries // shape.rows)
        tile_rows = -(-sizes.queries // tiles)
        tall_tiles = sizes.queries - tiles * (tile_rows - 1)
        row = _padded_row(-(-4 * sizes.keys // panel) * panel // 4)
        parts = self._parts(tiles, tile_rows, 4 * row)
        rows = -(-tiles // parts) * tile_rows
        q_row = _padded_row(sizes.size)
        kv_heads = sizes.batches * sizes.kv_heads
        together = kv_heads >= max(
            fewest_chunks(sizes.flops / _FLOPS),
            4 * recorder.target.workers if recorder.target.workers > 1 else 1,
        )
        room = 4 * rows * (q_row + row) + tile_rows * panel
        if together:
            room += keys.nbytes + values.nbytes
        packed = self._packed(keys, values, together=together)
        scratch, distance = worker_memory(recorder, room)
        low = tile_rows - 1 if tall_tiles < tiles else tile_rows

        words: dict[str, Word] = {
            **self._strides("q", self.q),
            **self._strides("out", self.out),
            **self._strides("k", self.k),
            **self._strides("v", self.v),
            **self._mask_words(),
            **packed,
            **self._size_words(),
            "past": self.past,
            "scale": _bits(self.scale),
            "softcap": _bits(self.softcap),
            "parts": parts,
            "tiles": tiles,
            "tall_tiles": tall_tiles,
            "tile_rows": tile_rows,
            "panel": panel,
            "chunk_heads": sizes.group if together else 1,
            "chunk_parts": parts if together else 1,
            "prefetch": int(
                together and 4 * (keys.nbytes + values.nbytes) <= recorder.target.isa.l2
            ),
            "keys_head": keys.nbytes,
            "keys_tail": keys.tail,
            "values_head": values.nbytes,
            "values_tail": values.tail,
            **self._tiles(shape.vectors, tile_rows, low, keys, values),
            "scratch": scratch,
            "scratch_distance": distance,
            "scratch_rows": rows,
            "q_row_packed": 4 * q_row,
            "score_row": 4 * row,
            **self._cache_words(),
        }
        form = ManyQueries(
            self.causal,
            self.softcap != 0.0,
            self.undefined,
            self._mask_operand(),
            self.hides,
            self.fill,
            self._cache(),
            self._factor(),
        )
        call(
            recorder,
            Kernel(form),
            words,
            chunks=kv_heads if together else sizes.batches * sizes.heads * parts,
            label=self.label,
            flops=sizes.flops,
            nbytes=self._nbytes(),
        )

    def _size_words(self) -> dict[str, Word]:
        sizes = self.sizes
        return {
            "heads": sizes.heads,
            "group": sizes.group,
            "kv_heads": sizes.kv_heads,
            "queries": sizes.queries,
            "keys": sizes.keys,
            "size": sizes.size,
            "width": sizes.width,
        }

    def _packed(
        self, keys: _Packing, values: _Packing, *, together: bool
    ) -> dict[str, Word]:
        """How keys and values are packed: by chunks, or by commands before."""
        if together:
            return {
                "packed_keys": 0,
                "packed_values": 0,
                "pack_keys": Code(keys.kernel),
                "pack_values": Code(values.kernel),
            }
        return {
            "packed_keys": keys.record(self.recorder, f"{self.label}: pack keys"),
            "packed_values": values.record(self.recorder, f"{self.label}: pack values"),
            "pack_keys": 0,
            "pack_values": 0,
        }

    def _tiles(
        self, vectors: int, rows: int, low: int, keys: _Packing, values: _Packing
    ) -> dict[str, Word]:
        """The functions of tiles of so many rows, and of *low* ones."""
        chains = chains_of(self.recorder.target.isa, rows * vectors)
        tails = {
            "tile": vectors,
            "keys_tile": keys.tail // VECTOR_BYTES,
            "values_tile": values.tail // VECTOR_BYTES,
        }
        return {
            f"{name}{suffix}": Code(
                Kernel(TileProduct("f32", max(height, 1), width, chains))
            )
            for name, width in tails.items()
            for suffix, height in (("", rows), ("_low", low))
        }

    def _parts(self, tiles: int, tile_rows: int, row_bytes: int) -> int:
        """Into how many chunks the queries of a head are divided."""
        sizes, workers = self.sizes, self.recorder.target.workers
        most = max(1, _SCORE_BYTES // (tile_rows * row_bytes))
        parts = -(-tiles // most)
        wanted = fewest_chunks(sizes.flops / _FLOPS)
        if workers > 1:
            wanted = max(wanted, min(4 * workers, int(sizes.flops / _CHUNK_FLOPS)))
        parts = max(parts, -(-wanted // (sizes.batches * sizes.heads)))
        return min(parts, tiles)


class _Packing:
    """How [B, Hkv, rows, columns] is packed into panels of columns.

    Attributes:
        nbytes: of a packed matrix, a multiple of 64.
        tail: bytes of a row of the last panel.
        kernel: packs a panel.
    """

    def __init__(self, matrix: View, panel: int) -> None:
        self.matrix, self.panel = matrix, panel
        _, _, rows, columns = matrix.shape
        self.panels = max(1, -(-4 * columns // panel))
        left = max(1, 4 * columns - (self.panels - 1) * panel)
        self.tail = -(-left // VECTOR_BYTES) * VECTOR_BYTES
        self.nbytes = rows * ((self.panels - 1) * panel + self.tail)
        way = panel_way("f32", matrix.strides[2], matrix.strides[3], columns)
        source = _NARROW.get(matrix.dtype_name, "")
        self.kernel = Kernel(PackPanel("f32", way, source))

    def record(self, recorder: Recorder, label: str) -> Address:
        """Pack all matrices; the address of the first one."""
        batches, heads, rows, columns = self.matrix.shape
        strides = byte_strides(self.matrix)
        target = recorder.temporary(
            np.dtype(np.float32), (batches * heads, self.nbytes // 4)
        )
        wanted = min(4 * recorder.target.workers, max(1, self.matrix.nbytes >> 16))
        parts = min(self.panels, -(-wanted // (batches * heads)))
        call(
            recorder,
            Kernel(PackMatrices()),
            {
                "source": self.matrix.address,
                "batch0": strides[0],
                "batch1": strides[1],
                "row": strides[2],
                "column": strides[3],
                "target": target.address,
                "target_batch": self.nbytes,
                "rows": rows,
                "rows_together": max(rows, 1),
                "columns": columns,
                "panel": self.panel,
                "element": 4,
                "taps": 1,
                "offsets": Words((0,)),
                "batches1": heads,
                "parts": parts,
                "pack": Code(self.kernel),
            },
            chunks=batches * heads * parts,
            label=label,
            nbytes=2 * self.matrix.nbytes,
        )
        return target.address


def _grouped(view: View, group: int) -> View:
    """[B, H, 1, n] as [B, H / group, group, n]."""
    batches, heads, _, size = view.shape
    batch, head, _, step = view.strides
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (batches, heads // group, group, size),
        (batch, head * group, head, step),
    )


def _padded_row(elements: int) -> int:
    """Elements from one row of scratch memory to the next.

    Rows that begin at the same place of different pages would share a few sets of the
    first-level cache.
    """
    row = -(-elements // 16) * 16
    return row + 16 if row % 128 == 0 else row


def _bits(number: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", number))[0])
