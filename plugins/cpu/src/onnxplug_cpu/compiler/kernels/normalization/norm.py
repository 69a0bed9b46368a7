"""Normalisation of rows: LayerNormalization, RMSNormalization and their relatives.

Mean and variance come from two passes over the row in cache, the second of which also
corrects the mean (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the
sample variance", 1983), so that no digits cancel.  Several rows go side by side, so
that no instruction waits for the one before.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
    Generator,
    Integer,
    Kernel,
    KernelWords,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.rows import (
    Axes,
    Operand,
    Operands,
    Walk,
    byte_strides,
    chunk_size,
    fewest_parts,
    spread,
    walk_words,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_NANOSECONDS = 0.25
"""What one element takes, about."""
_BLOCK = 64 * LANES
"""Elements whose sum is one addend of the row's, to keep long sums accurate."""


def record_norm(
    recorder: Recorder,
    x: View,
    out: View,
    *,
    epsilon: float,
    centered: bool = True,
    scale: View | None = None,
    bias: View | None = None,
    mean: View | None = None,
    inverse: View | None = None,
    label: str = "",
) -> None:
    """See ``families.Rows.record_norm``.

    Of float32; fastest with stride 1 in the last axis of all views, of which *x* and
    *out* may be the same.  Several normalised axes must have been made one by
    :meth:`View.reshape`.
    """
    if not out.size:
        return
    given = _given(x, out, scale, bias)
    columns = [
        (name, view)
        for name, view in (("mean", mean), ("inverse", inverse))
        if view is not None
    ]
    _check(x.shape, given)
    _check((*x.shape[:-1], 1), columns)
    if fewest_parts(x.shape[-1], _NANOSECONDS) > 1:
        # few rows are, and what they take is not imported for others
        from onnxplug_cpu.compiler.kernels.normalization.long_rows import (
            record_long_norm,
        )

        record_long_norm(
            recorder,
            x,
            out,
            epsilon=epsilon,
            centered=centered,
            scale=scale,
            bias=bias,
            mean=mean,
            inverse=inverse,
            label=label or f"{_name(centered)} {'×'.join(map(str, x.shape))}",
        )
        return
    operands = tuple(Operand.of(name, view, -1) for name, view in given)
    views = [view for _, view in given]
    rows = Axes.collapsed(
        x.shape[:-1],
        [byte_strides(view)[:-1] for view in (*views, *(v for _, v in columns))],
    )
    form = _Norm(centered, rows.rank, operands, tuple(name for name, _ in columns))
    each = _NANOSECONDS * x.shape[-1]
    chunk_rows = chunk_size(
        rows.count, each, recorder.target.workers, form.side(recorder.target.isa)
    )
    words: dict[str, Word] = {
        "epsilon": struct.unpack("<I", struct.pack("<f", epsilon))[0],
        "count": x.shape[-1],
        "rows": rows.count,
        "chunk_rows": chunk_rows,
        **Operands.values(operands, views, -1),
        **{name: view.address for name, view in columns},
        **rows.words("row"),
    }
    call(
        recorder,
        Kernel(form),
        words,
        chunks=-(-rows.count // chunk_rows),
        label=label or f"{_name(centered)} {'×'.join(map(str, x.shape))}",
        flops=8 * x.size,
        nbytes=sum(4 * view.size for view in (x, out)),
    )


def _given(
    x: View,
    out: View,
    scale: View | None,
    bias: View | None,
) -> list[tuple[str, View]]:
    """What is read and written along rows, by name."""
    return [
        ("x", x),
        ("out", out),
        *(
            (name, view.broadcast_to(x.shape))
            for name, view in (("scale", scale), ("bias", bias))
            if view is not None
        ),
    ]


def _check(shape: Sequence[int], views: Sequence[tuple[str, View]]) -> None:
    for name, view in views:
        if view.shape != shape or view.dtype_name != "float32":
            raise ValueError(
                f"{name} of a normalisation is {view.dtype} {view.shape}; expected "
                f"float32 {shape}"
            )


def _name(centered: bool) -> str:
    return "LayerNormalization" if centered else "RMSNormalization"


class NormWords(KernelWords):
    """Words of :class:`_Norm`; those of operands, columns and the walk follow."""

    epsilon: Float
    count: Integer
    rows: Integer
    chunk_rows: Integer


class _Norm(Generator):
    """Normalises rows; a chunk is some rows.

    Attributes:
        operands: what is read and written along the row; x and out come first.
        columns: what is written once for a row.
    """

    centered: bool
    rank: int
    operands: tuple[Operand, ...]
    columns: tuple[str, ...]

    def side(self, isa: Isa) -> int:
        """How many rows go side by side."""
        return 4 if isa.registers * isa.vector_bytes >= 2048 else 2

    @property
    def words(self) -> tuple[str, ...]:
        return (*NormWords.names, *self._more)

    @property
    def _more(self) -> tuple[str, ...]:
        return (
            *Operands.words(self.operands),
            *self.columns,
            *walk_words("row", self.rank, len(self.operands) + len(self.columns)),
        )

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(NormWords(module, name, self._more), isa, self)


def _write(k: NormWords, isa: Isa, form: _Norm) -> None:
    f = k.function
    operands = Operands(k, form.operands, LANES)
    count, rows, chunk_rows = k.count, k.rows, k.chunk_rows
    epsilon = f.splat(k.epsilon, LANES)
    begin = k.chunk * chunk_rows
    end = f.minimum(begin + chunk_rows, rows)
    names = [*(operand.name for operand in form.operands), *form.columns]
    walk = Walk(k, "row", form.rank, len(names))
    size = f.splat(f.convert(count, F32), LANES)

    def side_by_side(number: int) -> Callable[..., list[Value]]:
        def several(_: Value, *state: Value) -> list[Value]:
            here = list(state)
            streams = []
            for _unused in range(number):
                streams.append(walk.pointers(here))
                here = walk.advance(here)
            _Rows(f, form, names, operands, streams, count, size, epsilon).run()
            return here

        return several

    number = form.side(isa)
    many = end - (end - begin) % number
    state = walk.start([k.pointer(name) for name in names], begin)
    state = f.loop(many, side_by_side(number), state, start=begin, step=number)
    f.loop(end, side_by_side(1), state, start=many)
    f.finish()


class _Rows:
    """Rows side by side; *streams* are their operands' addresses, by *names*."""

    def __init__(
        self,
        f: Function,
        form: _Norm,
        names: Sequence[str],
        operands: Operands,
        streams: Sequence[Sequence[Value]],
        count: Value,
        size: Value,
        epsilon: Value,
    ) -> None:
        self.f, self.form, self.operands, self.streams = f, form, operands, streams
        self.count, self.size, self.epsilon = count, size, epsilon
        self.number = {name: index for index, name in enumerate(names)}
        self.type = F32.vector(LANES)
        self.full = count - count % LANES

    def run(self) -> None:
        """All passes."""
        f = self.f
        sums = self._sweep(self._first_turn, [f.zero(self.type)] * len(self.streams))
        means: list[Value] = []
        squares = self._averages(sums)
        if self.form.centered:
            means, squares = self._moments(squares)
        inverses = [1.0 / f.unary("sqrt", square + self.epsilon) for square in squares]
        for name, values in (("mean", means), ("inverse", inverses)):
            if name in self.number:
                for stream, value in zip(self.streams, values, strict=True):
                    f.store(f.lane(value, 0), stream[self.number[name]])
        self._sweep(functools.partial(self._last_turn, means, inverses), [])

    def _moments(self, rough: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Means and variances, from means that are rounded."""
        f = self.f
        zeros = [f.zero(self.type)] * (2 * len(rough))
        sums = self._sweep(functools.partial(self._deviations, rough), zeros)
        found = self._averages(sums)
        errors, squares = found[: len(rough)], found[len(rough) :]
        squares = [s - e * e for s, e in zip(squares, errors, strict=True)]
        # the rounded square of a rounded mean can be the larger
        squares = [f.select(s < 0.0, f.zero(s.type), s) for s in squares]
        return [mean + e for mean, e in zip(rough, errors, strict=True)], squares

    def _deviations(
        self,
        means: Sequence[Value],
        places: Sequence[Sequence[Value]],
        lanes: Value | None,
        *sums: Value,
    ) -> list[Value]:
        """Sums of what the elements are apart from *means*, and of its squares."""
        f, each = self.f, range(len(means))
        xs = [
            self.operands.load(0, place, lanes) - mean
            for place, mean in zip(places, means, strict=True)
        ]
        if lanes is not None:
            xs = [f.select(lanes, x, 0.0) for x in xs]
        return [
            *(sums[i] + xs[i] for i in each),
            *(f.fma(xs[i], xs[i], sums[len(xs) + i]) for i in each),
        ]

    def _last_turn(
        self,
        means: Sequence[Value],
        inverses: Sequence[Value],
        places: Sequence[Sequence[Value]],
        lanes: Value | None,
    ) -> list[Value]:
        """Writes the results."""
        f = self.f
        xs = [self.operands.load(0, place, lanes) for place in places]
        if means:
            xs = [x - mean for x, mean in zip(xs, means, strict=True)]
        xs = [x * inverse for x, inverse in zip(xs, inverses, strict=True)]
        scales, biases = (
            self._load_shared(name, places, lanes) for name in ("scale", "bias")
        )
        for x, place, scale, bias in zip(xs, places, scales, biases, strict=True):
            if scale is not None and bias is not None:
                x = f.fma(x, scale, bias)
            elif scale is not None:
                x = x * scale
            elif bias is not None:
                x = x + bias
            self.operands.store(1, x, place, lanes)
        return []

    def _load_shared(
        self, name: str, places: Sequence[Sequence[Value]], lanes: Value | None
    ) -> list[Value | None]:
        number = self.number.get(name)
        if number is None:
            return [None] * len(places)
        return [self.operands.load(number, place, lanes) for place in places]

    def _first_turn(
        self, places: Sequence[Sequence[Value]], lanes: Value | None, *sums: Value
    ) -> list[Value]:
        """Sums of the elements or of their squares."""
        f = self.f
        after = []
        for place, total in zip(places, sums, strict=True):
            x = self.operands.load(0, place, lanes)
            after.append(total + x if self.form.centered else f.fma(x, x, total))
        return after

    def _averages(self, sums: Sequence[Value]) -> list[Value]:
        f = self.f
        return [spread(f, s, lambda a, b: a + b) / self.size for s in sums]

    def _sweep(
        self, turn: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> list[Value]:
        """Calls a turn for all elements of the rows; sums what it returns."""
        f = self.f

        def block(begin: Value, *totals: Value) -> list[Value]:
            end = f.minimum(begin + _BLOCK, self.full)

            def whole(index: Value, *sums: Value) -> Sequence[Value]:
                return turn(self._at(index), None, *sums)

            starts = [f.zero(total.type) for total in totals]
            sums = f.loop(end, whole, starts, start=begin, step=LANES, nonempty=True)
            return [a + b for a, b in zip(totals, sums, strict=True)]

        def part(index: Value, *sums: Value) -> Sequence[Value]:
            lanes = f.first_lanes(self.count - index, LANES)
            return turn(self._at(index), lanes, *sums)

        carried = f.loop(self.full, block, carried, step=_BLOCK)
        return f.loop(self.count, part, carried, start=self.full, step=LANES)

    def _at(self, index: Value) -> list[list[Value]]:
        wide = len(self.form.operands)
        return [self.operands.at(stream[:wide], index) for stream in self.streams]
