"""Attention of a few queries: keys and values are read once, where they are.

Reading them from memory is what takes the time; nothing is packed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from onnxplug_compiler.ir.families import Undefined
from onnxplug_cpu.compiler.codegen import emit
from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I64,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import stored
from onnxplug_cpu.compiler.codegen.math.narrow import widened
from onnxplug_cpu.compiler.kernels.attention.in_use import Cache, InUse, seen
from onnxplug_cpu.compiler.kernels.attention.scores import Row, Rows, mask_words
from onnxplug_cpu.compiler.kernels.rows import Operand, move, opaque, spread
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_BLOCK = 256
"""Keys that are summed in one chain, and whose values should stay in the cache."""
_KEYS = 4
_VECTORS = 4
"""Vectors of a value that are summed at a time."""


class FewWords(KernelWords):
    """Words of :class:`FewQueries`, all sizes in elements and all strides in bytes.

    - queries, keys, values and the output with their strides over batches, heads and
      rows;
    - ``heads``, of which ``group`` share one key head; ``queries``, ``keys``, their
      ``size`` and the ``width`` of a value; the ``past`` keys;
    - ``scale`` and ``softcap``;
    - ``scores``, scratch memory of a worker.
    """

    q: Pointer
    q_batch: Integer
    q_head: Integer
    q_row: Integer
    k: Pointer
    k_batch: Integer
    k_head: Integer
    k_row: Integer
    v: Pointer
    v_batch: Integer
    v_head: Integer
    v_row: Integer
    out: Pointer
    out_batch: Integer
    out_head: Integer
    out_row: Integer
    heads: Integer
    group: Integer
    queries: Integer
    keys: Integer
    size: Integer
    width: Integer
    past: Integer
    scale: Float
    softcap: Float
    scores: Pointer
    scores_distance: Integer
    score_row: Integer


class FewQueries(Generator):
    """A chunk is one head.

    Attributes:
        factor: of keys and values, which are widened in registers: ``f16``, ``bf16``,
            ``i8``, or ``n4``, two codes of 4 bits in a byte, the lower first, larger
            by 8; empty if it is f32.
    """

    causal: bool
    capped: bool
    undefined: Undefined
    mask: Operand | None
    hides: bool
    fill: float
    cache: InUse | None = None
    factor: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return (*FewWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        return (*mask_words(self), *(self.cache.words if self.cache else ()))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Head(FewWords(module, name, self._more), isa, self).write()


class _Keys(NamedTuple):
    """Keys that are summed in one chain, in pairs, and what is left.

    Attributes:
        first, end: from which one to which.
        pairs: where those in pairs end.
        are_first: whether none are before them.
    """

    first: Value
    end: Value
    pairs: Value
    are_first: Value


class _Head:
    """Scores of all keys, their softmax, and the weighted sums of values."""

    def __init__(self, k: FewWords, isa: Isa, form: FewQueries) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.isa, self.rows = isa, Rows(k, isa, form)
        self.vector = F32.vector(LANES)
        self.pairs = form.factor == "n4"
        self.factor = stored("u8" if self.pairs else form.factor or "f32")
        if self.pairs:
            self.factor = Type("u8", LANES // 2)

    def write(self) -> None:
        k, f = self.k, self.f
        heads = k.heads
        self.batch, self.head = k.chunk // heads, k.chunk % heads
        self.queries, self.keys = k.queries, k.keys
        self.past = k.past
        self.cache = None
        if self.form.cache is not None:
            self.cache = Cache(k, self.form.cache, self.batch)
            self.keys, self.past = self.cache.used(self.keys), self.cache.first
        self.score_row = k.score_row
        self.scores = move(f, k.scores, k.worker * k.scores_distance)
        kv_head = self.head // k.group
        self._scores(self._matrix("q", self.head), self._matrix("k", kv_head))
        self._softmax()
        self._values(self._matrix("v", kv_head), self._matrix("out", self.head))
        f.finish()

    def _matrix(self, name: str, head: Value) -> Value:
        k = self.k
        offset = self.batch * k.integer(f"{name}_batch")
        offset = offset + head * k.integer(f"{name}_head")
        return move(self.f, k.pointer(name), offset)

    def _scores(self, q: Value, keys: Value) -> None:
        k, f = self.k, self.f
        q_row, k_row = k.q_row, k.k_row
        self.size = k.size
        self.full = self.size - self.size % LANES
        self.ends = f.first_lanes(self.size - self.full, LANES)
        scale = k.scale
        many = self.keys - self.keys % _KEYS

        def several(t: Value) -> None:
            rows = [opaque(f, move(f, keys, (t + u) * k_row)) for u in range(_KEYS)]

            def one(i: Value) -> None:
                sums = _sums(f, self._dots(move(f, q, i * q_row), rows))
                target = move(f, self.scores, i * self.score_row)
                f.store(sums * f.splat(scale, _KEYS), f.at(target, t, F32))

            f.loop(self.queries, one)

        def single(t: Value) -> None:
            row = move(f, keys, t * k_row)

            def one(i: Value) -> None:
                (total,) = self._dots(move(f, q, i * q_row), [row])
                value = f.lane(spread(f, total, lambda a, b: a + b), 0)
                target = move(f, self.scores, i * self.score_row)
                f.store(value * scale, f.at(target, t, F32))

            f.loop(self.queries, one)

        f.loop(many, several, step=_KEYS)
        f.loop(self.keys, single, start=many)

    def _dots(self, query: Value, rows: Sequence[Value]) -> list[Value]:
        """For each row of keys a vector whose lanes sum up to its score."""
        f = self.f

        def step(j: Value, lanes: Value | None, sums: Sequence[Value]) -> list[Value]:
            x = self._load(f.at(query, j, F32), lanes)
            return [
                f.fma(x, self._load_factor(row, j, lanes), total)
                for row, total in zip(rows, sums, strict=True)
            ]

        zeros = [f.zero(self.vector)] * len(rows)
        sums = f.loop(self.full, lambda j, *s: step(j, None, s), zeros, step=LANES)
        return f.branch(
            self.full.compare("lt", self.size),
            lambda: step(self.full, self.ends, sums),
            lambda: sums,
        )

    def _softmax(self) -> None:
        k, f = self.k, self.f

        def row(i: Value) -> None:
            count = self.keys
            if self.form.causal:
                count = seen(f, count, self.past + i + 1)
            mask = self.rows.mask_at(k, self.batch, self.head, i)
            scores = move(f, self.scores, i * self.score_row)
            sink = None
            if self.cache is not None:
                # heads that are queries stand at one place
                at = i if self.form.causal else f.value(0, I64)
                self.cache.hide(scores, at, self.keys)
                sink = self.cache.sink(self.head, i)
            self.rows.softmax([Row(scores, mask, count, sink)], count, self.keys)

        f.loop(self.queries, row)

    def _values(self, values: Value, out: Value) -> None:
        k, f = self.k, self.f
        self.v_row, self.out_row, self.width = k.v_row, k.out_row, k.width
        self.wide = self.width - self.width % (_VECTORS * LANES)

        def block(first: Value) -> None:
            end = f.minimum(first + _BLOCK, self.keys)
            pairs = end - (end - first) % 2
            keys = _Keys(first, end, pairs, first.compare("eq", 0))
            f.loop(self.queries, lambda i: self._query(keys, values, out, i))

        # no keys at all give zeros
        f.loop(f.maximum(self.keys, f.value(1, I64)), block, step=_BLOCK)

    def _query(self, keys: _Keys, values: Value, out: Value, number: Value) -> None:
        """The values of some keys, weighted for a query."""
        f = self.f
        weights = move(f, self.scores, number * self.score_row)
        target = move(f, out, number * self.out_row)
        columns = functools.partial(self._columns, keys, weights, values, target)

        def part(column: Value) -> None:
            columns(column, [f.first_lanes(self.width - column, LANES)])

        f.loop(
            self.wide,
            lambda column: columns(column, [None] * _VECTORS),
            step=_VECTORS * LANES,
        )
        f.loop(self.width, part, start=self.wide, step=LANES)

    def _columns(
        self,
        keys: _Keys,
        weights: Value,
        values: Value,
        target: Value,
        column: Value,
        masks: Sequence[Value | None],
    ) -> None:
        f, number = self.f, len(masks)
        source = opaque(f, self._element(values, column))
        place = opaque(f, f.at(target, column, F32))
        add = functools.partial(self._add, weights, source, masks)

        def pair(t: Value, *sums: Value) -> list[Value]:
            return [*add(t, *sums[:number]), *add(t + 1, *sums[number:])]

        zeros = [f.zero(self.vector)] * number
        sums = f.loop(keys.pairs, pair, zeros * 2, start=keys.first, step=2)
        even = f.loop(keys.end, add, sums[:number], start=keys.pairs)
        totals = [a + b for a, b in zip(even, sums[number:], strict=True)]
        before = f.branch(
            keys.are_first,
            lambda: zeros,
            lambda: self._vectors(place, masks),
        )
        for u, mask in enumerate(masks):
            value = totals[u] + before[u]
            at = f.at(place, LANES * u, F32)
            if mask is None:
                f.store(value, at)
            else:
                f.store_masked(value, at, mask)

    def _add(
        self,
        weights: Value,
        source: Value,
        masks: Sequence[Value | None],
        t: Value,
        *sums: Value,
    ) -> list[Value]:
        """*sums* with the weighted value of key *t*."""
        f = self.f
        weight = f.load_splat(f.at(weights, t, F32), self.vector)
        row = opaque(f, move(f, source, t * self.v_row))
        return [
            f.fma(weight, self._load_factor(row, LANES * u, mask), total)
            for u, (mask, total) in enumerate(zip(masks, sums, strict=True))
        ]

    def _vectors(self, row: Value, masks: Sequence[Value | None]) -> list[Value]:
        places = (self.f.at(row, LANES * u, F32) for u in range(len(masks)))
        return [self._load(*each) for each in zip(places, masks, strict=True)]

    def _load(self, place: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.f.load(place, self.vector)
        return self.f.load_masked(place, mask, self.vector)

    def _load_factor(
        self, row: Value, index: emit.Operand, mask: Value | None
    ) -> Value:
        """Elements of a row of keys or values from number *index* on, as f32."""
        f = self.f
        place = self._element(row, index)
        if not self.form.factor:
            return self._load(place, mask)
        if mask is not None and self.pairs:
            mask = f.shuffle(mask, mask, range(0, LANES, 2))
        raw = (
            f.load(place, self.factor, align=1)
            if mask is None
            else f.load_masked(place, mask, self.factor)
        )
        if self.form.factor in ("f16", "bf16"):
            return widened(f, self.isa, raw, self.form.factor)
        codes = f.convert(raw, Type("i32", self.factor.lanes))
        if self.pairs:
            lanes = [lane for n in range(LANES // 2) for lane in (n, LANES // 2 + n)]
            codes = f.shuffle(codes & 15, codes >> 4, lanes) - 8
        return f.convert(codes, self.vector)

    def _element(self, row: Value, index: emit.Operand) -> Value:
        """Where an element of a row of keys or values is."""
        if self.pairs:
            index = index >> 1 if isinstance(index, Value) else index // 2
        return self.f.at(row, index, self.factor)


def _sums(f: Function, vectors: Sequence[Value]) -> Value:
    """The sums of four vectors' lanes as a vector of four."""
    a, b, c, d = vectors
    half, quarter = LANES // 2, LANES // 4

    def join(x: Value, y: Value, size: int, pairs: Sequence[int]) -> Value:
        low = [lane + i for lane in pairs for i in range(size)]
        high = [lane + size + i for lane in pairs for i in range(size)]
        return f.shuffle(x, y, low) + f.shuffle(x, y, high)

    ab = join(a, b, half, (0, LANES))
    cd = join(c, d, half, (0, LANES))
    # quarters of a, b, c and d
    total = join(ab, cd, quarter, (0, half, LANES, LANES + half))
    for distance in (2, 1):
        total = total + f.shuffle(total, total, [i ^ distance for i in range(LANES)])
    return f.shuffle(total, total, [quarter * i for i in range(4)])
