"""How kernels that work row by row find their rows: collapsed axes and strided vectors.

A kernel knows the number of axes when it is written; sizes and strides are words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen import emit
from onnxplug_cpu.compiler.codegen.emit import I64, PTR, Function, Number, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.commands.chunks import (
    BYTES_PER_SECOND,
    chunks_for,
    fewest_chunks,
)
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.machine.isa import LANES


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes that several operands are walked along together, outermost first.

    Attributes:
        shape: their sizes; never empty.
        strides: for each operand a stride in bytes for each axis.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @classmethod
    def collapsed(cls, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Axes:
        """As few axes as reach the same elements in the same order."""
        sizes: list[int] = []
        steps: list[list[int]] = [[] for _ in strides]
        for axis, size in enumerate(shape):
            if size == 1:
                continue
            here = [stride[axis] for stride in strides]
            if sizes and all(
                kept[-1] == step * size for kept, step in zip(steps, here, strict=True)
            ):
                sizes[-1] *= size
                for kept, step in zip(steps, here, strict=True):
                    kept[-1] = step
                continue
            sizes.append(size)
            for kept, step in zip(steps, here, strict=True):
                kept.append(step)
        if not sizes:
            sizes = [1]
            steps = [[0] for _ in strides]
        return cls(tuple(sizes), tuple(map(tuple, steps)))

    @property
    def rank(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def count(self) -> int:
        """How many places there are."""
        return math.prod(self.shape)

    def words(self, prefix: str) -> dict[str, Word]:
        """The words that :class:`Walk` reads."""
        words: dict[str, Word] = {
            f"{prefix}_size{axis}": size for axis, size in enumerate(self.shape)
        }
        for operand, strides in enumerate(self.strides):
            for axis, stride in enumerate(strides):
                words[f"{prefix}_step{operand}_{axis}"] = stride
        return words


def walk_words(prefix: str, rank: int, operands: int) -> tuple[str, ...]:
    """The names of the words of a :class:`Walk`."""
    return (
        *(f"{prefix}_size{axis}" for axis in range(rank)),
        *(
            f"{prefix}_step{operand}_{axis}"
            for operand in range(operands)
            for axis in range(rank)
        ),
    )


class Walk:
    """Goes from place to place along :class:`Axes`, without divisions.

    Its state is a list of values to carry through a loop: the pointers of the operands
    first, then positions along all axes but the outermost.
    """

    def __init__(self, k: KernelFunction, prefix: str, rank: int, operands: int):
        f = self._f = k.function
        self.rank, self.operands = rank, operands
        self._sizes = [k.integer(f"{prefix}_size{axis}") for axis in range(rank)]
        self._steps = [
            [k.integer(f"{prefix}_step{operand}_{axis}") for axis in range(rank)]
            for operand in range(operands)
        ]
        self.count = self._sizes[0]
        for size in self._sizes[1:]:
            self.count = self.count * size
        # the step along an axis that begins all axes inside it anew
        self._jumps: list[list[Value]] = []
        for steps in self._steps:
            back = f.value(0, I64)
            jumps: list[Value] = []
            for size, step in zip(reversed(self._sizes), reversed(steps), strict=True):
                jumps.insert(0, step - back)
                back = back + (size - 1) * step
            self._jumps.append(jumps)

    def start(self, pointers: Sequence[Value], index: emit.Operand = 0) -> list[Value]:
        """The state at place *index*, *pointers* being those of place 0."""
        f = self._f
        if isinstance(index, int) and index == 0:
            return [*pointers, *(f.value(0, I64) for _ in range(self.rank - 1))]
        rest = f.value(index, I64)
        positions: list[Value] = []
        for size in reversed(self._sizes[1:]):
            positions.insert(0, rest % size)
            rest = rest // size
        moved = []
        for pointer, steps in zip(pointers, self._steps, strict=True):
            offset = rest * steps[0]
            for position, step in zip(positions, steps[1:], strict=True):
                offset = offset + position * step
            moved.append(move(f, pointer, offset))
        return [*moved, *positions]

    def pointers(self, state: Sequence[Value]) -> list[Value]:
        """Where the operands are."""
        return [opaque(self._f, pointer) for pointer in state[: self.operands]]

    def advance(self, state: Sequence[Value]) -> list[Value]:
        """The state at the next place; past the last one it means nothing."""
        f = self._f
        pointers, positions = state[: self.operands], list(state[self.operands :])
        wraps: list[Value] = []
        for axis in range(self.rank - 1, 0, -1):
            following = positions[axis - 1] + 1
            wrap = following.compare("eq", self._sizes[axis])
            moved = f.select(wrap, f.value(0, I64), following)
            if wraps:
                moved = f.select(wraps[-1], moved, positions[axis - 1])
                wrap = wrap & wraps[-1]
            positions[axis - 1] = moved
            wraps.append(wrap)
        moved_pointers = []
        for pointer, jumps in zip(pointers, self._jumps, strict=True):
            step = jumps[-1]
            for wrap, jump in zip(wraps, reversed(jumps[:-1]), strict=True):
                step = f.select(wrap, jump, step)
            moved_pointers.append(move(f, pointer, step))
        return [*moved_pointers, *positions]


def opaque(f: Function, value: Value) -> Value:
    """*value*, whose origin LLVM cannot see.

    Its loop strength reduction takes most of the compile time where many addresses have
    a common origin, and makes nothing better.
    """
    text = value.type.text
    return f.instruction(value.type, f'call {text} asm "", "=r,0"({value})')


def move(f: Function, pointer: Value, nbytes: emit.Operand) -> Value:
    """The address *nbytes* further on."""
    offset = f.value(nbytes, I64)
    return f.instruction(PTR, f"getelementptr i8, ptr {pointer.text}, {offset}")


class Elements:
    """Loads and stores vectors of elements that are evenly spaced.

    Args:
        stride: bytes from one element to the next; ``None`` where they are adjacent.
    """

    def __init__(self, f: Function, type_: Type, stride: Value | None = None) -> None:
        self.f, self.type, self.stride = f, type_, stride
        self._offsets: Value | None = None
        if stride is not None:
            lanes = I64.vector(type_.lanes)
            self._offsets = f.splat(stride, type_.lanes) * f.iota(lanes)

    def at(self, pointer: Value, index: emit.Operand) -> Value:
        """The address of element *index*."""
        if self.stride is None:
            return self.f.at(pointer, index, self.type)
        if isinstance(index, int) and index == 0:
            return pointer
        return move(self.f, pointer, self.f.value(index, I64) * self.stride)

    def load(
        self, pointer: Value, mask: Value | None = None, default: Number = 0
    ) -> Value:
        """The elements from *pointer* on; *default* where *mask* is false."""
        f = self.f
        if self._offsets is None:
            if mask is None:
                return f.load(pointer, self.type)
            return f.load_masked(pointer, mask, self.type, default)
        return f.intrinsic(
            self.type,
            f"llvm.masked.gather.{self.type.suffix}.v{self.type.lanes}p0",
            self._places(pointer),
            self._mask(mask),
            f.value(default, self.type),
        )

    def store(self, value: Value, pointer: Value, mask: Value | None = None) -> None:
        """Write the elements from *pointer* on, only those where *mask* is true."""
        f = self.f
        if self._offsets is not None:
            f.call_void(
                f"llvm.masked.scatter.{self.type.suffix}.v{self.type.lanes}p0",
                value,
                self._places(pointer),
                self._mask(mask),
            )
        elif mask is None:
            f.store(value, pointer)
        else:
            f.store_masked(value, pointer, mask)

    def _places(self, pointer: Value) -> Value:
        assert self._offsets is not None
        places = Type("ptr", self.type.lanes)
        made = self.f.instruction(
            places, f"getelementptr i8, ptr {pointer.text}, {self._offsets}"
        )
        aligned = f"align {self.type.nbytes} {made.text}"
        return Value(self.f, aligned, places)

    def _mask(self, mask: Value | None) -> Value:
        type_ = Type("i1", self.type.lanes)
        return self.f.value(1, type_) if mask is None else mask


class Operand(Parameters):
    """What the code knows of an operand that is read or written along its lanes.

    Attributes:
        name: of its word; ``<name>_spacing`` is another, with the stride in bytes.
        element: the element type.
        spacing: ``near`` for adjacent lanes, ``same`` for one element in all lanes,
            ``far`` for any other stride.
    """

    name: str
    element: str
    spacing: str

    @classmethod
    def of(cls, name: str, view: View, axis: int) -> Operand:
        """A view whose axis *axis* goes along the lanes."""
        stride, size = view.strides[axis], view.shape[axis]
        spacing = "near" if stride == 1 or size == 1 else "far" if stride else "same"
        return cls(name, element_of(view), spacing)


class Operands:
    """The operands of a kernel, by their numbers.

    Args:
        lanes: of all vectors.
    """

    def __init__(
        self, k: KernelFunction, operands: Sequence[Operand], lanes: int
    ) -> None:
        self._operands, self._f = operands, k.function
        self._elements = [
            Elements(
                k.function,
                Type(operand.element, lanes),
                k.integer(f"{operand.name}_spacing")
                if operand.spacing == "far"
                else None,
            )
            for operand in operands
        ]

    @staticmethod
    def words(operands: Sequence[Operand]) -> tuple[str, ...]:
        """The names of the words."""
        names = [operand.name for operand in operands]
        return (*names, *(f"{name}_spacing" for name in names))

    @staticmethod
    def values(
        operands: Sequence[Operand], views: Sequence[View], axis: int
    ) -> dict[str, Word]:
        """The words' values."""
        words: dict[str, Word] = {}
        for operand, view in zip(operands, views, strict=True):
            words[operand.name] = view.address
            words[f"{operand.name}_spacing"] = view.strides[axis] * view.dtype.itemsize
        return words

    def at(self, pointers: Sequence[Value], index: int | Value) -> list[Value]:
        """Where the operands are *index* lanes further on."""
        return [
            pointer if operand.spacing == "same" else elements.at(pointer, index)
            for pointer, operand, elements in zip(
                pointers, self._operands, self._elements, strict=True
            )
        ]

    def load(
        self,
        number: int,
        places: Sequence[Value],
        mask: Value | None = None,
        default: Number = 0,
    ) -> Value:
        """The vector of operand *number*; *default* where *mask* is false."""
        elements = self._elements[number]
        if self._operands[number].spacing == "same":
            value = self._f.load_splat(places[number], elements.type)
            return value if mask is None else self._f.select(mask, value, default)
        return elements.load(places[number], mask, default)

    def store(
        self,
        number: int,
        value: Value,
        places: Sequence[Value],
        mask: Value | None = None,
    ) -> None:
        """Write the vector of operand *number*."""
        self._elements[number].store(value, places[number], mask)


_ELEMENTS = {
    "float32": "f32",
    "float64": "f64",
    "int32": "i32",
    "int64": "i64",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
}


def element_of(view: View) -> str:
    """The element type of a view as :class:`~..codegen.emit.Type` names it.

    Raises:
        ValueError: kernels of rows do not compute in its dtype.
    """
    element = _ELEMENTS.get(view.dtype_name)
    if element is None:
        raise ValueError(
            f"no kernel for rows of {view.dtype}; expected one of {sorted(_ELEMENTS)}"
        )
    return element


def byte_strides(view: View) -> tuple[int, ...]:
    """Strides in bytes."""
    return tuple(stride * view.dtype.itemsize for stride in view.strides)


def spread(
    f: Function, vector: Value, combine: Callable[[Value, Value], Value]
) -> Value:
    """All lanes combined, in every lane."""
    lanes = vector.type.lanes
    distance = lanes // 2
    while distance:
        swapped = f.shuffle(vector, vector, [i ^ distance for i in range(lanes)])
        vector = combine(vector, swapped)
        distance //= 2
    return vector


def lanes_of(type_: Type) -> int:
    """Lanes of the vectors of an element type: as many bytes as those of f32."""
    return 4 * LANES // type_.nbytes


def chunk_size(
    count: int,
    nanoseconds: float,
    workers: int,
    multiple: int = 1,
    *,
    nbytes: int = 0,
) -> int:
    """How many of *count* equal parts make a chunk.

    Args:
        nanoseconds: what one part takes, about, if caches have what it reads.
        multiple: chunks but the last are multiples of this.
        nbytes: what one part reads, from memory at worst.
    """
    parts = chunks_for(1e-9 * count * nanoseconds, workers)
    parts = larger(parts, fewest_chunks(count * nbytes / BYTES_PER_SECOND))
    if parts == 1:
        return larger(count, 1)
    size = -(-count // parts)
    return -(-size // multiple) * multiple


def fewest_parts(elements: int, nanoseconds: float) -> int:
    """Into how many parts to divide what a chunk does at least; 1 if it is not long.

    Args:
        elements: of f32, each of which is read and written.
        nanoseconds: what one takes, about, if caches have it.
    """
    seconds = elements * larger(1e-9 * nanoseconds, 8 / BYTES_PER_SECOND)
    # what takes twice as long as it should does no harm
    return fewest_chunks(seconds / 2)
