"""What differs from one language of kernels to another.

Kernels are written in what these languages have in common: scalars, loops, branches,
arrays that a workgroup shares.  A dialect is a table of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from onnxplug.authoring.record import Record


class Binding(Record):
    """A buffer as a kernel sees it: words of 32 bits.

    Attributes:
        written: the kernel writes to it.
        shares_words: invocations write to parts of the same word.
    """

    written: bool
    shares_words: bool


class Memory(Protocol):
    """How a language reads and writes elements of buffers, as unsigned bits."""

    parts_share_words: bool
    """Whether elements of fewer than 32 bits are written as parts of words."""

    def load(self, nbytes: int, buffer: str, place: str, *, shared: bool) -> str:
        """The bits of an element, a ``u32``, or a ``u64`` of 8 bytes.

        Args:
            shared: invocations write to parts of the words of the buffer.
        """

    def store(
        self,
        nbytes: int,
        buffer: str,
        place: str,
        bits: str,
        let: Callable[[str, str], str],
        *,
        shared: bool,
    ) -> Sequence[str]:
        """The statements that write an element; only its own bits of *bits* count.

        Args:
            let: names a value of a type.
        """


class Vectors(Protocol):
    """How a lane reads and writes neighbouring elements of up to 16 bytes at once."""

    def load(
        self, nbytes: int, buffer: str, number: str, let: Callable[[str, str], str]
    ) -> list[str]:
        """The words of a vector, of which fewer than 4 bytes are one, too.

        Args:
            nbytes: 1, 2, 4, 8 or 16, of which its place is a multiple.
            number: how many vectors lie before it.
            let: names a value of a type.
        """

    def store(self, nbytes: int, buffer: str, number: str, words: Sequence[str]) -> str:
        """The statement that writes a vector."""


class Warps(Protocol):
    """How lanes that run together exchange values without memory."""

    size: int
    """How many they are, a power of two."""

    def swap(self, value: str, apart: int, lanes: int) -> str:
        """The value of the lane whose number differs in the bit *apart*.

        Args:
            lanes: of a workgroup, all of which come here.
        """

    def shift_up(self, value: str, apart: int) -> str:
        """The value of the lane so many before in a full warp; one's own where there is
        none."""


class Fragments(Protocol):
    """How warps multiply matrices at once, by tensor cores, and copy meanwhile."""

    def load(self, names: Sequence[str], place: str, *, turned: bool) -> str:
        """The statement that loads four matrices of 8 by 4 words from shared memory: of
        each a lane gets a word of row ``lane / 4``.

        Args:
            names: variables of type ``u32``.
            place: a pointer to the row of 16 bytes that lane n gives, row n % 8 of
                matrix n / 8.
            turned: matrices, of elements of 16 bits, are transposed.
        """

    def multiply(
        self, element: str, sums: Sequence[str], a: Sequence[str], b: Sequence[str]
    ) -> str:
        """The statement that adds to *sums* the product of 16 rows of eight words and
        eight columns of as many, in the order of lanes of PTX's ``mma``: of f16 and
        bf16 ``m16n8k16``, of tf32 ``m16n8k8``, with sums in f32; of bytes, such as
        ``u8_i8``, ``m16n8k32`` with sums in i32, which wrap."""

    def added(self, element: str, word: str, total: str) -> str:
        """A u32, modulo 2³²: *total* and the four bytes of *word*, i8s or u8s."""

    def rounded(self, word: str) -> str:
        """The bits of an f32, rounded to TF32, ties away from zero."""

    def copy(self, target: str, source: str, condition: str) -> str:
        """The statement that begins to copy 16 bytes to shared memory, zeros unless
        *condition* holds; both pointers are aligned to as many."""

    def arrive(self) -> str:
        """The statement that waits until a lane's own copies are there."""


class Dialect(Protocol):
    """How a language says what kernels are made of.

    Types are ``f32``, ``i32``, ``u32`` and ``i1``, and in a ``wide`` language ``f64``,
    ``i64`` and ``u64``; expressions are texts.
    """

    wide: bool
    """Whether there are numbers of 64 bits."""

    halves: bool
    """Whether there are functions ``f32_of_f16``, of bits, and ``f16_of_f32``, which
    gives the bits of the nearest number, of ties those of the even one."""

    bytes_of_floats: frozenset[str]
    """Elements of ``minifloats`` for which there are such functions, too, called
    ``f32_of_f8e5m2`` and ``f8e5m2_of_f32``."""

    vectors: Vectors | None
    """Vectors of memory; ``None`` without."""

    warps: Warps | None
    """Shuffles; ``None`` without."""

    fragments: Fragments | None
    """Tensor cores; ``None`` without."""

    memory: Memory

    def constant(self, kind: str, name: str, value: str) -> str:
        """The statement that names a value."""

    def variable(self, kind: str, name: str, value: str) -> str:
        """The statement that makes a variable."""

    def loop(self, name: str, start: str, end: str, step: str) -> str:
        """The head of a loop over unsigned numbers, from *start* to before *end*."""

    def number(self, kind: str, value: float) -> str:
        """A literal, which may be infinite or NaN."""

    def convert(self, kind: str, value: str) -> str:
        """*value* as a number of another type."""

    def reinterpret(self, kind: str, value: str) -> str:
        """The bits of *value* as another type of as many."""

    def select(self, condition: str, yes: str, no: str) -> str:
        """One of two values, both of which are computed."""

    def call(self, function: str, *arguments: str) -> str:
        """A function of scalars by the name that C has for it without a suffix."""

    def raise_to(self, word: str, value: str) -> str:
        """The statement that writes an unsigned value over one that is less, whoever
        else does."""

    def word(self, number: int) -> str:
        """One of the numbers that a launch has, an ``i32``."""

    barrier: str
    """The statement that lets a workgroup wait for all of it."""

    def kernel(
        self,
        bindings: Sequence[Binding],
        shared: Sequence[tuple[str, str, int]],
        words: int,
        lanes: int,
        lines: Sequence[str],
    ) -> str:
        """The whole text.

        Args:
            bindings: the buffers, called ``b0``, ``b1`` …
            shared: type, name and size of arrays that a workgroup has.
            words: how many numbers a launch has.
            lanes: invocations of a workgroup; ``lane`` is the number of one, ``block``
                that of the workgroup.
            lines: the statements.
        """
