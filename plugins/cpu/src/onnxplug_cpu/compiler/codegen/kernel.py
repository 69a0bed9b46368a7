"""A kernel: a function of machine code, named by all that its code depends on.

That is its :class:`Generator` with the values of its fields, and the processor.

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

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_cpu.compiler.codegen.types import F32, F64, I64, PTR, Type

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Module, Value
    from onnxplug_cpu.compiler.machine.isa import Isa


class Generator(Parameters):
    """Writes the code of a kernel; its fields are all that it knows of the kernel.

    As a class of a module it closes over nothing, so no parameter can be missing in
    the kernel's key.  What it knows of the processor is an :class:`~..machine.isa.Isa`,
    which is part of the name under which code is kept.

    Raises:
        TypeError: a subclass is local to a function.
    """

    name = ""
    """Of the class, which its module makes unique."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "<locals>" in cls.__qualname__:
            raise TypeError(f"{cls.__qualname__} could depend on what is around it")
        module = cls.__module__.removeprefix(_PACKAGE).removeprefix("kernels.")
        cls.name = f"{module}.{cls.__qualname__}"

    @property
    def key(self) -> str:
        """With the processor and this package's version it determines the code."""
        return f"{self.name}{self!r}"

    @property
    def words(self) -> tuple[str, ...]:
        """The names of the words, in order; none if it takes other arguments."""
        return ()

    def write(self, module: Module, name: str, isa: Isa) -> None:
        """Emit the function *name* into *module*."""
        raise NotImplementedError


_PACKAGE: Final = "onnxplug_cpu.compiler."


class Kernel:
    """A kernel; equal to another of the same key.

    Attributes:
        generator: writes it.
        key: the generator's, so two kernels of one key are the same.
        words: the names of the words, in order.
    """

    __slots__ = ("generator", "key", "words")

    def __init__(self, generator: Generator) -> None:
        self.generator: Final = generator
        self.key: Final = generator.key
        self.words: Final = generator.words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Kernel({self.key!r})"


Pointer: TypeAlias = "Value"
Integer: TypeAlias = "Value"
Float: TypeAlias = "Value"
Double: TypeAlias = "Value"

_TYPES: Final = {"Pointer": PTR, "Integer": I64, "Float": F32, "Double": F64}
"""What the annotations of :class:`FunctionArguments` and :class:`KernelWords` mean."""


class FunctionArguments(Record):
    """The arguments of a function other than a kernel's, named once for it and for who
    calls it.

    A subclass annotates them, in order, as :data:`Pointer` or :data:`Integer`; an
    underscore at the end tells a name from one of tuples.
    """

    @classmethod
    def parameters(cls) -> list[tuple[str, Type]]:
        """Names and types, as :meth:`~.emit.Module.function` takes them."""
        types = cls.__annotations__
        return [(name.rstrip("_"), _TYPES[types[name]]) for name in cls._fields]


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

    def put(self, word: str, value: Value) -> None:
        """Write *value* to *word*, for the next call with these words."""
        f = self.function
        f.store(value, f.at(self._words, self._position[word], I64))


class KernelWords(KernelFunction):
    """The function of a kernel while it is written, its words as attributes.

    A subclass annotates them, in order, as :data:`Pointer`, :data:`Integer`,
    :data:`Float` or :data:`Double`, after those of its base.  To read one is to load it
    where the function is just then, unless it is kept.

    Args:
        more: words by name only, after the others.
    """

    names: ClassVar[tuple[str, ...]] = ()
    """Of all words, in order."""

    def __init_subclass__(cls) -> None:
        cls.names = (*cls.names, *cls.__annotations__)
        for word, annotation in cls.__annotations__.items():
            read = functools.partial(cls._read, word=word, type_=_TYPES[annotation])
            setattr(cls, word, property(read))

    def __init__(self, module: Module, name: str, more: tuple[str, ...] = ()) -> None:
        super().__init__(module, name, (*self.names, *more))
        self._kept: dict[str, Value] = {}

    def _read(self, word: str, type_: Type) -> Value:
        return self._kept.get(word) or self.word(word, type_)

    def keep(self, words: Iterable[str]) -> None:
        """Load *words* now, for all that follows: nothing moves loads out of loops."""
        self._kept.update({word: getattr(self, word) for word in words})
