"""The CPU's commands: kernels, and the words that they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.traced import NotTraced, is_traced
from onnxplug_cpu.compiler.codegen.kernel import Kernel


class Code(Record):
    """A word: the address of a kernel's function."""

    kernel: Kernel


class ChosenCode(Record):
    """A word: the address of the function of a kernel that sizes choose, which are
    traced.

    Attributes:
        make: gives the kernel for sizes.
        sizes: what it takes.
    """

    make: Callable[..., Kernel]
    sizes: tuple[int, ...]


def code_of(make: Callable[..., Kernel], *sizes: int) -> Code | ChosenCode:
    """The function of the kernel that *make* gives for *sizes*.

    Raises:
        NotTraced: *make* brings traced sizes with it, which no guard would be about.
    """
    if any(map(is_traced, sizes)):
        if _has_traced(_brought_by(make)):
            raise NotTraced("a kernel depends on other sizes than it is chosen by")
        return ChosenCode(make, sizes)
    return Code(make(*sizes))


def _brought_by(make: Callable[..., Kernel]) -> tuple[Any, ...]:
    """What a method is of, and what a function has of the one around it."""
    cells = getattr(make, "__closure__", None) or ()
    return getattr(make, "__self__", None), *[cell.cell_contents for cell in cells]


def _has_traced(value: Any) -> bool:
    return is_traced(value) or (
        isinstance(value, tuple) and any(map(_has_traced, value))
    )


class Words(Record):
    """A word: the address of more words, such as another kernel's."""

    words: tuple[Word, ...]


class Block(Record):
    """A word: the address of the program's block, which has words of the runtime.

    Attributes:
        pauses: whether the command may end before it is done, to be called again.
    """

    pauses: bool


Word: TypeAlias = int | Address | Code | ChosenCode | Words | Block


class Command(Record):
    """A call of a kernel for every chunk from 0 to *chunks*, on any threads.

    Commands run in order; all chunks of one end before the next begins.

    Attributes:
        label, flops, nbytes, nodes, note: as of ``onnxplug_compiler.ir.pieces``.
    """

    kernel: Kernel
    words: tuple[Word, ...]
    chunks: int
    label: str
    flops: int
    nbytes: int
    nodes: tuple[int, ...]
    note: str = ""

    def of_nodes(self, nodes: tuple[int, ...]) -> Self:
        """The same command as one that computes other nodes."""
        return self._replace(nodes=nodes)
