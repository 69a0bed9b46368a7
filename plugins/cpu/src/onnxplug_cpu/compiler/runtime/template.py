"""A block of words without the addresses that only a session or a run knows."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Constant, Flag, Packed
from onnxplug_cpu.compiler.commands.chunks import MAX_CHUNKS
from onnxplug_cpu.compiler.runtime import driver

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Block: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


class Described(Protocol):
    """What a run's array has to be.

    Attributes:
        dtype: the elements'; ``None`` for any.
        shape: the sizes.
    """

    @property
    def dtype(self) -> np.dtype[Any] | None: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


class ArraySpec(Record):
    """An array of *dtype* and *shape*; see :class:`Described`."""

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]


class Template(Record):
    """A block without addresses that only a session or a run knows.

    Attributes:
        words: the block; where addresses are missing, the offset to be added to.
        arena_words: which words need the arena's address.
        block_words: which words need the block's own address.
        pauses: whether commands may end before they are done, to be done again.
        constants: buffers of constants, each once.
        constant_words: which words are addresses in them.
        constant_owners: of each of those the number of the buffer.
        arena_nbytes: the arena's size.
        flags: which word each flag is.
    """

    words: Block
    arena_words: Numbers
    block_words: Numbers
    pauses: bool
    constants: list[Constant | Packed]
    constant_words: Numbers
    constant_owners: Numbers
    arena_nbytes: int
    flags: dict[Flag, int]


def head_of(
    n_inputs: int, n_arrays: int, specs: Sequence[Described] | None
) -> array.array[int]:
    """The words before the table of commands."""
    words = [0] * driver.HEADER
    words[driver.END] = MAX_CHUNKS
    words[driver.ARRAY_COUNT] = n_arrays
    words[driver.ADDRESSES] = 8 * len(words)
    words += [0] * n_arrays
    words[driver.ARRAYS] = 8 * len(words)
    for position in range(n_arrays):
        is_input = position < n_inputs
        words.append(driver.INPUT_FLAGS if is_input else driver.OUTPUT_FLAGS)
        if specs is None:
            words += (0, _MASK)
        else:
            dtype, shape = specs[position].dtype, specs[position].shape
            words += (0 if dtype is None else id(dtype), len(shape), *shape)
    words[driver.COMMANDS] = 8 * len(words)
    return array.array("Q", words)
