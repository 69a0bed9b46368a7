"""Linear attention: a panel of a state's columns goes from time to time.

Columns do not know of each other.  So a panel of them, which lies in the first-level
cache, takes in all times before the next panel does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.ir.linear_attention import LinearAttention
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, I8, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes
from onnxplug_cpu.compiler.commands.chunks import fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTORS: Final = 2
"""Of a panel, unless the last one would have fewer."""

_DEEPEST: Final = 1 << 16
"""Rows of a state."""

_NANOSECONDS: Final = 1.0
"""That a vector of a row takes, about, each time that it is read."""

_AXES: Final = {
    "query": ("batch", "head", "group", "time", "row"),
    "key": ("batch", "head", "time", "row"),
    "value": ("batch", "head", "time"),
    "decay": ("batch", "head", "time", "row"),
    "rate": ("batch", "head", "time"),
    "past": ("batch", "head", "row"),
    "out": ("batch", "head", "group", "time"),
    "state": ("batch", "head", "row"),
}
"""The axes of arrays but that of columns, which are consecutive."""

_STRIDES: Final = tuple(
    f"{name}_{axis}" for name, axes in _AXES.items() for axis in axes
)


def record_linear_attention(
    recorder: Recorder, work: LinearAttention, label: str
) -> None:
    """See ``ir.linear_attention.LinearAttentions``.

    Raises:
        ValueError: arrays are not of float32, or keys have no elements, or very many.
    """
    depth = work.state.shape[2]
    views = {name: getattr(work, name) for name in _AXES}
    for name, view in views.items():
        if view is not None and view.dtype_name != "float32":
            raise ValueError(f"{label} has {name} of {view.dtype}; expected float32")
    if not 0 < depth <= _DEEPEST:
        raise ValueError(f"{label} with keys of {depth} elements")
    if not work.state.size:
        return
    copies: list[tuple[View, View]] = []
    for name in ("value", "past", "out", "state"):
        view = views[name]
        if view is None or view.strides[-1] == 1 or view.shape[-1] == 1:
            continue
        dense = recorder.temporary(view.dtype, view.shape)
        if name in ("out", "state"):
            copies.append((dense, view))
        else:
            record_copy(recorder, view, dense, label=label)
        views[name] = dense
    for piece in _pieces(LinearAttention(**views, scale=work.scale)):
        _record(recorder, piece, label)
    for dense, view in copies:
        record_copy(recorder, dense, view, label=label)


def _pieces(work: LinearAttention) -> list[LinearAttention]:
    """Some times after others, none of which takes a thread long."""
    times, columns = work.value.shape[2:]
    of_panel = min(columns, _VECTORS * LANES)
    count = fewest_chunks(1e-9 * _nanoseconds(work) * of_panel)
    each = -(-times // count) if times else 1
    if each >= times:
        return [work]

    def some(view: View | None, axis: int, first: int) -> View | None:
        if view is None:
            return None
        starts, sizes = [0] * len(view.shape), list(view.shape)
        starts[axis], sizes[axis] = first, min(each, times - first)
        return view.slice(starts, sizes)

    found = []
    for first in range(0, times, each):
        parts = {
            name: some(getattr(work, name), axes.index("time"), first)
            for name, axes in _AXES.items()
            if "time" in axes
        }
        past = work.state if first else work.past
        found.append(work._replace(**parts, past=past))
    return found


def _nanoseconds(work: LinearAttention) -> float:
    """What one column of one head takes."""
    group, times = work.out.shape[2:4]
    passes = 1 + (work.rate is not None) + (group if group > 1 else 0)
    return _NANOSECONDS / LANES * passes * times * work.state.shape[2]


def _record(recorder: Recorder, work: LinearAttention, label: str) -> None:
    batch, heads, depth, columns = work.state.shape
    group, times = work.out.shape[2:4]
    # columns that are no whole vectors are a panel each time
    vectors = _VECTORS if columns % (_VECTORS * LANES) == 0 else 1
    panels = -(-columns // (vectors * LANES))
    items = batch * heads * panels
    count, each = chunks(recorder, items, _nanoseconds(work) * vectors * LANES * items)
    memory, distance = worker_memory(recorder, depth * vectors * LANES * F32.nbytes)
    kernel = LinearAttentionPanels(
        work.decay is not None,
        work.rate is not None,
        work.past is not None,
        group == 1,
        columns % LANES == 0,
        vectors,
    )
    words: dict[str, Word] = {
        "items": items,
        "each": each,
        "heads": heads,
        "panels": panels,
        "columns": columns,
        "depth": depth,
        "group": group,
        "times": times,
        "memory": memory,
        "distance": distance,
        "scale": int(np.float32(work.scale).view(np.int32)),
    }
    for name, axes in _AXES.items():
        view: View | None = getattr(work, name)
        words[name] = 0 if view is None else view.address
        strides: Sequence[int] = [0] * len(axes) if view is None else view.strides
        for axis, stride in zip(axes, strides, strict=False):
            words[f"{name}_{axis}"] = stride * F32.nbytes
    call(
        recorder,
        Kernel(kernel),
        words,
        chunks=count,
        label=f"{label} {times}×{depth}×{columns}",
        flops=2 * work.state.size * times * (2 + group),
        nbytes=2 * work.state.nbytes + work.out.nbytes,
    )


class _Words(KernelWords):
    items: Integer
    each: Integer
    heads: Integer
    panels: Integer
    columns: Integer
    depth: Integer
    group: Integer
    times: Integer
    memory: Pointer
    distance: Integer
    scale: Float
    query: Pointer
    key: Pointer
    value: Pointer
    decay: Pointer
    rate: Pointer
    past: Pointer
    out: Pointer
    state: Pointer


class LinearAttentionPanels(Generator):
    """A chunk is some panels of columns, of some heads.

    Attributes:
        decays, rated, has_past: whether there are these.
        single: a head has one query.
        whole: columns are whole vectors.
        vectors: of a panel.
    """

    decays: bool
    rated: bool
    has_past: bool
    single: bool
    whole: bool
    vectors: int

    @property
    def words(self) -> tuple[str, ...]:
        return (*_Words.names, *_STRIDES)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _Words(module, name, _STRIDES)
        _Panels(self, k, isa).write()


class _Panels:
    """Writes the function.

    Attributes:
        at: where the arrays of the panel at hand begin, by name.
    """

    def __init__(self, form: LinearAttentionPanels, k: _Words, isa: Isa) -> None:
        self.form, self.k, self.f, self.isa = form, k, k.function, isa
        self.vector = F32.vector(LANES)
        k.keep(_Words.names)
        self.lanes = Lanes(self.f, isa)
        self.lanes.reserve_for("f32", strided=False)
        self.memory = self.f.at(k.memory, k.worker * k.distance, I8)
        self.nbytes = form.vectors * self.vector.nbytes * LANES
        self.strides = {name: k.integer(name) for name in _STRIDES}
        self.at: dict[str, Value] = {}

    def write(self) -> None:
        f, k = self.f, self.k
        end = f.minimum((k.chunk + 1) * k.each, k.items)
        f.loop(end, self._panel, start=k.chunk * k.each)
        f.finish()

    def _panel(self, number: Value) -> None:
        """The state before, all times, and the state after."""
        f, k = self.f, self.k
        panel = number % k.panels
        number = number // k.panels
        head, batch = number % k.heads, number // k.heads
        for name in _AXES:
            place = f.at(getattr(k, name), self._step(name, "batch", batch), I8)
            place = f.at(place, self._step(name, "head", head), I8)
            if name in ("value", "past", "out", "state"):
                place = f.at(place, panel * self.nbytes, I8)
            self.at[name] = place
        left = k.columns - panel * (self.form.vectors * LANES)
        self.part = self.lanes.whole() if self.form.whole else self.lanes.first(left)

        def begin(row: Value) -> None:
            before = [f.zero(self.vector)] * self.form.vectors
            if self.form.has_past:
                before = self._load(self._place("past", row=row))
            self._put(row, before)

        f.loop(k.depth, begin, nonempty=True)
        f.loop(k.times, self._time)
        f.loop(
            k.depth,
            lambda row: self._store(self._get(row), self._place("state", row=row)),
            nonempty=True,
        )

    def _time(self, time: Value) -> None:
        """What the panel learns, and what queries read of it."""
        f, k, form = self.f, self.k, self.form
        value = self._load(self._place("value", time=time))
        if form.rated:
            value = self._unknown(time, value)
        zeros = [f.zero(self.vector)] * form.vectors
        keys, decays = self._rows("key", time), self._rows("decay", time)
        queries = self._rows("query", time)

        def learn(row: Value, *sums: Value) -> list[Value]:
            left = self._get(row)
            if form.decays:
                decay = self._of_row("decay", decays, row)
                left = [decay * each for each in left]
            key = self._of_row("key", keys, row)
            new = [
                multiply_add(f, self.isa, key, v, s)
                for v, s in zip(value, left, strict=True)
            ]
            self._put(row, new)
            if not form.single:
                return []
            return self._added(self._of_row("query", queries, row), new, sums)

        if form.single:
            sums = f.loop(k.depth, learn, zeros, nonempty=True)
            self._give(sums, self._place("out", time=time))
            return
        f.loop(k.depth, learn, nonempty=True)

        def read(group: Value) -> None:
            rows = self._place("query", group=group, time=time)

            def add(row: Value, *sums: Value) -> list[Value]:
                query = self._of_row("query", rows, row)
                return self._added(query, self._get(row), sums)

            sums = f.loop(k.depth, add, zeros, nonempty=True)
            self._give(sums, self._place("out", group=group, time=time))

        f.loop(k.group, read, nonempty=True)

    def _unknown(self, time: Value, value: Sequence[Value]) -> list[Value]:
        """What the state, when it has decayed, does not give for the key, times the
        rate."""
        f, form = self.f, self.form
        keys, decays = self._rows("key", time), self._rows("decay", time)

        def add(row: Value, *sums: Value) -> list[Value]:
            factor = self._of_row("key", keys, row)
            if form.decays:
                factor *= self._of_row("decay", decays, row)
            return self._added(factor, self._get(row), sums)

        zeros = [f.zero(self.vector)] * form.vectors
        known = f.loop(self.k.depth, add, zeros, nonempty=True)
        rate = self._splat(self._place("rate", time=time))
        return [rate * (v - n) for v, n in zip(value, known, strict=True)]

    def _added(
        self, factor: Value, values: Sequence[Value], sums: Sequence[Value]
    ) -> list[Value]:
        return [
            multiply_add(self.f, self.isa, factor, each, total)
            for each, total in zip(values, sums, strict=True)
        ]

    def _give(self, sums: Sequence[Value], place: Value) -> None:
        scale = self.f.splat(self.k.scale, LANES)
        self._store([scale * each for each in sums], place)

    # memory

    def _step(self, name: str, axis: str, index: Value) -> Value:
        return index * self.strides[f"{name}_{axis}"]

    def _place(self, name: str, **indices: Value) -> Value:
        """Where an element, or the panel's columns, of an array are."""
        place = self.at[name]
        for axis, index in indices.items():
            place = self.f.at(place, self._step(name, axis, index), I8)
        return place

    def _rows(self, name: str, time: Value) -> Value:
        """Where the rows of a time are, found once for all: nothing moves that out of
        loops."""
        return self._place(name, time=time)

    def _of_row(self, name: str, rows: Value, row: Value) -> Value:
        return self._splat(self.f.at(rows, self._step(name, "row", row), I8))

    def _splat(self, place: Value) -> Value:
        return self.f.load_splat(place, self.vector)

    def _columns(self, place: Value) -> list[Value]:
        nbytes = self.vector.nbytes * LANES
        return [self.f.at(place, n * nbytes, I8) for n in range(self.form.vectors)]

    def _load(self, place: Value) -> list[Value]:
        return [self.lanes.load("f32", at, self.part) for at in self._columns(place)]

    def _store(self, values: Sequence[Value], place: Value) -> None:
        for value, at in zip(values, self._columns(place), strict=True):
            self.lanes.store("f32", value, at, self.part)

    def _get(self, row: Value) -> list[Value]:
        place = self.f.at(self.memory, row * self.nbytes, I8)
        return [self.f.load(at, self.vector) for at in self._columns(place)]

    def _put(self, row: Value, values: Sequence[Value]) -> None:
        place = self.f.at(self.memory, row * self.nbytes, I8)
        for value, at in zip(values, self._columns(place), strict=True):
            self.f.store(value, at)
