"""What differs from one language of kernels to another.

Kernels are written in what these languages have in common: scalars, loops, branches,
arrays that a workgroup shares.  A dialect is a table of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Dialect(Protocol):
    """How a language says what kernels are made of.

    Types are ``f32``, ``i32``, ``u32`` and ``i1``; expressions are texts.
    """

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
        """The bits of *value* as another type of 32 bits."""

    def select(self, condition: str, yes: str, no: str) -> str:
        """One of two values, both of which are computed."""

    def call(self, function: str, *arguments: str) -> str:
        """A function of scalars by the name that C has for it without a suffix."""

    def read_shared_word(self, word: str) -> str:
        """A word of a buffer whose words invocations share."""

    def merge(self, word: str, mask: str, value: str) -> Sequence[str]:
        """The statements that write *value* where *mask* has ones, and nothing else."""

    def raise_flag(self, word: str) -> str:
        """The statement that writes 1, whoever else does."""

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
