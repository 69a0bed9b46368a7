"""How kernels read the factors of products; see ``ir.coded``."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.gpu.command import operand
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.parameters import Parameters


class Coding(Parameters):
    """How one array of a factor is read; attributes as of ``ir.coded.Codes``."""

    element: str
    bits: int = 0
    axis: int = 0


class FactorForm(Parameters):
    """Which arrays a factor has, and how they are read.

    Attributes:
        rank: of all of them.
        codes, zero, offset: as of ``ir.coded.Factor``.
        scale: its element; empty without.
    """

    rank: int
    codes: Coding
    zero: Coding | None = None
    offset: int = 0
    scale: str = ""

    @property
    def codings(self) -> tuple[Coding, ...]:
        """Of all arrays, in the order of a factor's views."""
        zero = () if self.zero is None else (self.zero,)
        scale = (Coding(self.scale),) if self.scale else ()
        return (self.codes, *zero, *scale)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The arrays, in the order of a factor's views."""
        return tuple(Operand(each.element, self.rank) for each in self.codings)


def form_of(factor: Factor) -> FactorForm:
    """How kernels read *factor*.

    Raises:
        ValueError: it has elements that they do not compute with.
    """

    def coding(codes: Codes) -> Coding:
        return Coding(operand(codes.view).element, codes.bits, codes.axis)

    return FactorForm(
        len(factor.codes.shape),
        coding(factor.codes),
        None if factor.zero is None else coding(factor.zero),
        factor.offset,
        "" if factor.scale is None else operand(factor.scale).element,
    )


class KernelOfFactors(Parameters):
    """What kernels of products have in common that read any factors.

    Attributes:
        left, right: the factors.
        rows, sums: how many axes rows and sums have.
        chain: its value 0 is the sum, which is rounded to this element.
        read, written: the chain's other arrays.
    """

    left: FactorForm
    right: FactorForm
    rows: int
    sums: int
    chain: Chain
    read: tuple[Operand, ...]
    written: tuple[Operand, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        factors = *self.left.operands, *self.right.operands
        return *factors, *self.read, *self.written

    @property
    def factors(self) -> int:
        """How many arrays the factors have."""
        return len(self.left.codings) + len(self.right.codings)


class Reader:
    """Reads a factor in a kernel.

    Args:
        numbers: of its arrays among the kernel's operands.
        kind: what it is computed with.
    """

    def __init__(
        self, body: Body, form: FactorForm, numbers: Sequence[int], kind: str
    ) -> None:
        self.form = form
        self.numbers = numbers
        self._body = body
        self._kind = kind

    def places(self, coordinates: Sequence[str]) -> list[str]:
        """Where the part of each array begins that has these coordinates in front."""
        return [self._body.place(number, coordinates) for number in self.numbers]

    def load(
        self, places: Sequence[str], rest: Sequence[str], first: int, there: str
    ) -> str:
        """An element, or 0 where it is not *there*, a condition.

        Args:
            places: of :meth:`places`.
            rest: the other coordinates.
            first: the first axis of these.
            there: ``"true"`` where it always is.
        """
        body = self._body
        if there != "true":
            there = body.let("i1", there)
        value = self._value(0, places[0], rest, first, there)
        zero, scale = self.offsets(places[1:], rest, first, there)
        if zero:
            value = f"({value} - {zero})"
        if scale:
            value = f"{value} * {scale}"
        if there == "true":
            return value
        return body.dialect.select(there, value, body.number(self._kind, 0))

    def offsets(
        self,
        places: Sequence[str],
        rest: Sequence[str],
        first: int,
        there: str = "true",
    ) -> tuple[str, str]:
        """What is subtracted from an element's code, and what that is multiplied with;
        empty where nothing is.

        Args:
            places: of the arrays behind the codes.
            rest, first, there: as of :meth:`load`.
        """
        form = self.form
        values = [
            self._value(number, place, rest, first, there)
            for number, place in enumerate(places, 1)
        ]
        scale = values.pop() if form.scale else ""
        if form.offset:
            offset = self._body.number(self._kind, form.offset)
            values.append(offset if not values else f"({values.pop()} + {offset})")
        return (values[0] if values else ""), scale

    def _value(
        self, which: int, place: str, rest: Sequence[str], first: int, there: str
    ) -> str:
        """An element of one of the arrays, some element where it is not *there*."""
        body, number = self._body, self.numbers[which]
        coding = self.form.codings[which]
        at, shift = list(rest), ""
        if coding.bits:
            axis, each = coding.axis - first, 8 // coding.bits
            shift = f"({at[axis]} % {each}u) * {coding.bits}u"
            at[axis] = body.let("u32", f"{at[axis]} / {each}u")
        within = f"{place} + {body.distance(number, at, first)}"
        if there != "true":
            within = body.dialect.select(there, within, "0")
        value = body.load(number, body.let("i32", within))
        if coding.bits:
            mask = (1 << coding.bits) - 1
            value = body.let("u32", f"({value} >> ({shift})) & {mask}u")
        if KINDS[coding.element] != self._kind:
            value = body.let(self._kind, body.dialect.convert(self._kind, value))
        return str(value)
