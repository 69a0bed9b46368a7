"""Vectors of elements one after another, and at the end a part of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.lanes import Lanes


def sweep(
    f: Function,
    lanes: Lanes,
    end: Value,
    body: Callable[..., Sequence[Value] | None],
    carried: Sequence[Value] = (),
    *,
    start: Value | int = 0,
) -> list[Value]:
    """``body(first, part, *carried)`` for the elements from *start* to *end*.

    The body is written twice: parts of vectors are slow to load where there are no
    masks.
    """
    begin = f.value(start, end.type)
    rest = begin + ((end - begin) & -lanes.width)

    def whole(first: Value, *now: Value) -> Sequence[Value] | None:
        return body(first, lanes.whole(), *now)

    after = f.loop(rest, whole, carried, start=begin, step=lanes.width)

    def part() -> Sequence[Value] | None:
        return body(rest, lanes.first(end - rest), *after)

    return f.branch(rest < end, part, lambda: after)
