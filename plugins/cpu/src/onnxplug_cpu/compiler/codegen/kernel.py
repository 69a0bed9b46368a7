"""A kernel: a function of machine code, named by all that its code depends on.

Every kernel has one signature, ``void kernel(ptr words, i64 chunk, i64 worker)``:

- *words* is an array of 8-byte words: addresses and integers (and the bits of floats),
  in the order of :attr:`Kernel.words`;
- *chunk* says which part of the work to do; parts are independent and any thread may
  do any of them;
- *worker* numbers the thread, for scratch memory.

Kernels call nothing outside their module, except through addresses in their words, so
that their code needs no symbol of the process.  They never read or write a byte that
their words do not name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.types import I64, PTR, Type

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Module, Value
    from onnxplug_cpu.compiler.target.isa import Isa


class Kernel:
    """A kernel and how to write it; equal to another of the same key.

    Attributes:
        key: the generator and its parameters; with the processor and this package's
            version it determines the code, so two kernels of one key are the same.
        words: the names of the words, in order.
        write: emits the function, named as the second argument, into the module.
    """

    __slots__ = ("key", "words", "write")

    def __init__(
        self,
        key: str,
        words: tuple[str, ...],
        write: Callable[[Module, str, Isa], None],
    ) -> None:
        self.key: Final = key
        self.words: Final = words
        self.write: Final = write

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Kernel({self.key!r})"


class KernelFunction:
    """The function of a kernel while it is written: its words by name.

    ``k = KernelFunction(module, name, ("x", "n")); x = k.pointer("x")``
    """

    def __init__(self, module: Module, name: str, words: tuple[str, ...]) -> None:
        self.function: Function = module.function(
            name, [("words", PTR), ("chunk", I64), ("worker", I64)]
        )
        self._words, self.chunk, self.worker = self.function.parameters
        self._position = {word: index for index, word in enumerate(words)}

    def pointer(self, word: str) -> Value:
        """The address in *word*."""
        return self.word(word, PTR)

    def integer(self, word: str) -> Value:
        """The i64 in *word*."""
        return self.word(word, I64)

    def word(self, word: str, type_: Type) -> Value:
        """The first bytes of *word* as a *type_*."""
        f = self.function
        return f.load(f.at(self._words, self._position[word], I64), type_)
