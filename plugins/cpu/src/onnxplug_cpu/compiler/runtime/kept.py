"""Programs as plain values, which the cache keeps, and made to run again.

A kept program is the block of words with the places of all addresses in it, the keys of
its kernels, and how each constant is found or packed.  Nothing of it is planned, linked
or compiled again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.entries import fingerprint
from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import (
    Buffer,
    Check,
    Constant,
    Flag,
    Packed,
    constant_named,
)
from onnxplug_cpu.compiler.runtime import driver
from onnxplug_cpu.compiler.runtime.arena import (
    TOGETHER,
    Arenas,
    Block,
    address_of,
    release_mapped_pages,
)
from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
from onnxplug_cpu.compiler.runtime.template import ArraySpec, Template, head_of
from onnxplug_cpu.compiler.runtime.time_slices import Division

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.runtime.jit import Library

Plain: TypeAlias = "tuple[Any, ...]"
"""Of numbers, texts, bytes and tuples of such."""

Values: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"
"""Of arrays, names of dtypes, empty for any, and shapes."""

NAMED, CONTENT, PACKED, TARGET = range(4)
"""What a constant is: one of the partition's; numbers that were computed; either of
these in another layout; or what the program packs."""

MOST_DIGESTED: Final = 4 << 20
"""Bytes of a constant that are digested to tell them from others."""


class NothingKept(Exception):
    """No plan was kept for what is run, or it does not do."""


class KeptProgram(Record):
    """A program as plain values.

    Attributes:
        words: the block; what is an address of a kernel has any value.
        n_inputs, specs: of the arrays of a run, the latter as names of dtypes and
            shapes; ``None`` if they are not checked.
        kernels: keys.
        code: which words are addresses of kernels, and of which; int64 as bytes, as
            in what follows.
        arena_words, block_words, constant_words, constant_owners, arena_nbytes: as of
            :class:`~.template.Template`.
        constants: each begins with what it is, as one of :data:`NAMED` and so on.
        chunks, costs: of :class:`~.time_slices.Division`.
    """

    words: bytes
    n_inputs: int
    specs: Values | None
    kernels: tuple[str, ...]
    code_words: bytes
    code_kernels: bytes
    arena_words: bytes
    block_words: bytes
    constant_words: bytes
    constant_owners: bytes
    arena_nbytes: int
    constants: tuple[Plain, ...]
    flags: tuple[int, ...]
    chunks: tuple[int, ...]
    costs: tuple[float, ...]

    @property
    def fillings(self) -> list[KeptProgram]:
        """What packs its constants."""
        return [Filling(*each).program for each in self.constants if each[0] == PACKED]

    @property
    def all_kernels(self) -> set[str]:
        """The keys of its kernels and of those that pack its constants."""
        return {*self.kernels, *[k for each in self.fillings for k in each.kernels]}


class Filling(Record):
    """How a packed constant is filled.

    Attributes:
        kind: that it is packed.
        source: the constant that is packed.
        layout: names what it becomes, for all sessions; ``None`` if nothing does.
        nbytes: of the packed form.
        origin: what tells the source's bytes from all others, if whether they can be
            packed so depends on them.
        values: the program that packs it, as plain values.
    """

    kind: int
    source: Plain
    layout: str | None
    nbytes: int
    origin: str | None
    values: Plain

    @property
    def program(self) -> KeptProgram:
        """What packs it."""
        return KeptProgram(*self.values)


class KeptConstants:
    """The constants of kept programs of one session.

    Args:
        partition: has those that have names.
        library: has the machine code of kernels.
        workers: threads that may pack.
        arenas: those of the session.
        weights: where packed constants are shared with other sessions.
    """

    def __init__(
        self,
        partition: ep.Partition,
        library: Library,
        workers: int,
        arenas: Arenas,
        weights: ep.WeightStore | None,
    ) -> None:
        self._partition = partition
        self.library: Final = library
        self.workers: Final = workers
        self.arenas: Final = arenas
        self._weights = weights
        self._constants: dict[Plain, Constant] = {}
        self._packed: dict[tuple[Plain, Any], Packed] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all that are packed."""
        return sum(each.nbytes for each in list(self._packed.values()))

    def clear(self) -> None:
        """Give up those that no program uses."""
        self._constants, self._packed = {}, {}

    def are_as_kept(self, kept: KeptProgram) -> bool:
        """Whether constants that were looked at when they were packed are the same."""
        for each in kept.constants:
            if each[0] == PACKED:
                filling = Filling(*each)
                if filling.origin is not None and filling.origin != origin_of(
                    self._partition, filling.source
                ):
                    return False
        return True

    def of(self, values: Sequence[Plain]) -> list[Constant | Packed]:
        """The constants; those that are packed are there.

        Raises:
            MemoryError: there is no memory for them.
        """
        wanted = [Filling(*each) for each in values if each[0] == PACKED]
        room = _Room(self.arenas, [filling.nbytes for filling in wanted])
        packed = {
            number: self._filled(filling, functools.partial(room.block, number))
            for number, filling in enumerate(wanted)
        }
        numbers = iter(range(len(wanted)))
        return [
            packed[next(numbers)] if each[0] == PACKED else self._constant(each)
            for each in values
        ]

    def _constant(self, values: Plain) -> Constant:
        found = self._constants.get(values)
        if found is None:
            kind, what, nbytes = values
            if kind == CONTENT:
                array = np.frombuffer(what, np.uint8)
                found = Constant(nbytes, lambda: array)
            else:
                found = constant_named(self._partition, what, nbytes)
            self._constants[values] = found
        return found

    def _filled(self, filling: Filling, block: Callable[[], Block]) -> Packed:
        key = filling.source, filling.layout or filling.values
        found = self._packed.get(key)
        if found is not None:
            return found
        packed = Packed(filling.nbytes)
        source = self._constant(filling.source).another()

        def make() -> np.ndarray[Any, Any]:
            return self._fill(filling.program, source, packed, block())

        origin = source.find_source() if source.find_source else None
        if self._weights is None or filling.layout is None or origin is None:
            array = make()
        else:
            array = self._weights.get(origin, filling.layout, make)
        packed.memory = Block(array, address_of(array), array.nbytes)
        self._packed[key] = packed
        return packed

    def _fill(
        self, kept: KeptProgram, source: Constant, target: Packed, block: Block
    ) -> np.ndarray[Any, Any]:
        buffers: list[Constant | Packed] = [
            target if each[0] == TARGET else source for each in kept.constants
        ]
        program = restored(kept, self, buffers, {target: block.address})
        program.run((), ())
        release_mapped_pages(source.array)
        block.array.flags.writeable = False
        return block.array


class _Room:
    """Memory for packed constants, which is taken when the first of a few needs it."""

    def __init__(self, arenas: Arenas, sizes: Sequence[int]) -> None:
        self._arenas = arenas
        self._sizes = sizes
        self._blocks: dict[int, Block] = {}

    def block(self, number: int) -> Block:
        """The place of a constant, by its number."""
        if number not in self._blocks:
            totals = accumulate(self._sizes[number:])
            count = max(1, sum(1 for _ in takewhile(TOGETHER.__gt__, totals)))
            together = self._sizes[number : number + count]
            for other, block in enumerate(self._arenas.blocks(together), number):
                self._blocks[other] = block
        return self._blocks[number]


def restored(
    kept: KeptProgram,
    session: KeptConstants,
    constants: list[Constant | Packed],
    targets: dict[Buffer, int] | None = None,
) -> LinkedProgram:
    """A kept program that runs; all its kernels are in memory or in the cache.

    A run that finds an error raises :class:`NothingKept`: what the error is, knows who
    plans.

    Args:
        constants: in their order, packed ones filled, but for *targets*.
        targets: what it packs, and where.

    Raises:
        KernelUnavailable: a kernel is not there any more.
    """
    from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable

    addresses = session.library.kept_addresses(kept.kernels)
    if addresses is None:
        raise KernelUnavailable("a kernel of a program that was kept is gone")
    words = np.frombuffer(bytearray(kept.words), np.uint64)
    specs = None
    if kept.specs is not None:
        specs = [
            ArraySpec(ep.DataType(name).numpy if name else None, shape)
            for name, shape in kept.specs
        ]
        head = np.array(head_of(kept.n_inputs, len(specs), specs), np.uint64)
        for place in (driver.LAST, driver.PATCH_COUNT, driver.PATCHES):
            head[place] = words[place]  # the only ones that depend on commands
        words[: len(head)] = head
    known = np.array(addresses, np.uint64)
    words[_numbers(kept.code_words)] = known[_numbers(kept.code_kernels)]
    flags = {Flag(): place for place in kept.flags}
    template = Template(
        words,
        _numbers(kept.arena_words),
        _numbers(kept.block_words),
        False,
        constants,
        _numbers(kept.constant_words),
        _numbers(kept.constant_owners),
        kept.arena_nbytes,
        flags,
    )
    return LinkedProgram(
        template,
        Division(kept.chunks, kept.costs, session.workers),
        session.library,
        session.workers,
        n_inputs=kept.n_inputs,
        specs=specs,
        arenas=session.arenas,
        checks=[Check(flag, lambda found: NothingKept(), ()) for flag in flags],
        targets=targets or {},
    )


def origin_of(partition: ep.Partition, source: Plain) -> str | None:
    """What tells the bytes of a constant from all others on this machine: the place
    in a file, or a digest of few bytes; ``None`` if nothing does."""
    if source[0] != NAMED:
        return None
    _, name, nbytes = source
    found = partition.weight(name)
    if found is not None and found.path is not None:
        return repr(found.key)
    if nbytes > MOST_DIGESTED:
        return None
    return fingerprint(np.asarray(partition.constant(name)).tobytes()).hex()


def _numbers(values: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(values, np.int64)
