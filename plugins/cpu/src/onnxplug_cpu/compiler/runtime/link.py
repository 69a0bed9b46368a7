"""From recorded commands to a block of words: all but the addresses of one run."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.ep.record import Record
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.ir.commands import (
    MAX_CHUNKS,
    Address,
    Buffer,
    Code,
    Command,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
    Word,
    Words,
)
from onnxplug_cpu.compiler.runtime import driver
from onnxplug_cpu.compiler.runtime.arena import Arenas

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


class ArraySpec(Record):
    """What a run's array has to be.

    Attributes:
        dtype: the elements'; ``None`` for any.
        shape: the sizes.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]


class Template(Record):
    """A block without addresses that only a session or a run knows.

    Attributes:
        words: the block; where addresses are missing, the offset to be added to.
        arena_words: which words need the arena's address.
        block_words: which words need the block's own address.
        code: words that are a kernel's address, and the kernels.
        constants: words that are addresses in constants, and the buffers.
        arena_nbytes: the arena's size.
        flags: which word each flag is.
    """

    words: array.array[int]
    arena_words: list[int]
    block_words: list[int]
    code: list[tuple[int, Kernel]]
    constants: list[tuple[int, Constant | Packed]]
    arena_nbytes: int
    flags: dict[Flag, int]


def link(
    commands: Sequence[Command],
    n_inputs: int,
    n_outputs: int,
    specs: Sequence[ArraySpec] | None,
    arenas: Arenas,
) -> Template:
    """The block of a program.

    Args:
        commands: in the order of their execution.
        n_inputs, n_outputs: how many arrays a run has.
        specs: of the inputs and the outputs, to be checked in each run.
        arenas: places temporary buffers.

    Raises:
        ValueError: commands name an array that a run does not have.
    """
    return _Linker(commands, n_inputs, n_outputs, specs, arenas).link()


class _Linker:
    def __init__(
        self,
        commands: Sequence[Command],
        n_inputs: int,
        n_outputs: int,
        specs: Sequence[ArraySpec] | None,
        arenas: Arenas,
    ) -> None:
        self._arenas = arenas
        self._commands = commands
        self._n_inputs = n_inputs
        self._n_arrays = n_inputs + n_outputs
        self._specs = specs
        self._words: list[int] = [0] * driver.HEADER
        self._nested: list[tuple[int, tuple[Word, ...]]] = []
        self._block_words: list[int] = []
        self._code: list[tuple[int, Kernel]] = []
        self._constants: list[tuple[int, Constant | Packed]] = []
        self._patches: list[int] = []
        self._temporaries: list[tuple[int, Temporary]] = []
        self._first: dict[Temporary, int] = {}
        self._last: dict[Temporary, int] = {}
        self._flags: list[tuple[int, Flag]] = []

    def link(self) -> Template:
        """See :func:`link`."""
        words = self._words
        words[driver.LAST] = len(self._commands)
        words[driver.END] = MAX_CHUNKS
        words[driver.ARRAY_COUNT] = self._n_arrays
        self._begin(driver.ADDRESSES, [0] * self._n_arrays)
        self._begin(driver.ARRAYS, self._expected())
        table = len(words)
        self._begin(driver.COMMANDS, [0] * (3 * len(self._commands)))
        for index, command in enumerate(self._commands):
            entry = table + 3 * index
            self._code.append((entry, command.kernel))
            words[entry + 1] = 8 * self._place(command.words, index)
            words[entry + 2] = command.chunks
        words[driver.PATCH_COUNT] = len(self._patches) // 3
        self._begin(driver.PATCHES, self._patches)
        arena_words, arena_nbytes = self._place_temporaries()
        flags = self._place_flags()
        return Template(
            array.array("Q", words),
            arena_words,
            self._block_words,
            self._code,
            self._constants,
            arena_nbytes,
            flags,
        )

    def _place_flags(self) -> dict[Flag, int]:
        """A word of the block for each flag."""
        places: dict[Flag, int] = {}
        for position, flag in self._flags:
            if flag not in places:
                places[flag] = len(self._words)
                self._words.append(0)
            self._words[position] = 8 * places[flag]
            self._block_words.append(position)
        return places

    def _begin(self, offset: int, words: list[int]) -> None:
        self._words[offset] = 8 * len(self._words)
        self._words.extend(words)

    def _expected(self) -> list[int]:
        words: list[int] = []
        for position in range(self._n_arrays):
            is_input = position < self._n_inputs
            words.append(driver.INPUT_FLAGS if is_input else driver.OUTPUT_FLAGS)
            if self._specs is None:
                words += (0, _MASK)
            else:
                spec = self._specs[position]
                dtype = 0 if spec.dtype is None else id(spec.dtype)
                words += (dtype, len(spec.shape), *spec.shape)
        return words

    def _place(self, words: tuple[Word, ...], command: int) -> int:
        """Append words and those nested in them; the number of the first."""
        start = self._append(words, command)
        nested = self._nested
        while nested:
            position, more = nested.pop()
            self._words[position] = 8 * self._append(more, command)
            self._block_words.append(position)
        return start

    def _append(self, words: tuple[Word, ...], command: int) -> int:
        """Append words, and put those aside that are nested in them."""
        # comparing types is three times as fast as isinstance, and there are thousands
        values, temporaries = self._words, self._temporaries
        start = position = len(values)
        for word in words:
            if type(word) is int:
                values.append(word & _MASK)
            elif type(word) is Address:
                buffer, offset = word
                values.append(offset & _MASK)
                if type(buffer) is Temporary:
                    self._first.setdefault(buffer, command)
                    self._last[buffer] = command
                    temporaries.append((position, buffer))
                else:
                    self._refer(position, buffer, offset)
            elif type(word) is Code:
                values.append(0)
                self._code.append((position, word.kernel))
            elif type(word) is Words:
                values.append(0)
                self._nested.append((position, word.words))
            else:  # an integer of numpy
                values.append(int(word) & _MASK)  # type: ignore[arg-type]
            position += 1
        return start

    def _refer(self, position: int, buffer: Buffer, offset: int) -> None:
        """Note the address of a byte of a buffer, of which the word is the offset."""
        if isinstance(buffer, (Constant, Packed)):
            self._constants.append((position, buffer))
        elif isinstance(buffer, Flag):
            self._flags.append((position, buffer))
        elif isinstance(buffer, (Input, Output)):
            number = buffer.position
            limit = self._n_inputs
            if isinstance(buffer, Output):
                number, limit = number + self._n_inputs, self._n_arrays
            if number >= limit:
                raise ValueError(
                    f"a command names {type(buffer).__name__.lower()} "
                    f"{buffer.position} of a program that has fewer"
                )
            self._patches += (8 * position, number, offset & _MASK)
        else:
            raise TypeError(f"a word is the address of {buffer!r}, which has no place")

    def _place_temporaries(self) -> tuple[list[int], int]:
        buffers = list(self._first)
        offsets, nbytes = self._arenas.place(
            [buffer.nbytes for buffer in buffers],
            [(self._first[buffer], self._last[buffer]) for buffer in buffers],
        )
        places = dict(zip(buffers, offsets, strict=True))
        words = self._words
        for position, buffer in self._temporaries:
            words[position] = (words[position] + places[buffer]) & _MASK
        return [position for position, _ in self._temporaries], nbytes
