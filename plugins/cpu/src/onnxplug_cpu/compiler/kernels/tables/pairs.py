"""Classes from what is said of each pair of them: votes, and coupled probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, F64, I8, I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.loop_nest import chunks

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_STEPS: Final = 100
_TOLERANCE: Final = 0.005
"""As of LIBSVM."""


def record_votes(
    recorder: Recorder, scores: View, labels: View, chosen: View, label: str
) -> None:
    """See ``tables.Tables.record_votes``."""
    rows, classes = scores.shape[0], labels.shape[0]
    if not rows:
        return
    count, each = chunks(recorder, rows, 3.0 * scores.size)
    votes = recorder.temporary(np.dtype(np.int64), (recorder.target.workers, classes))
    call(
        recorder,
        Kernel(_Votes()),
        {
            "rows": rows,
            "each": each,
            "classes": classes,
            "pairs": scores.address,
            "pairs_row": scores.strides[0] * scores.dtype.itemsize,
            "out": chosen.address,
            "out_row": chosen.strides[0] * chosen.dtype.itemsize,
            "scratch": votes.address,
            "labels": labels.address,
        },
        chunks=count,
        label=f"{label} votes {rows}×{classes}",
    )


def record_coupling(recorder: Recorder, pairs: View, out: View, label: str) -> None:
    """See ``tables.Tables.record_coupling``."""
    rows, classes = out.shape
    if not rows:
        return
    # a few steps suffice for most rows
    count, each = chunks(recorder, rows, 20.0 * rows * classes * classes)
    doubles = classes * (classes + 2)
    scratch = recorder.temporary(
        np.dtype(np.float64), (recorder.target.workers, doubles)
    )
    call(
        recorder,
        Kernel(_Coupling()),
        {
            "rows": rows,
            "each": each,
            "classes": classes,
            "pairs": pairs.address,
            "pairs_row": pairs.strides[0] * pairs.dtype.itemsize,
            "out": out.address,
            "out_row": out.strides[0] * out.dtype.itemsize,
            "scratch": scratch.address,
            "labels": 0,
        },
        chunks=count,
        label=f"{label} coupling {rows}×{classes}",
    )


class _Words(KernelWords):
    rows: Integer
    each: Integer
    classes: Integer
    pairs: Pointer
    pairs_row: Integer
    out: Pointer
    out_row: Integer
    scratch: Pointer
    labels: Pointer


class _Votes(Generator):
    """Each pair votes for one of its classes.  A chunk is some rows."""

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _Words(module, name)
        f = k.function
        k.keep(_Words.names)
        votes = f.at(k.scratch, k.worker * k.classes, I64)
        end = f.minimum((k.chunk + 1) * k.each, k.rows)

        def of_row(row: Value) -> None:
            pairs = f.at(k.pairs, row * k.pairs_row, I8)
            f.loop(k.classes, lambda i: f.store(f.zero(I64), f.at(votes, i, I64)))

            def first(i: Value, pair: Value) -> list[Value]:
                def second(j: Value, pair: Value) -> list[Value]:
                    wins = f.load(f.at(pairs, pair, F32), F32) > 0.0
                    place = f.at(votes, f.select(wins, i, j), I64)
                    f.store(f.load(place, I64) + 1, place)
                    return [pair + 1]

                return f.loop(k.classes, second, [pair], start=i + 1)

            f.loop(k.classes, first, [f.zero(I64)])

            def best(i: Value, most: Value, chosen: Value) -> list[Value]:
                own = f.load(f.at(votes, i, I64), I64)
                more = own > most
                return [f.select(more, own, most), f.select(more, i, chosen)]

            _, chosen = f.loop(k.classes, best, [f.value(-1, I64), f.zero(I64)])
            label = f.load(f.at(k.labels, chosen, I64), I64)
            f.store(label, f.at(k.out, row * k.out_row, I8))

        f.loop(end, of_row, start=k.chunk * k.each)
        f.finish()


class _Coupling(Generator):
    """A chunk is some rows."""

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Coupled(_Words(module, name)).write()


class _Coupled:
    """Writes the function: the matrix Q, its product with p, and p, of a row."""

    def __init__(self, k: _Words) -> None:
        self.k, self.f = k, k.function
        k.keep(_Words.names)
        self.classes = classes = k.classes
        self.q = self.f.at(k.scratch, k.worker * (classes * (classes + 2)), F64)
        self.product = self.f.at(self.q, classes * classes, F64)
        self.p = self.f.at(self.product, classes, F64)

    def write(self) -> None:
        f, k = self.f, self.k
        end = f.minimum((k.chunk + 1) * k.each, k.rows)
        f.loop(end, self._row, start=k.chunk * k.each)
        f.finish()

    def _row(self, row: Value) -> None:
        f, k = self.f, self.k
        self._fill(f.at(k.pairs, row * k.pairs_row, I8))
        count = f.convert(self.classes, F64)
        limit = _TOLERANCE / count

        def turn(step: Value) -> tuple[Value, list[Value]]:
            mean = self._multiply()
            goes_on = self._error(mean) >= limit
            f.branch(goes_on, lambda: self._improve(mean))
            return goes_on & (step + 1 < _STEPS), [step + 1]

        f.repeat(turn, [f.zero(I64)])
        out = f.at(k.out, row * k.out_row, I8)

        def give(i: Value) -> None:
            f.store(f.convert(self._at(self.p, i), F32), f.at(out, i, F32))

        f.loop(self.classes, give)

    def _at(self, array: Value, i: Value) -> Value:
        return self.f.load(self.f.at(array, i, F64), F64)

    def _fill(self, pairs: Value) -> None:
        """Q of the probabilities of pairs; p, all alike."""
        f, classes = self.f, self.classes
        each = 1.0 / f.convert(classes, F64)

        def start(i: Value) -> None:
            f.store(each, f.at(self.p, i, F64))
            f.store(f.zero(F64), f.at(self.q, i * classes + i, F64))

        f.loop(classes, start)

        def add(i: Value, square: Value) -> None:
            place = f.at(self.q, i * classes + i, F64)
            f.store(f.load(place, F64) + square, place)

        def first(i: Value, pair: Value) -> list[Value]:
            def second(j: Value, pair: Value) -> list[Value]:
                own = f.convert(f.load(f.at(pairs, pair, F32), F32), F64)
                other = 1.0 - own
                both = -(own * other)
                f.store(both, f.at(self.q, i * classes + j, F64))
                f.store(both, f.at(self.q, j * classes + i, F64))
                add(i, other * other)
                add(j, own * own)
                return [pair + 1]

            return f.loop(classes, second, [pair], start=i + 1)

        f.loop(classes, first, [f.zero(I64)])

    def _multiply(self) -> Value:
        """The product of Q and p; gives that of p with it."""
        f, classes = self.f, self.classes

        def one(i: Value, mean: Value) -> list[Value]:
            row = f.at(self.q, i * classes, F64)

            def add(j: Value, total: Value) -> list[Value]:
                return [total + self._at(row, j) * self._at(self.p, j)]

            (total,) = f.loop(classes, add, [f.zero(F64)])
            f.store(total, f.at(self.product, i, F64))
            return [mean + total * self._at(self.p, i)]

        return f.loop(classes, one, [f.zero(F64)])[0]

    def _error(self, mean: Value) -> Value:
        f = self.f

        def one(i: Value, error: Value) -> list[Value]:
            apart = f.unary("fabs", self._at(self.product, i) - mean)
            return [f.select(apart > error, apart, error)]

        return f.loop(self.classes, one, [f.zero(F64)])[0]

    def _improve(self, mean: Value) -> None:
        """Set each probability in turn to what the others ask for, and rescale."""
        f, classes = self.f, self.classes

        def one(i: Value, mean: Value) -> list[Value]:
            row = f.at(self.q, i * classes, F64)
            own, product = self._at(row, i), self._at(self.product, i)
            change = (mean - product) / own
            place = f.at(self.p, i, F64)
            f.store(f.load(place, F64) + change, place)
            scale = 1.0 + change
            moved = mean + change * (change * own + 2.0 * product)

            def rescale(j: Value) -> None:
                at = f.at(self.product, j, F64)
                f.store((f.load(at, F64) + change * self._at(row, j)) / scale, at)
                at = f.at(self.p, j, F64)
                f.store(f.load(at, F64) / scale, at)

            f.loop(classes, rescale)
            return [moved / (scale * scale)]

        f.loop(classes, one, [mean])
