"""How many keys of a cache are in use, which only a run knows, and what of them a query
sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_cpu.compiler.codegen.emit import F32, I64, Function, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.kernels.rows import element_of, move, opaque
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_compiler.ir.caches import Starts
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.words import Word

_MOST = 1 << 40
"""Far from where sums of starts and sizes wrap."""


class InUse(Parameters):
    """What code depends on of a cache.

    Attributes:
        starts: their element, ``i32`` or ``i64``.
        clamped: a row before the first one stands for that.
        windowed: queries see some keys before their own only.
        sunk: heads have a score of no key.
    """

    starts: str
    clamped: bool
    windowed: bool
    sunk: bool

    @classmethod
    def of(cls, starts: Starts, window: int | None, sinks: View | None) -> InUse:
        """What there is."""
        element = element_of(starts.view)
        return cls(element, starts.clamped, window is not None, sinks is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of the words; strides are in bytes."""
        found = ["starts", "starts_batch", "first", "end"]
        found += ["window"] if self.windowed else []
        return (*found, *(["sinks", "sinks_head", "sinks_row"] if self.sunk else []))


def in_use_words(
    starts: Starts, window: int | None, sinks: View | None, group: int
) -> dict[str, Word]:
    """Those that :attr:`InUse.words` names.

    Args:
        group: query heads that are computed as the queries of one.
    """
    view = starts.view
    words: dict[str, Word] = {
        "starts": view.address,
        "starts_batch": view.strides[0] * view.dtype.itemsize,
        "first": starts.first,
        "end": starts.end,
    }
    if window is not None:
        words["window"] = window
    if sinks is not None:
        stride = sinks.strides[0] * 4
        words |= {"sinks": sinks.address, "sinks_row": stride}
        words |= {"sinks_head": stride * group}
        if group == 1:
            words["sinks_row"] = 0
    return words


class Cache:
    """The cache of a sequence, in a kernel."""

    def __init__(self, k: KernelFunction, form: InUse, batch: Value) -> None:
        self.k, self.form, f = k, form, k.function
        self.f = f
        start = read_start(k, form, batch)
        self.first = start + k.integer("first")
        if form.clamped:
            self.first = f.maximum(self.first, f.value(0, I64))
        self.end = start + k.integer("end")

    def used(self, keys: Value) -> Value:
        """Keys in use, of so many."""
        zero = self.f.value(0, I64)
        return self.f.minimum(self.f.maximum(self.end, zero), keys)

    def first_seen(self, query: Value) -> Value:
        """The first key that a query sees."""
        own = self.first + query
        return self.f.maximum(own - self.k.integer("window"), self.f.value(0, I64))

    def hide(self, scores: Value, query: Value, keys: Value) -> None:
        """Let no query see what is before its window, of so many keys."""
        if not self.form.windowed:
            return
        f = self.f
        end = f.minimum(self.first_seen(query), keys)
        lowest = f.value(-float("inf"), F32)
        f.loop(end, lambda i: f.store(lowest, f.at(scores, i, F32)))

    def sink(self, head: Value, query: Value) -> Value | None:
        """The score of no key, in all lanes."""
        if not self.form.sunk:
            return None
        k, f = self.k, self.f
        at = head * k.integer("sinks_head") + query * k.integer("sinks_row")
        place = opaque(f, move(f, k.pointer("sinks"), at))
        return f.load_splat(place, F32.vector(LANES))


def seen(f: Function, keys: Value, end: Value) -> Value:
    """How many of *keys* are before *end*, which is below 0 where a query sees none."""
    return f.maximum(f.minimum(keys, end), f.value(0, I64))


def read_start(k: KernelFunction, form: InUse, batch: Value) -> Value:
    """What a sequence has in *starts*, as an i64."""
    f = k.function
    place = move(f, k.pointer("starts"), batch * k.integer("starts_batch"))
    found = f.convert(f.load(place, Type(form.starts)), I64)
    return f.minimum(f.maximum(found, f.value(-_MOST, I64)), f.value(_MOST, I64))
