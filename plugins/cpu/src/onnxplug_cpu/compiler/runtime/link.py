"""From recorded commands to a block of words: all but the addresses of one run."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.ep.record import Record
from onnxplug_cpu.compiler.ir.commands import (
    MAX_CHUNKS,
    Buffer,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
)
from onnxplug_cpu.compiler.ir.pieces import Use, Work
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
        constants: buffers of constants, and which words are addresses in them.
        arena_nbytes: the arena's size.
        flags: which word each flag is.
    """

    words: np.ndarray[Any, np.dtype[np.uint64]]
    arena_words: list[int]
    block_words: list[int]
    constants: list[tuple[Constant | Packed, list[int]]]
    arena_nbytes: int
    flags: dict[Flag, int]


def link(
    work: Work,
    n_inputs: int,
    n_outputs: int,
    specs: Sequence[ArraySpec] | None,
    arenas: Arenas,
) -> Template:
    """The block of a program.

    Args:
        work: the commands, in the order of their execution, all their kernels resolved.
        n_inputs, n_outputs: how many arrays a run has.
        specs: of the inputs and the outputs, to be checked in each run.
        arenas: places temporary buffers.

    Raises:
        ValueError: commands name an array that a run does not have.
    """
    return _Linker(n_inputs, n_outputs, specs, arenas).link(work)


class _Linker:
    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        specs: Sequence[ArraySpec] | None,
        arenas: Arenas,
    ) -> None:
        self._arenas = arenas
        self._n_inputs = n_inputs
        self._n_arrays = n_inputs + n_outputs
        self._specs = specs
        self._words = array.array("Q", [0] * driver.HEADER)
        self._block_words: list[int] = []
        self._constants: list[tuple[Constant | Packed, list[int]]] = []
        self._patches: list[int] = []
        self._arena_words: list[int] = []
        self._owners: list[int] = []
        self._numbers: dict[Temporary, int] = {}
        self._lifetimes: list[tuple[int, int]] = []
        self._flags: list[tuple[int, Flag]] = []

    def link(self, work: Work) -> Template:
        """See :func:`link`."""
        words = self._words
        count = len(work)
        words[driver.LAST] = count
        words[driver.END] = MAX_CHUNKS
        words[driver.ARRAY_COUNT] = self._n_arrays
        self._begin(driver.ADDRESSES, [0] * self._n_arrays)
        self._begin(driver.ARRAYS, self._expected())
        entry = len(words)
        self._begin(driver.COMMANDS, [0] * (3 * count))
        index = 0
        for piece, buffers, _ in work.placed:
            laid = piece.laid
            base = len(words)
            words.extend(laid.words)
            for position in laid.nested:
                words[base + position] += 8 * base
                self._block_words.append(base + position)
            for code, start, chunks in zip(
                laid.entries, laid.starts, laid.chunks, strict=True
            ):
                words[entry] = code
                words[entry + 1] = 8 * (base + start)
                words[entry + 2] = chunks
                entry += 3
            for use in laid.uses:
                self._use(buffers[use.buffer], use, base, index)
            index += len(laid.chunks)
        words[driver.PATCH_COUNT] = len(self._patches) // 3
        self._begin(driver.PATCHES, self._patches)
        flags = self._place_flags()
        whole = np.frombuffer(words, np.uint64)
        arena_nbytes = self._place_temporaries(whole)
        return Template(
            whole,
            self._arena_words,
            self._block_words,
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

    def _use(self, buffer: Buffer, use: Use, base: int, index: int) -> None:
        """Note the addresses of a buffer that a piece, whose first command is the one
        of that *index*, has in its words from *base* on."""
        positions = [base + word for word in use.words]
        if type(buffer) is Temporary:
            number = self._numbers.get(buffer)
            if number is None:
                number = self._numbers[buffer] = len(self._lifetimes)
                self._lifetimes.append((index + use.first, index + use.last))
            else:
                first, _ = self._lifetimes[number]
                self._lifetimes[number] = first, index + use.last
            self._arena_words += positions
            self._owners += [number] * len(positions)
        elif isinstance(buffer, (Constant, Packed)):
            self._constants.append((buffer, positions))
        elif isinstance(buffer, Flag):
            self._flags += [(position, buffer) for position in positions]
        elif isinstance(buffer, (Input, Output)):
            number, limit = buffer.position, self._n_inputs
            if isinstance(buffer, Output):
                number, limit = number + self._n_inputs, self._n_arrays
            if number >= limit:
                raise ValueError(
                    f"a command names {type(buffer).__name__.lower()} "
                    f"{buffer.position} of a program that has fewer"
                )
            for position in positions:
                self._patches += (8 * position, number, self._words[position])
        else:
            raise TypeError(f"a word is the address of {buffer!r}, which has no place")

    def _place_temporaries(self, words: np.ndarray[Any, np.dtype[np.uint64]]) -> int:
        offsets, nbytes = self._arenas.place(
            [buffer.nbytes for buffer in self._numbers], self._lifetimes
        )
        places = np.array(offsets, np.uint64)
        words[self._arena_words] += places[self._owners]
        return nbytes
