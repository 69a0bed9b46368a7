"""Folds: how the elements of a reduction become one.

Sums of floats are cut into blocks; the blocks' sums are added with the rounding errors
carried along (D. E. Knuth, The Art of Computer Programming 2, 4.2.2, theorem B), so
that the error does not grow with the number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from onnxplug_cpu.compiler.codegen.emit import Function, Number, Type, Value
from onnxplug_cpu.compiler.kernels.rows import Elements

BLOCK = 32
"""Elements that one lane adds up before the rounding error is looked at."""


class Fold(NamedTuple):
    """How elements become one.

    Attributes:
        identity: what the result of nothing is, and what padding lanes hold.
        step: the accumulator and the next elements give the new accumulator.
        combine: two accumulators give one.
        blocked: whether *combine* is a sum whose rounding errors are carried along.
    """

    identity: Number
    step: Callable[[Function, Value, Value], Value]
    combine: Callable[[Function, Value, Value], Value]
    blocked: bool = False


def fold_of(kind: str, type_: Type) -> Fold:
    """The fold inside the reduction *kind* of elements of *type_*."""
    floats = type_.is_float
    if kind in ("ReduceMax", "ReduceMin"):
        largest = kind == "ReduceMax"
        extreme = maximum if largest else minimum
        if floats:
            identity: Number = -math.inf if largest else math.inf
        else:
            limits = np.iinfo(f"{'' if type_.is_signed else 'u'}int{type_.bits}")
            identity = int(limits.min if largest else limits.max)
        return Fold(identity, extreme, extreme)
    if kind == "ReduceProd":
        return Fold(1, lambda f, a, x: a * x, lambda f, a, b: a * b)
    if kind in ("ReduceSumSquare", "ReduceL2"):
        square = _add_square_float if floats else _add_square
        return Fold(0, square, _add, blocked=floats)
    if kind == "ReduceL1":
        return Fold(0, _add_magnitude, _add, blocked=floats)
    return Fold(0, _add, _add, blocked=floats)


def _add(f: Function, a: Value, x: Value) -> Value:
    return a + x


def _add_square(f: Function, a: Value, x: Value) -> Value:
    return a + x * x


def _add_square_float(f: Function, a: Value, x: Value) -> Value:
    return f.fma(x, x, a)


def _add_magnitude(f: Function, a: Value, x: Value) -> Value:
    if x.type.is_float:
        return a + f.unary("fabs", x)
    return a + (f.select(x < 0, -x, x) if x.type.is_signed else x)


def maximum(f: Function, a: Value, x: Value) -> Value:
    """The larger; NaN if either is."""
    if not x.type.is_float:
        return f.maximum(a, x)
    # two comparisons that are one instruction and a blend, unlike llvm.maximum, which
    # also orders zeros
    return f.select(x.compare("ne", x), x, f.select(x > a, x, a))


def minimum(f: Function, a: Value, x: Value) -> Value:
    """The smaller; NaN if either is."""
    if not x.type.is_float:
        return f.minimum(a, x)
    return f.select(x.compare("ne", x), x, f.select(x < a, x, a))


class Accumulator:
    """The vectors in which a fold collects lanes; their values are carried by loops."""

    def __init__(self, f: Function, fold: Fold, type_: Type) -> None:
        self.f, self.fold, self.type = f, fold, type_

    def start(self) -> list[Value]:
        """The state of nothing: the total and, if blocked, its rounding errors."""
        identity = self.f.value(self.fold.identity, self.type)
        if not self.fold.blocked:
            return [identity]
        return [identity, self.f.value(0, self.type)]

    def absorb(self, state: Sequence[Value], block: Value) -> list[Value]:
        """The state with the accumulator of a block added."""
        if not self.fold.blocked:
            return [self.fold.combine(self.f, state[0], block)]
        total, error = state
        added = total + block
        of_block = added - total
        rest = (total - (added - of_block)) + (block - of_block)
        return [added, error + rest]

    def result(self, state: Sequence[Value]) -> Value:
        """The lanes' totals."""
        if not self.fold.blocked:
            return state[0]
        total, error = state
        # the error of an infinite sum is NaN
        finite = (error - error).compare("eq", 0.0)
        return self.f.select(finite, total + error, total)

    def lanes(self, state: Sequence[Value]) -> Value:
        """One scalar from all lanes."""
        f = self.f
        vector = self.result(state)
        while (half := vector.type.lanes // 2) >= 1:
            low = f.shuffle(vector, vector, range(half))
            high = f.shuffle(vector, vector, range(half, 2 * half))
            vector = self.fold.combine(f, low, high)
        return f.lane(vector, 0)

    def run(
        self,
        state: Sequence[Value],
        elements: Elements,
        pointer: Value,
        count: Value,
        change: Callable[[Value], Value] = lambda x: x,
        chains: int = 4,
    ) -> list[Value]:
        """The state with *count* elements from *pointer* on, lanes taking turns.

        Args:
            change: what is done to the elements first.
            chains: accumulators at once.
        """
        f, lanes = self.f, self.type.lanes
        chain_step = chains * lanes

        def step(accumulator: Value, x: Value) -> Value:
            return self.fold.step(f, accumulator, change(x))

        def whole(index: Value, *accumulators: Value) -> list[Value]:
            place = elements.at(pointer, index)
            return [
                step(a, elements.load(elements.at(place, lanes * u)))
                for u, a in enumerate(accumulators)
            ]

        def part(index: Value, accumulator: Value) -> list[Value]:
            mask = f.first_lanes(count - index, lanes)
            x = elements.load(elements.at(pointer, index), mask, self.fold.identity)
            return [f.select(mask, step(accumulator, x), accumulator)]

        def block(begin: Value, *state: Value) -> list[Value]:
            end = f.minimum(begin + chain_step * BLOCK, count)
            full = end - ((end - begin) % chain_step)
            empty = [f.value(self.fold.identity, self.type)] * chains
            totals = f.loop(full, whole, empty, start=begin, step=chain_step)
            totals[:1] = f.loop(end, part, totals[:1], start=full, step=lanes)
            while len(totals) > 1:
                pairs = zip(totals[::2], totals[1::2], strict=True)
                totals = [self.fold.combine(f, a, b) for a, b in pairs]
            return self.absorb(state, totals[0])

        return f.loop(count, block, state, step=chain_step * BLOCK)
