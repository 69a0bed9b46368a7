"""Elements as unsigned integers whose order is that in which they are selected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import I1, I64, Function, Type, Value

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.lanes import Part

_WIDE: Final = frozenset({"f64", "i64", "u64"})


def key_type(element: str) -> Type:
    """The keys of elements: as many bits as tell all of them apart."""
    return Type("u64" if element in _WIDE else "u32")


def keys_of(f: Function, x: Value, element: str, *, largest: bool) -> Value:
    """Keys of which the smallest is selected first.

    Zeros are equal, and NaN is larger than all numbers.

    Args:
        x: the elements as they are held.
    """
    key = key_type(element)
    signed = Type(f"i{key.bits}", x.type.lanes)
    top = 1 << key.bits - 1
    if x.type.is_float:
        # -0.0 becomes 0.0
        bits = f.bitcast(x + 0.0, signed)
        flipped = bits ^ ((bits >> key.bits - 1) | -top)
        number = f.select(x.compare("ne", x), f.value(-1, signed), flipped)
    else:
        wide = x if x.type.bits == key.bits else f.convert(x, _widened(x.type, signed))
        number = f.bitcast(wide, signed)
        number = number ^ -top if x.type.is_signed else number
    found = ~number if largest else number
    return f.bitcast(found, key.vector(x.type.lanes))


def _widened(type_: Type, signed: Type) -> Type:
    return signed if type_.is_signed else signed.of(f"u{signed.bits}")


def chosen_bits(f: Function, chosen: Value, part: Part | None = None) -> Value:
    """The lanes that are true as the low bits of an i64."""
    if part is not None and part.mask is not None:
        chosen = chosen & part.mask
    lanes = chosen.type.lanes
    bits = f.bitcast(chosen, Type(f"u{lanes}"))
    return f.bitcast(f.convert(bits, Type("u64")), I64)


def first_bit(f: Function, bits: Value) -> Value:
    """The number of the lowest bit that is set; 64 if none is."""
    return f.intrinsic(I64, "llvm.cttz.i64", bits, f.value(0, I1))


def last_bit(f: Function, bits: Value) -> Value:
    """The number of the highest bit that is set; -1 if none is."""
    return 63 - f.intrinsic(I64, "llvm.ctlz.i64", bits, f.value(0, I1))


def count_bits(f: Function, bits: Value) -> Value:
    """How many bits are set."""
    return f.intrinsic(I64, "llvm.ctpop.i64", bits)


def each_bit(
    f: Function,
    bits: Value,
    body: Callable[..., list[Value]],
    carried: list[Value],
) -> list[Value]:
    """``body(number, *carried)`` for each bit that is set, one at least."""

    def turn(left: Value, *now: Value) -> tuple[Value, list[Value]]:
        after = body(first_bit(f, left), *now)
        rest = left & (left - 1)
        return rest.compare("ne", 0), [rest, *after]

    return f.repeat(turn, [bits, *carried])[1:]
