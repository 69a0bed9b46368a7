"""Look-ups by bisection, an element after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.tables import Keys
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import move_type
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.loop_nest import Walk, chunks, collapse

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


def record_lookup(
    recorder: Recorder, x: View, keys: Keys, values: View, out: View, label: str
) -> None:
    """See ``tables.Tables.record_lookup``."""
    if not x.size:
        return
    ordered, places = keys.ordered, keys.places
    if not len(ordered):  # one that stands for nothing, so that there is one
        ordered, places = np.zeros(1, x.dtype), np.full(1, keys.other)
    layout = collapse((out, x))
    steps = max(1, len(ordered).bit_length())
    count, each = chunks(recorder, layout.size, 1.5 * steps * x.size)
    element = element_of(x.dtype)
    assert element is not None
    kernel = _Lookup(len(layout.axes), element, out.dtype.itemsize)
    call(
        recorder,
        Kernel(kernel),
        kernel.walk.values(layout.addresses, layout.axes, each)
        | {
            "count": len(ordered),
            "keys": recorder.constant(ordered).address,
            "places": recorder.constant(places).address,
            "values": values.address,
            "nan": keys.nan,
            "other": keys.other,
        },
        chunks=count,
        label=f"{label} {x.size} in {len(ordered)}",
        nbytes=x.nbytes + out.nbytes,
    )


class _Lookup(Generator):
    """A chunk is some elements.

    Attributes:
        axes: of the walk.
        element: of keys.
        itemsize: of values.
    """

    axes: int
    element: str
    itemsize: int

    @property
    def walk(self) -> Walk:
        return Walk(("out", "x"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        own = ("count", "keys", "places", "values", "nan", "other")
        return (*self.walk.words, *own)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, type_, moved = k.function, Type(self.element), move_type(self.itemsize)
        keys, places, values = map(k.pointer, ("keys", "places", "values"))
        count, nan, other = map(k.integer, ("count", "nan", "other"))

        def one(pointers: list[Value], _: list[Value]) -> None:
            out, at = pointers
            x = f.load(at, type_)

            def halve(left: Value, first: Value) -> tuple[Value, list[Value]]:
                half = left >> 1
                middle = first + half
                takes = f.load(f.at(keys, middle, type_), type_) <= x
                rest = left - half
                return rest > 1, [rest, f.select(takes, middle, first)]

            # of one key the half is none
            place = f.repeat(halve, [count, f.zero(I64)])[1]
            known = f.load(f.at(keys, place, type_), type_).compare("eq", x)
            own = f.load(f.at(places, place, I64), I64)
            taken = f.select(known, own, other)
            if type_.is_float:
                taken = f.select(x.compare("ne", x), nan, taken)
            f.store(f.load(f.at(values, taken, moved), moved), out)

        self.walk.write(k, one)
        f.finish()
