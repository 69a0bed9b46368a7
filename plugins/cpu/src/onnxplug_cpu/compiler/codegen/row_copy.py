"""Copies of a run of bytes, by its length's class.

A length that is no sum of register sizes is copied by two moves that overlap, so that
nothing outside the run is touched and no mask is needed.
"""

from __future__ import annotations

from collections.abc import Callable

from onnxplug_cpu.compiler.codegen.emit import (
    I8,
    I16,
    I32,
    I64,
    Function,
    Operand,
    Type,
    Value,
)

Source = Callable[[Operand, int], Value]
"""``source(offset, nbytes)``: that many bytes of the row, a power of two up to 64, from
*offset* on, as integers of any width."""

_VECTOR = 64
_UNROLLED = 8
_WHOLE: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}


def row_class(nbytes: int) -> str:
    """Which code copies a row of *nbytes* > 0; part of a kernel's key."""
    if nbytes <= _VECTOR * _UNROLLED and nbytes % _VECTOR == 0:
        return f"exactly{int(nbytes)}"
    if nbytes >= _VECTOR:
        return "long"
    power = 1 << (nbytes.bit_length() - 1)
    return f"exactly{int(nbytes)}" if nbytes == power else f"above{power}"


def move_type(nbytes: int) -> Type:
    """The type that moves *nbytes* bytes, a power of two up to 64."""
    return _WHOLE.get(nbytes) or I32.vector(nbytes // 4)


def from_memory(f: Function, pointer: Value) -> Source:
    """The bytes at *pointer*."""
    return lambda offset, nbytes: f.load(
        f.at(pointer, offset, I8), move_type(nbytes), align=1
    )


def repeated(f: Function, item: Value) -> Source:
    """An integer, or several, over and over; the row is as long as some of it."""
    lanes = _VECTOR // item.type.scalar.nbytes
    each = item.type.lanes or 1
    if each == 1:
        vector = f.splat(item, lanes)
    else:
        vector = f.shuffle(item, item, [lane % each for lane in range(lanes)])

    def source(_: Operand, nbytes: int) -> Value:
        wanted = nbytes // item.type.scalar.nbytes
        if wanted == each:
            return item
        return f.shuffle(vector, vector, range(wanted)) if wanted < lanes else vector

    return source


def copy_row(
    f: Function, target: Value, source: Source, nbytes: Value, class_: str
) -> None:
    """Write *nbytes* bytes to *target*; *class_* is their :func:`row_class`."""

    def move(offset: Operand, size: int) -> None:
        f.store(source(offset, size), f.at(target, offset, I8), align=1)

    if class_.startswith("exactly"):
        size = int(class_.removeprefix("exactly"))
        step = min(size, _VECTOR)
        for offset in range(0, size, step):
            move(offset, step)
    elif class_.startswith("above"):
        size = int(class_.removeprefix("above"))
        move(0, size)
        move(nbytes - size, size)
    else:
        last = nbytes - _VECTOR
        f.loop(last, lambda offset: move(offset, _VECTOR), step=_VECTOR, nonempty=True)
        move(last, _VECTOR)
