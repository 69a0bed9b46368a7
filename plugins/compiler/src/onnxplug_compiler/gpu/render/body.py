"""Writes a kernel: statements, and the elements that it loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.render import minifloats
from onnxplug_compiler.gpu.render.dialect import Binding, Dialect, Vectors, Warps
from onnxplug_compiler.gpu.render.minifloats import MINIFLOATS
from onnxplug_compiler.gpu.render.narrow import NARROW, bits_of, widened

PACKED: Final = {f"{sign}{bits}p": bits for bits in (2, 4) for sign in ("i", "u")}
"""Elements of which words have several, the first in the lowest bits, and their bits;
they are only read."""

BYTES: Final = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
    "i4": 1,
    "u4": 1,
    "i2": 1,
    "u2": 1,
    **dict.fromkeys(PACKED, 0),
    **dict.fromkeys(MINIFLOATS, 1),
    "i1": 1,
    "f64": 8,
    "i64": 8,
    "u64": 8,
    "flag": 4,
}
"""The elements that are loaded and stored, and their sizes in memory; a flag is a word
that any invocation may write, and integers of 2 or 4 bits are the lowest of a byte.
Those of f64 need a language that is ``wide``."""

KINDS: Final = {
    "f64": "f64",
    "f32": "f32",
    "f16": "f32",
    "bf16": "f32",
    "i32": "i32",
    "u32": "u32",
    "i16": "i32",
    "u16": "u32",
    "i8": "i32",
    "u8": "u32",
    "i4": "i32",
    "u4": "u32",
    "i2": "i32",
    "u2": "u32",
    **{element: f"{element[0]}32" for element in PACKED},
    **dict.fromkeys(MINIFLOATS, "f32"),
    "i1": "i1",
}
"""What elements are in registers, but those that are pairs."""

PAIRED: Final = frozenset({"i64", "u64"})
"""Elements that are pairs of words in registers."""

WIDTHS: Final = {
    **{f"{sign}{bits}": bits for bits in (2, 4, 8, 16) for sign in ("i", "u")},
    **PACKED,
}
"""Bits of integers that have fewer than registers."""


class Operand(Record):
    """An array of a kernel, whose place and strides are numbers of a launch.

    Attributes:
        element: of :data:`BYTES`.
        rank: how many strides it has.
        written: the kernel writes to it.
    """

    element: str
    rank: int
    written: bool = False


class Pair(Record):
    """An i64 or u64 of a kernel.

    Attributes:
        low, high: expressions of type u32.
    """

    low: str
    high: str


class Body:
    """The statements of a kernel while it is written.

    Args:
        operands: its arrays, in the order of the views of a launch.
        bindings: of each operand the number of the buffer that it is in.
        sizes: how many numbers a launch has before those of its arrays.

    Raises:
        ValueError: the language has no such elements.

    The numbers of a launch are first its sizes, then for each array its offset and its
    strides, in elements.
    """

    def __init__(
        self,
        dialect: Dialect,
        operands: Sequence[Operand],
        bindings: Sequence[int],
        sizes: int,
    ) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        self.shared: list[tuple[str, str, int]] = []
        self._operands = operands
        self._bindings = bindings
        self._depth = 0
        self._named = 0
        self._first: list[int] = []
        words = sizes
        for operand in operands:
            self._first.append(words)
            words += 1 + operand.rank
        self.words = words
        found = [Binding(False, False)] * (max(bindings, default=-1) + 1)
        for operand, number in zip(operands, bindings, strict=True):
            element = operand.element
            if element == "f64" and not dialect.wide:
                raise ValueError("the language of the kernel has no float64")
            parts = BYTES[element] < 4 and dialect.memory.parts_share_words
            small = operand.written and (parts or element == "flag")
            known = found[number]
            found[number] = Binding(
                known.written or operand.written, known.shares_words or small
            )
        self.buffers = found

    # statements

    def line(self, text: str) -> None:
        """Write a statement as it is."""
        self.lines.append("  " * self._depth + text)

    def let(self, kind: str, value: str) -> str:
        """Name a value."""
        name = self._name()
        self.line(self.dialect.constant(kind, name, value))
        return name

    def var(self, kind: str, value: str) -> str:
        """Make a variable."""
        name = self._name()
        self.line(self.dialect.variable(kind, name, value))
        return name

    def assign(self, name: str, value: str) -> None:
        """Give a variable, or an element of a shared array, another value."""
        self.line(f"{name} = {value};")

    def array(self, kind: str, size: int) -> str:
        """An array that a workgroup shares."""
        name = f"s{len(self.shared)}"
        self.shared.append((kind, name, size))
        return name

    @contextmanager
    def loop(self, end: str, start: str = "0u", step: str = "1u") -> Iterator[str]:
        """Repeat what is written meanwhile; gives the name of the number.

        Every loop of a kernel is one of these and ends, as its end is below 2³¹.

        Args:
            step: a number in the dialect, more than 0.

        Raises:
            ValueError: the step is something else.
        """
        if not (step[:-1].isdecimal() and step[-1:] == "u" and int(step[:-1])):
            raise ValueError(f"a loop with steps of {step!r} need not end")
        name = self._name()
        with self._block(self.dialect.loop(name, start, end, step)):
            yield name

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Do what is written meanwhile on a condition."""
        with self._block(f"if ({condition})"):
            yield

    def wait(self) -> None:
        """Let the workgroup wait for all of it; all of it has to come here."""
        self.line(self.dialect.barrier)

    # numbers and elements

    def size(self, number: int) -> str:
        """One of the launch's sizes, unsigned."""
        return self.dialect.convert("u32", self.dialect.word(number))

    def number(self, kind: str, value: float) -> str:
        """A literal."""
        return self.dialect.number(kind, value)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """The sum of powers of *x*, an f32, times these, the constant one first."""
        found = self.number("f32", coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            found = f"({self.number('f32', coefficient)} + {x} * {found})"
        return self.let("f32", found)

    def place(self, operand: int, coordinates: Sequence[str]) -> str:
        """Where an element is, from *coordinates*, unsigned."""
        offset = self.dialect.word(self._first[operand])
        return self.let("i32", f"{offset} + {self.distance(operand, coordinates)}")

    def distance(self, operand: int, coordinates: Sequence[str], first: int = 0) -> str:
        """How far an element is from the first one along some axes, as an expression.

        Args:
            first: the first of these axes.
        """
        dialect, terms = self.dialect, []
        for axis, coordinate in enumerate(
            coordinates, self._first[operand] + 1 + first
        ):
            if coordinate != "0u":
                signed = dialect.convert("i32", coordinate)
                terms.append(f"{signed} * {dialect.word(axis)}")
        return " + ".join(terms) or "0"

    def element(self, operand: int) -> str:
        """What an array has."""
        return self._operands[operand].element

    def load(self, operand: int, place: str) -> Any:
        """The element at a place, as it is in registers: a text, or a pair of them."""
        dialect, element = self.dialect, self._operands[operand].element
        buffer = self._bindings[operand]
        if dialect.wide and BYTES[element] == 8:
            bits = dialect.memory.load(8, f"b{buffer}", place, shared=False)
            if element == "f64":
                return self.let("f64", dialect.reinterpret("f64", bits))
            return self.split(bits)
        if element in PAIRED:
            words = (
                f"b{buffer}[2u * u32({place})]",
                f"b{buffer}[2u * u32({place}) + 1u]",
            )
            return Pair(*[self.let("u32", word) for word in words])
        if element in PACKED:
            width, each = PACKED[element], 32 // PACKED[element]
            word = f"b{buffer}[u32({place}) / {each}u]"
            word = f"{word} >> ((u32({place}) % {each}u) * {width}u)"
            return self.wrapped(element, dialect.convert(KINDS[element], f"({word})"))
        shared = self.buffers[buffer].shares_words
        bits = dialect.memory.load(BYTES[element], f"b{buffer}", place, shared=shared)
        return self._of_bits(element, bits)

    def load_word(self, operand: int, place: str) -> str:
        """The 4 bytes from an element on, an unsigned expression.

        Args:
            place: of the element, which begins at a multiple of 4 bytes.
        """
        each, buffer = 4 // BYTES[self.element(operand)], self._bindings[operand]
        return self.dialect.memory.load(
            4,
            f"b{buffer}",
            f"(u32({place}) / {each}u)",
            shared=self.buffers[buffer].shares_words,
        )

    def _of_bits(self, element: str, bits: str) -> str:
        """An element of at most 32 bits."""
        dialect = self.dialect
        if element == "u32":
            return self.let("u32", bits)
        if BYTES[element] == 4:
            return self.let(element, dialect.reinterpret(element, bits))
        if element == "i1":
            return self.let("i1", f"({bits}) != 0u")
        if element in NARROW:
            return widened(self, element, bits)
        if element in MINIFLOATS:
            return minifloats.widened(self, element, bits)
        return self.wrapped(element, dialect.convert(KINDS[element], f"({bits})"))

    def buffer(self, operand: int) -> str:
        """The name of the buffer that an array is in."""
        return f"b{self._bindings[operand]}"

    def load_vector(
        self, vectors: Vectors, operand: int, place: str, count: int
    ) -> list[Any]:
        """Neighbouring elements from a place that is a multiple of their number."""
        element = self._operands[operand].element
        nbytes, number = BYTES[element], f"u32({place}) / {count}u"
        words = vectors.load(nbytes * count, self.buffer(operand), number, self.let)
        if nbytes == 8:
            pairs = [Pair(*words[n : n + 2]) for n in range(0, len(words), 2)]
            if element in PAIRED:
                return pairs
            wide = [self.joined(pair) for pair in pairs]
            return [self.let("f64", self.dialect.reinterpret("f64", x)) for x in wide]
        found, each = [], 4 // nbytes
        for n in range(count):
            bits, shift = words[n // each], n % each * nbytes * 8
            if nbytes < 4:
                bits = f"({bits} >> {shift}u) & {(1 << 8 * nbytes) - 1}u"
            found.append(self._of_bits(element, bits))
        return found

    def store_vector(
        self, vectors: Vectors, operand: int, place: str, values: Sequence[Any]
    ) -> None:
        """Write neighbouring elements, as :meth:`load_vector` reads them."""
        element = self._operands[operand].element
        nbytes, number = BYTES[element], f"u32({place}) / {len(values)}u"
        words: list[str] = []
        if nbytes == 8:
            for value in values:
                pair = value
                if element == "f64":
                    pair = self.split(self.dialect.reinterpret("u64", value))
                words += [pair.low, pair.high]
        else:
            bits = [self._bits_of(element, value) for value in values]
            each, mask = 4 // nbytes, (1 << 8 * nbytes) - 1
            for first in range(0, len(bits), each):
                parts = [
                    f"((({part}) & {mask}u) << {8 * nbytes * n}u)" if each > 1 else part
                    for n, part in enumerate(bits[first : first + each])
                ]
                words.append(self.let("u32", " | ".join(parts)))
        buffer = self.buffer(operand)
        self.line(vectors.store(nbytes * len(values), buffer, number, words))

    def aligned(self, operand: int, count: int) -> str:
        """Whether a launch has an array begin at a multiple of *count* elements, which
        is not known when it is recorded; a condition."""
        offset = self.dialect.convert("u32", self.dialect.word(self._first[operand]))
        return f"{offset} % {count}u == 0u"

    def words_at(self, operand: int, place: str) -> str:
        """A pointer to the words that begin with an element at a place."""
        each = 4 // BYTES[self.element(operand)]
        return f"{self.buffer(operand)} + u32({place}) / {each}u"

    def wrapped(self, element: str, value: str) -> str:
        """What is left of *value* in an integer of fewer bits than a register."""
        kind, width = KINDS[element], WIDTHS[element]
        if kind == "u32":
            return self.let("u32", f"({value}) & {(1 << width) - 1}u")
        # the sign is that of the highest bit which is left
        return self.let("i32", f"(({value}) << {32 - width}u) >> {32 - width}u")

    def store(self, operand: int, place: str, value: Any) -> None:
        """Write *value*, a text or a pair of them, to a place."""
        dialect, element = self.dialect, self._operands[operand].element
        buffer = self._bindings[operand]
        if element in PAIRED and not dialect.wide:
            self.assign(f"b{buffer}[2u * u32({place})]", value.low)
            self.assign(f"b{buffer}[2u * u32({place}) + 1u]", value.high)
            return
        if element in PAIRED:
            value = self.joined(value)
        elif element == "f64":
            value = dialect.reinterpret("u64", value)
        else:
            value = self._bits_of(element, value)
        shared = self.buffers[buffer].shares_words
        lines = dialect.memory.store(
            BYTES[element], f"b{buffer}", place, value, self.let, shared=shared
        )
        for line in lines:
            self.line(line)

    def _bits_of(self, element: str, value: str) -> str:
        """What an element of at most 32 bits is in memory."""
        if element == "i1":
            return self.dialect.select(value, "1u", "0u")
        if element in NARROW:
            return bits_of(self, element, value)
        if element in MINIFLOATS:
            return minifloats.bits_of(self, element, value)
        if KINDS[element] != "u32":
            return self.dialect.reinterpret("u32", value)
        return value

    def joined(self, value: Pair, kind: str = "u64") -> str:
        """A pair as one number, in a language that is ``wide``."""
        convert = self.dialect.convert
        high, low = (convert("u64", each) for each in (value.high, value.low))
        whole = self.let("u64", f"({high} << 32u) | {low}")
        return whole if kind == "u64" else self.dialect.reinterpret(kind, whole)

    def split(self, value: str) -> Pair:
        """A number of type u64 as a pair."""
        whole, convert = self.let("u64", value), self.dialect.convert
        return Pair(
            self.let("u32", convert("u32", whole)),
            self.let("u32", convert("u32", f"({whole} >> 32u)")),
        )

    def raise_flag(self, operand: int) -> None:
        """Note in a flag that an error was found."""
        self.raise_to(operand, self.place(operand, ()), "1u")

    def raise_to(self, operand: int, place: str, value: str) -> None:
        """Write an unsigned *value* over what is less, in an array of flags."""
        word = f"b{self._bindings[operand]}[u32({place})]"
        self.line(self.dialect.raise_to(word, value))

    def coordinates(self, index: str, sizes: Sequence[int]) -> list[str]:
        """The coordinates of element *index* in C order.

        Args:
            sizes: which of the launch's sizes the axes have.
        """
        found: list[str] = []
        rest = index
        for number in reversed(sizes[1:]):
            size = self.size(number)
            found.append(self.let("u32", f"{rest} % {size}"))
            rest = self.let("u32", f"{rest} / {size}")
        return [*([rest] if sizes else []), *reversed(found)]

    def reduced(
        self,
        kind: str,
        value: str,
        lanes: int,
        combine: Callable[[str, str], str],
        shared: str,
    ) -> str:
        """What *combine* makes of the values of all lanes, which all get.

        Args:
            lanes: a power of two.
            shared: an array of as many.
        """
        if lanes == 1:
            return value
        if self.dialect.warps is not None:
            return self._reduced_by_warps(
                self.dialect.warps, kind, value, lanes, combine, shared
            )
        self.assign(f"{shared}[lane]", value)
        self.wait()
        half = lanes // 2
        while half:
            with self.when(f"lane < {half}u"):
                joined = combine(f"{shared}[lane]", f"{shared}[lane + {half}u]")
                self.assign(f"{shared}[lane]", joined)
            self.wait()
            half //= 2
        found = self.let(kind, f"{shared}[0]")
        self.wait()
        return found

    def _reduced_by_warps(
        self,
        warps: Warps,
        kind: str,
        value: str,
        lanes: int,
        combine: Callable[[str, str], str],
        shared: str,
    ) -> str:
        """As :meth:`reduced`: in each warp, and then of the results of all warps, of
        which each lane has one."""

        def across(value: str, count: int) -> str:
            found = self.var(kind, value)
            apart = count // 2
            while apart:
                other = self.let(kind, warps.swap(found, apart, lanes))
                self.assign(found, combine(found, other))
                apart //= 2
            return found

        found = across(value, min(lanes, warps.size))
        count = lanes // warps.size
        if count <= 1:
            return found
        with self.when(f"lane % {warps.size}u == 0u"):
            self.assign(f"{shared}[lane / {warps.size}u]", found)
        self.wait()
        found = across(f"{shared}[lane % {count}u]", count)
        self.wait()
        return found

    def text(self, lanes: int) -> str:
        """The whole kernel, of workgroups of so many lanes."""
        return self.dialect.kernel(
            self.buffers, self.shared, self.words, lanes, self.lines
        )

    def _name(self) -> str:
        self._named += 1
        return f"v{self._named}"

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")
