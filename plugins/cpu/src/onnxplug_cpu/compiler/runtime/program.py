"""Makes programs of recorded commands: kernels are compiled, constants packed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug_compiler.ir.buffers import Buffer, Check, Packed
from onnxplug_compiler.ir.pieces import Work
from onnxplug_cpu.compiler.commands.laid import Laid, work_of
from onnxplug_cpu.compiler.commands.words import Command
from onnxplug_cpu.compiler.runtime.arena import (
    TOGETHER,
    Arenas,
    Block,
    address_of,
    release_mapped_pages,
)
from onnxplug_cpu.compiler.runtime.link import link
from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
from onnxplug_cpu.compiler.runtime.packed_layout import layout_name
from onnxplug_cpu.compiler.runtime.template import Described
from onnxplug_cpu.compiler.runtime.time_slices import Division, seconds_of_all

if TYPE_CHECKING:
    from onnxplug import ep
    from onnxplug_cpu.compiler.codegen.kernel import Kernel
    from onnxplug_cpu.compiler.runtime.jit import Library

Array: TypeAlias = "np.ndarray[Any, Any]"

AT_A_TIME: Final = 1 << 20
"""Bytes of packed constants that one program writes: meanwhile the originals and the
copies are both in memory."""


class PackingRefused(Exception):
    """A packed constant may not be used; the plan has to be made anew, without it."""


class Program(LinkedProgram):
    """Recorded commands as a program.

    Args:
        commands: in order, as recorded.
        library: has the machine code of kernels.
        workers: threads that a command may use, as the recorder was given.
        n_inputs, n_outputs: how many arrays a run has.
        specs: what the inputs and then the outputs must be, to be checked in each run.
        arenas: those of the session.
        checks: what to look at after each run.
        look: called before each kernel that is compiled; it may raise.
        weights: where packed constants are shared with other sessions.
        targets: the packed constants that the commands write, and their addresses.
        note: told of the packed constants before they are filled.

    Raises:
        KernelUnavailable: a kernel cannot be compiled here.
        PackingRefused: a packed constant may not be used.
        ValueError: commands name an array that a run does not have.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        library: Library,
        workers: int,
        *,
        n_inputs: int,
        n_outputs: int,
        specs: Sequence[Described] | None = None,
        arenas: Arenas | None = None,
        checks: Sequence[Check] = (),
        look: Callable[[], None] = lambda: None,
        weights: ep.WeightStore | None = None,
        targets: Mapping[Buffer, int] = MappingProxyType({}),
        note: Callable[[Sequence[Packed]], None] = lambda packed: None,
    ) -> None:
        work = self.work = work_of(commands)
        laid: list[Laid] = [each.piece.assembly for each in work.placed]
        chunks = list(itertools.chain.from_iterable([each.chunks for each in laid]))
        arenas = Arenas() if arenas is None else arenas
        resolve(work, library, look)
        template = link(work, n_inputs, n_outputs, specs, arenas)
        packed = [b for b in template.constants if isinstance(b, Packed)]
        missing = [b for b in packed if b not in targets]
        note(missing)
        fill(missing, library, workers, arenas, weights)
        super().__init__(
            template,
            Division(chunks, seconds_of(work, workers), workers),
            library,
            workers,
            n_inputs=n_inputs,
            specs=specs,
            arenas=arenas,
            checks=checks,
            targets=targets,
        )

    @property
    def commands(self) -> tuple[Command, ...]:
        """Those given."""
        return self.work.commands


def resolve(work: Work, library: Library, look: Callable[[], None]) -> None:
    """Give pieces that are new the addresses of their kernels."""
    found: list[Laid] = [each.piece.assembly for each in work.placed]
    new = {id(laid): laid for laid in found if laid.resolved_by is not library}.values()
    if not new:
        return
    # by identity, as hashing a kernel's key for each of its words takes long
    kernels: dict[int, Kernel] = {}
    for laid in new:
        kernels |= {id(kernel): kernel for kernel in laid.kernels}
        kernels |= {id(kernel): kernel for _, kernel in laid.code}
    known = library.addresses(list(kernels.values()), look)
    addresses = {number: known[kernel] for number, kernel in kernels.items()}
    for laid in new:
        laid.resolve(library, addresses)


def seconds_of(work: Work, workers: int) -> list[float]:
    """About how long each command takes; a piece is only run by as many workers."""
    seconds: list[float] = []
    for piece, *_ in work.placed:
        laid: Laid = piece.assembly
        if laid.seconds is None:
            commands = piece.commands
            laid.seconds = seconds_of_all(
                [command.flops for command in commands],
                [command.nbytes for command in commands],
                [command.chunks for command in commands],
                workers,
            )
        seconds += laid.seconds
    return seconds


def fill(
    packed: Sequence[Packed],
    library: Library,
    workers: int,
    arenas: Arenas,
    weights: ep.WeightStore | None = None,
) -> None:
    """Write those packed constants that are not there yet.

    The pages of mapped files that they were made from are given back on the way, so
    that the originals and the copies are not all in memory at a time.

    Args:
        weights: has what other sessions packed, and gets what is packed here.

    Raises:
        PackingRefused: one may not be used; all others are there.
    """
    missing = [b for b in packed if b.memory is None and not b.refused]
    places = _Places(arenas, missing, library, workers)
    for buffer in missing:
        with buffer.lock:
            if buffer.memory is None and not buffer.refused:
                _fill(buffer, places, library, weights)
    if any(buffer.refused for buffer in packed):
        raise PackingRefused


class _Places:
    """Memory for packed constants, which is taken when the first of a few needs it.

    Small ones are written some at a time, as a program takes longer to make than they
    take it.
    """

    def __init__(
        self, arenas: Arenas, packed: Sequence[Packed], library: Library, workers: int
    ) -> None:
        self._arenas: Final = arenas
        self._packed: Final = packed
        self._library: Final = library
        self._workers: Final = workers
        self._blocks: dict[Packed, Block] = {}
        self._written: dict[Packed, Block] = {}

    def _from(self, buffer: Packed, nbytes: int) -> Sequence[Packed]:
        """*buffer* and those behind it, of so many bytes together."""
        start = self._packed.index(buffer)
        totals = itertools.accumulate(b.nbytes for b in self._packed[start:])
        count = sum(1 for _ in itertools.takewhile(nbytes.__gt__, totals))
        return self._packed[start : start + max(1, count)]

    def _block(self, buffer: Packed) -> Block:
        """The place of *buffer*."""
        if buffer not in self._blocks:
            together = self._from(buffer, TOGETHER)
            blocks = self._arenas.blocks([each.nbytes for each in together])
            self._blocks = dict(zip(together, blocks, strict=True))
        return self._blocks[buffer]

    def written(self, buffer: Packed) -> Block:
        """The place of *buffer*, which has its content."""
        if buffer not in self._written:
            self._write(self._from(buffer, AT_A_TIME))
        return self._written.pop(buffer)

    def _write(self, packed: Sequence[Packed]) -> None:
        # another thread may just have written one: it has no commands then
        fills = {each: each.fill for each in packed}
        blocks = {each: self._block(each) for each, fill in fills.items() if fill}
        program = Program(
            list(itertools.chain.from_iterable(fills.values())),
            self._library,
            self._workers,
            n_inputs=0,
            n_outputs=0,
            arenas=self._arenas,
            targets={each: block.address for each, block in blocks.items()},
        )
        program.run((), ())
        for source in program.constants:
            release_mapped_pages(source)
        self._written = blocks


def _fill(
    buffer: Packed,
    places: _Places,
    library: Library,
    weights: ep.WeightStore | None,
) -> None:
    def make() -> Array:
        return _packed(buffer, places)

    layout = source = None
    constant = buffer.source
    if weights is not None and constant is not None and constant.find_source:
        layout = layout_name(buffer.fill, constant, buffer, library.isa)
        source = constant.find_source()
    try:
        if weights is None or layout is None or source is None:
            array = make()
        else:
            array = weights.get(source, layout, make)
    except PackingRefused:
        buffer.refused = True
    else:
        buffer.memory = Block(array, address_of(array), array.nbytes)
    buffer.fill, buffer.source = (), None  # which have the original


def _packed(buffer: Packed, places: _Places) -> Array:
    block = places.written(buffer)
    if buffer.accepts is not None and not buffer.accepts(block.array):
        raise PackingRefused
    block.array.flags.writeable = False
    return block.array
