"""From recorded commands to a block of words: all but the addresses of one run.

Where everything is in a block depends on which pieces it is made of and on which of
their buffers are one, but hardly on sizes: this is found out once for many blocks.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from itertools import chain, count
from typing import Any, Final, cast

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import (
    Buffer,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
)
from onnxplug_compiler.ir.pieces import Work
from onnxplug_cpu.compiler.commands.laid import Laid
from onnxplug_cpu.compiler.runtime import driver
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.template import (
    Block,
    Described,
    Template,
    head_of,
)

MOST_OUTLINES: Final = 64
"""Outlines that are kept of blocks that have the same groups of calls."""


def link(
    work: Work,
    n_inputs: int,
    n_outputs: int,
    specs: Sequence[Described] | None,
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
    n_arrays = n_inputs + n_outputs
    head = head_of(n_inputs, n_arrays, specs)
    laid: list[Laid] = [each.piece.assembly for each in work.placed]
    if any(each.traced or each.chosen for each in laid):
        raise TypeError("a word is a traced size, which is no number")
    buffers = buffers_of(work)
    identities = identities_of(buffers)
    key = (len(head), tuple([each.layout for each in laid]))
    outline = work.outlines.get(key)
    if outline is None or outline.identities != identities:
        if len(work.outlines) >= MOST_OUTLINES:
            work.outlines.clear()
        outline = work.outlines[key] = Outline(work, len(head), buffers, identities)
    return outline.filled(work, head, buffers, n_inputs, n_arrays, arenas)


def buffers_of(work: Work) -> list[Buffer]:
    """Those of all pieces, one after another."""
    return list(chain.from_iterable([each.buffers for each in work.placed]))


def identities_of(buffers: Sequence[Buffer]) -> list[int]:
    """For each buffer the number of it among those that are not the same."""
    numbers = dict(zip(dict.fromkeys(buffers), count(), strict=False))
    return list(map(numbers.__getitem__, buffers))


class Contents(Record):
    """What sizes decide of a block.

    Attributes:
        words: those of all pieces.
        offsets: of each buffer of each piece, in bytes.
        entries: the addresses of the kernels of commands.
        chunks: of commands.
        sizes: bytes of temporary buffers.
        pauses: whether commands may end before they are done.
    """

    words: bytes | bytearray | Block
    offsets: list[int]
    entries: list[int]
    chunks: list[int]
    sizes: list[int]
    pauses: bool


class Outline:
    """Where everything is in a block.

    Attributes:
        identities: for each buffer of each piece the number of it among those that are
            not the same, which the outline is right for.
        temporaries: which of these buffers are temporary, each once.
    """

    def __init__(
        self,
        work: Work,
        head: int,
        buffers: Sequence[Buffer],
        identities: Sequence[int],
    ) -> None:
        self.identities = identities
        base = head + 3 * len(work)
        nested: list[int] = []
        blocks: list[int] = []
        shifts: list[int] = []
        starts: list[int] = []
        arena: list[int] = []
        owners: list[int] = []
        constant_words: list[int] = []
        constant_owners: list[int] = []
        flag_words: list[int] = []
        self.temporaries: list[int] = []
        self._constants: list[int] = []
        self._flags: list[int] = []
        patches: list[int] = []
        self._patched: list[int] = []
        self._lifetimes: list[tuple[int, int]] = []
        flags_of: list[int] = []
        place_of: dict[int, int] = {}
        index = first = 0
        moved: list[int] = []
        moved_by: list[int] = []
        for piece, own, *_ in work.placed:
            laid: Laid = piece.assembly
            nested += [base + word for word in laid.nested]
            shifts += [8 * base] * len(laid.nested)
            blocks += [base + word for word in laid.blocks]
            starts += [8 * (base + start) for start in laid.starts]
            for use in laid.uses:
                at = first + use.buffer
                words = [base + word for word in use.words]
                moved += words
                moved_by += [at] * len(words)
                buffer, identity = buffers[at], identities[at]
                if type(buffer) is Temporary:
                    number = place_of.get(identity)
                    if number is None:
                        number = place_of[identity] = len(self.temporaries)
                        self.temporaries.append(at)
                        self._lifetimes.append((index + use.first, index + use.last))
                    else:
                        begin, _ = self._lifetimes[number]
                        self._lifetimes[number] = begin, index + use.last
                    arena += words
                    owners += [number] * len(words)
                elif isinstance(buffer, (Constant, Packed)):
                    number = place_of.get(identity)
                    if number is None:
                        number = place_of[identity] = len(self._constants)
                        self._constants.append(at)
                    constant_words += words
                    constant_owners += [number] * len(words)
                elif isinstance(buffer, Flag):
                    number = place_of.get(identity)
                    if number is None:
                        number = place_of[identity] = len(self._flags)
                        self._flags.append(at)
                    flag_words += words
                    flags_of += [number] * len(words)
                elif isinstance(buffer, (Input, Output)):
                    patches += words
                    self._patched += [at] * len(words)
                else:
                    raise TypeError(
                        f"a word is the address of {buffer!r}, which has no place"
                    )
            base += len(laid.words)
            index += len(laid.chunks)
            first += len(own)
        self._table = head
        self._patches_at = base
        self._flags_at = base + 3 * len(patches)
        self._tail = 3 * len(patches) + len(self._flags)
        self._nested = np.array(nested, np.int64)
        self._shifts = np.array(shifts, np.uint64)
        self._starts = np.array(starts, np.uint64)
        self._moved = np.array(moved, np.int64)
        self._moved_by = np.array(moved_by, np.int64)
        self._arena = np.array(arena, np.int64)
        self._owners = np.array(owners, np.int64)
        self._constant_words = np.array(constant_words, np.int64)
        self._constant_owners = np.array(constant_owners, np.int64)
        self._patches = np.array(patches, np.int64)
        self._flag_words = np.array(flag_words, np.int64)
        self._flag_places = self._flags_at + np.array(flags_of, np.int64)
        # the second word of a command's entry is the address of its words
        entries = range(head + 1, head + 3 * len(starts), 3)
        self._block = np.array([*nested, *flag_words, *blocks, *entries], np.int64)
        # of the sizes placed last, as most do not change
        self._places: tuple[list[int], Block, int] | None = None

    def filled(
        self,
        work: Work,
        head: array.array[int],
        buffers: Sequence[Buffer],
        n_inputs: int,
        n_arrays: int,
        arenas: Arenas,
    ) -> Template:
        """The block of *work*, which has this outline; see :func:`link`."""
        laid: list[Laid] = [each.piece.assembly for each in work.placed]
        contents = Contents(
            bytearray().join([each.words for each in laid]),
            list(chain.from_iterable([each.offsets for each in work.placed])),
            list(chain.from_iterable([each.entries for each in laid])),
            list(chain.from_iterable([each.chunks for each in laid])),
            [buffers[at].nbytes for at in self.temporaries],
            any(each.pauses for each in laid),
        )
        return self.completed(contents, head, buffers, n_inputs, n_arrays, arenas)

    def completed(
        self,
        contents: Contents,
        head: array.array[int],
        buffers: Sequence[Buffer],
        n_inputs: int,
        n_arrays: int,
        arenas: Arenas,
    ) -> Template:
        """The block of commands that have this outline.

        Args:
            head, n_inputs, n_arrays, arenas: as :func:`link` has them.
            buffers: those of all pieces, whose sizes do not matter.
        """
        commands = len(self._starts)
        head[driver.LAST] = commands
        head[driver.PATCH_COUNT] = len(self._patches)
        head[driver.PATCHES] = 8 * self._patches_at
        parts: list[Any] = [head, bytes(24 * commands), contents.words]
        parts.append(bytes(8 * self._tail))
        words: Block = np.frombuffer(bytearray().join(parts), np.uint64)
        words[self._nested] += self._shifts
        words[self._moved] += np.array(contents.offsets, np.int64).view(np.uint64)[
            self._moved_by
        ]
        table = words[self._table : self._table + 3 * commands]
        table[0::3] = contents.entries
        table[1::3] = self._starts
        table[2::3] = contents.chunks
        patches = words[self._patches_at : self._flags_at]
        patches[0::3] = 8 * self._patches
        numbers = {
            at: _array_number(buffers[at], n_inputs, n_arrays)
            for at in dict.fromkeys(self._patched)
        }
        patches[1::3] = [numbers[at] for at in self._patched]
        patches[2::3] = words[self._patches]
        words[self._flag_words] = 8 * self._flag_places
        sizes = contents.sizes
        known = self._places
        if known is None or known[0] != sizes:
            offsets, nbytes = arenas.place(sizes, self._lifetimes)
            known = self._places = sizes, np.array(offsets, np.uint64), nbytes
        words[self._arena] += known[1][self._owners]
        flags: dict[Flag, int] = {}
        for number, at in enumerate(self._flags):
            flag = buffers[at]
            assert isinstance(flag, Flag)
            flags[flag] = self._flags_at + number
        return Template(
            words,
            self._arena,
            self._block,
            contents.pauses,
            # as they were when the outline was made
            [cast("Constant | Packed", buffers[at]) for at in self._constants],
            self._constant_words,
            self._constant_owners,
            known[2],
            flags,
        )


def _array_number(buffer: Buffer, n_inputs: int, n_arrays: int) -> int:
    """The number of an input or output among the arrays of a run."""
    assert isinstance(buffer, Input | Output)
    number, limit = buffer.position, n_inputs
    if isinstance(buffer, Output):
        number, limit = number + n_inputs, n_arrays
    if number >= limit:
        raise ValueError(
            f"a command names {type(buffer).__name__.lower()} {buffer.position} of a "
            "program that has fewer"
        )
    return number
