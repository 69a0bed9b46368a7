"""Attention of a few queries: keys and values are read once, where they are.

Reading them from memory is what takes the time; nothing is packed.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_cpu.compiler.codegen.emit import F32, I64, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.kernels.attention.scores import (
    Row,
    Rows,
    Undefined,
    mask_words,
)
from onnxplug_cpu.compiler.kernels.rows import Operand, move, opaque, spread
from onnxplug_cpu.compiler.target.isa import LANES, Isa

_BLOCK = 256
"""Keys that are summed in one chain, and whose values should stay in the cache."""
_KEYS = 4
_VECTORS = 4
"""Vectors of a value that are summed at a time."""


_WORDS = (
    *("q", "q_batch", "q_head", "q_row", "k", "k_batch", "k_head", "k_row"),
    *("v", "v_batch", "v_head", "v_row", "out", "out_batch", "out_head", "out_row"),
    *("heads", "group", "queries", "keys", "size", "width", "past"),
    *("scale", "softcap", "scores", "scores_distance", "score_row"),
)


class FewQueries(Generator):
    """A chunk is one head.

    Words, all sizes in elements and all strides in bytes:

    - queries, keys, values and the output with their strides over batches, heads and
      rows;
    - ``heads``, of which ``group`` share one key head; ``queries``, ``keys``, their
      ``size`` and the ``width`` of a value; the ``past`` keys;
    - ``scale`` and ``softcap``, the bits of f32;
    - ``scores``, scratch memory of a worker.
    """

    causal: bool
    capped: bool
    undefined: Undefined
    mask: Operand | None
    hides: bool
    fill: float

    @property
    def words(self) -> tuple[str, ...]:
        return (*_WORDS, *mask_words(self))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(KernelFunction(module, name, self.words), isa, self).write()


class _Writer:
    def __init__(self, k: KernelFunction, isa: Isa, form: FewQueries) -> None:
        self.k, self.f, self.form = k, k.function, form
        self.rows = Rows(k, isa, form)
        self.vector = F32.vector(LANES)

    def write(self) -> None:
        k, f = self.k, self.f
        heads = k.integer("heads")
        self.batch, self.head = k.chunk // heads, k.chunk % heads
        self.queries, self.keys = k.integer("queries"), k.integer("keys")
        self.score_row = k.integer("score_row")
        self.scores = move(
            f, k.pointer("scores"), k.worker * k.integer("scores_distance")
        )
        kv_head = self.head // k.integer("group")
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
        q_row, k_row = k.integer("q_row"), k.integer("k_row")
        size = k.integer("size")
        full = size - size % LANES
        ends = f.first_lanes(size - full, LANES)
        scale = k.word("scale", F32)

        def dots(query: Value, rows: Sequence[Value]) -> list[Value]:
            def step(
                j: Value, lanes: Value | None, sums: Sequence[Value]
            ) -> list[Value]:
                def load(row: Value) -> Value:
                    place = f.at(row, j, F32)
                    if lanes is None:
                        return f.load(place, self.vector)
                    return f.load_masked(place, lanes, self.vector)

                x = load(query)
                return [
                    f.fma(x, load(row), total)
                    for row, total in zip(rows, sums, strict=True)
                ]

            zeros = [f.zero(self.vector)] * len(rows)
            sums = f.loop(full, lambda j, *s: step(j, None, s), zeros, step=LANES)
            return f.branch(
                full.compare("lt", size),
                lambda: step(full, ends, sums),
                lambda: sums,
            )

        many = self.keys - self.keys % _KEYS

        def several(t: Value) -> None:
            rows = [opaque(f, move(f, keys, (t + u) * k_row)) for u in range(_KEYS)]

            def one(i: Value) -> None:
                sums = _sums(f, dots(move(f, q, i * q_row), rows))
                target = move(f, self.scores, i * self.score_row)
                f.store(sums * f.splat(scale, _KEYS), f.at(target, t, F32))

            f.loop(self.queries, one)

        def single(t: Value) -> None:
            row = move(f, keys, t * k_row)

            def one(i: Value) -> None:
                (total,) = dots(move(f, q, i * q_row), [row])
                value = f.lane(spread(f, total, lambda a, b: a + b), 0)
                target = move(f, self.scores, i * self.score_row)
                f.store(value * scale, f.at(target, t, F32))

            f.loop(self.queries, one)

        f.loop(many, several, step=_KEYS)
        f.loop(self.keys, single, start=many)

    def _softmax(self) -> None:
        k, f = self.k, self.f

        def row(i: Value) -> None:
            count = self.keys
            if self.form.causal:
                count = f.minimum(count, k.integer("past") + i + 1)
            mask = self.rows.mask_at(k, self.batch, self.head, i)
            scores = move(f, self.scores, i * self.score_row)
            self.rows.softmax([Row(scores, mask, count)], count, self.keys)

        f.loop(self.queries, row)

    def _values(self, values: Value, out: Value) -> None:
        k, f = self.k, self.f
        v_row, out_row, width = (
            k.integer(name) for name in ("v_row", "out_row", "width")
        )
        wide = width - width % (_VECTORS * LANES)

        def block(begin: Value) -> None:
            end = f.minimum(begin + _BLOCK, self.keys)
            pairs = end - (end - begin) % 2
            first = begin.compare("eq", 0)

            def query(i: Value) -> None:
                weights = move(f, self.scores, i * self.score_row)
                target = move(f, out, i * out_row)

                def columns(column: Value, masks: Sequence[Value | None]) -> None:
                    source = opaque(f, f.at(values, column, F32))
                    place = opaque(f, f.at(target, column, F32))

                    def add(t: Value, sums: Sequence[Value]) -> list[Value]:
                        weight = f.load_splat(f.at(weights, t, F32), self.vector)
                        row = opaque(f, move(f, source, t * v_row))
                        return [
                            f.fma(weight, self._load(row, u, mask), total)
                            for u, (mask, total) in enumerate(
                                zip(masks, sums, strict=True)
                            )
                        ]

                    number = len(masks)

                    def pair(t: Value, *sums: Value) -> list[Value]:
                        return [*add(t, sums[:number]), *add(t + 1, sums[number:])]

                    zeros = [f.zero(self.vector)] * number
                    sums = f.loop(pairs, pair, zeros * 2, start=begin, step=2)
                    even = f.loop(
                        end, lambda t, *s: add(t, s), sums[:number], start=pairs
                    )
                    totals = [a + b for a, b in zip(even, sums[number:], strict=True)]
                    before = f.branch(
                        first,
                        lambda: zeros,
                        lambda: [
                            self._load(place, u, mask) for u, mask in enumerate(masks)
                        ],
                    )
                    for u, mask in enumerate(masks):
                        value = totals[u] + before[u]
                        at = f.at(place, LANES * u, F32)
                        if mask is None:
                            f.store(value, at)
                        else:
                            f.store_masked(value, at, mask)

                f.loop(
                    wide,
                    lambda column: columns(column, [None] * _VECTORS),
                    step=_VECTORS * LANES,
                )
                f.loop(
                    width,
                    lambda column: columns(
                        column, [f.first_lanes(width - column, LANES)]
                    ),
                    start=wide,
                    step=LANES,
                )

            f.loop(self.queries, query)

        # no keys at all give zeros
        f.loop(f.maximum(self.keys, f.value(1, I64)), block, step=_BLOCK)

    def _load(self, row: Value, number: int, mask: Value | None) -> Value:
        f = self.f
        place = f.at(row, LANES * number, F32)
        if mask is None:
            return f.load(place, self.vector)
        return f.load_masked(place, mask, self.vector)


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
