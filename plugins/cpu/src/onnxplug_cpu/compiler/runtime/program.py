"""A partition as one native call: recorded commands with addresses, ready to run."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.arrays import usual_form
from onnxplug_compiler.ir.buffers import Buffer, Check, Constant, Packed
from onnxplug_compiler.ir.pieces import Work
from onnxplug_cpu.compiler.commands.laid import Laid, work_of
from onnxplug_cpu.compiler.commands.words import Command
from onnxplug_cpu.compiler.runtime import driver, sequence
from onnxplug_cpu.compiler.runtime.arena import (
    Arenas,
    Block,
    address_of,
    place_of,
    release_mapped_pages,
)
from onnxplug_cpu.compiler.runtime.link import Described, link
from onnxplug_cpu.compiler.runtime.packed_layout import layout_name
from onnxplug_cpu.compiler.runtime.pool import Pool, shared_pool
from onnxplug_cpu.compiler.runtime.time_slices import (
    Division,
    Part,
    estimated_seconds,
)

if TYPE_CHECKING:
    from onnxplug import ep
    from onnxplug_cpu.compiler.codegen.kernel import Kernel
    from onnxplug_cpu.compiler.runtime.jit import Library

Array: TypeAlias = "np.ndarray[Any, Any]"

KEPT_INSTANCES: Final = 4
"""Blocks of words that a program keeps for later runs."""

WORTH_RELEASING: Final = 5e-6
"""Seconds that a run has to take for the GIL to be released meanwhile."""

TOGETHER: Final = 64 << 20
"""Bytes of packed constants that lie in one block, and share huge pages; it is given
back with the last of them."""

AT_A_TIME: Final = 1 << 20
"""Bytes of packed constants that one program writes: meanwhile the originals and the
copies are both in memory."""


def _nothing(*given: Part) -> None:
    """What there is to do between parts of a run that nobody cancels."""


class PackingRefused(Exception):
    """A packed constant may not be used; the plan has to be made anew, without it."""


class Program:
    """Commands that run in one native call, on several threads.

    A program may be run from several threads of Python at a time; others go on
    meanwhile, unless the run is short.  A long run looks for signals on its way.

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

    Attributes:
        division: how long they take.

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
    ) -> None:
        work = self._work = work_of(commands)
        laid: list[Laid] = [each.piece.assembly for each in work.placed]
        chunks = list(itertools.chain.from_iterable([each.chunks for each in laid]))
        self.division = Division(chunks, _seconds(work, workers), workers)
        self._workers = workers
        self._n_inputs = n_inputs
        self._specs = specs
        self._arenas = Arenas() if arenas is None else arenas
        _resolve(work, library, look)
        template = link(work, n_inputs, n_outputs, specs, self._arenas)
        buffers = template.constants
        packed = [b for b in buffers if isinstance(b, Packed) and b not in targets]
        fill(packed, library, workers, self._arenas, weights)
        shared = driver.shared_driver(library)
        self._enter = shared.run
        self._pool: Pool | None = None
        if workers > 1 and max(chunks, default=0) > 1:
            self._pool = shared_pool(library)
        words = template.words

        def address(buffer: Constant | Packed) -> int:
            target = targets.get(buffer)
            return place_of(buffer) if target is None else target

        added = np.array([address(buffer) for buffer in buffers], np.uint64)
        words[template.constant_words] += added[template.constant_owners]
        words[driver.PYTHON] = shared.python
        self._pauses = template.pauses
        words[driver.RELEASES] = int(
            self._pauses or self.division.seconds > WORTH_RELEASING
        )
        words[sequence.THREADS] = 1
        if self._pool is not None:
            words[sequence.THREADS] = workers
            words[sequence.CONTROL] = self._pool.control
        self._checks = [(template.flags[check.flag], check) for check in checks]
        self._words = words
        self._arena_words = template.arena_words
        self._block_words = template.block_words
        self._arena_nbytes = template.arena_nbytes
        self._instances: list[_Instance] = []
        self._buffers = buffers
        self._undisturbed: np.ndarray[Any, np.dtype[np.uint64]] | None = None
        if not words[driver.RELEASES] and not checks:
            # runs that hold the GIL cannot overlap: one block and one arena do
            instance = self._new_instance()
            if self._arena_nbytes:
                self._own_arena = self._arenas.allocate(self._arena_nbytes)
                self._bind(instance, self._own_arena.address)
            self._undisturbed = instance.words

    @property
    def looks(self) -> bool:
        """Whether a run may be so long that it should look on its way."""
        return self._pauses or self.division.is_long

    @property
    def commands(self) -> tuple[Command, ...]:
        """Those given."""
        return self._work.commands

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute the outputs.

        Args:
            inputs: of the shapes that the commands were recorded for; they are never
                written, and copied if they are not in C order.
            outputs: likewise, in C order and writeable; they overlap no input.

        Raises:
            ValueError: an array is not as the program expects it.
            KeyboardInterrupt: the user interrupted a long run.
        """
        if not self.try_run(inputs, outputs) and not self.try_run(
            *self._in_usual_form(inputs, outputs)
        ):
            self._refuse(inputs, outputs)

    def try_run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
        """Compute the outputs if the arrays are just as the program expects them, and
        do nothing else; whether they are."""
        words = self._undisturbed
        if words is not None:
            return self._enter(words, *inputs, *outputs)
        # Python handles signals between two calls, and in its main thread only
        if (
            self.division.is_long
            and threading.current_thread() is threading.main_thread()
        ):
            return self._run(inputs, outputs, self.division.parts, _nothing)
        return self._run(inputs, outputs)

    def run_in_parts(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        parts: Callable[[], Iterable[Part]],
        after: Callable[[Part], object],
        look: Callable[[], object] = _nothing,
    ) -> None:
        """Compute the outputs, with something to do between.

        Args:
            inputs, outputs: as :meth:`run` takes them.
            parts: gives all commands in parts, each when the one before it is done.
            after: called after each part; if it raises, the run ends there.
            look: called now and then while a part is done; likewise.

        Raises:
            ValueError: an array is not as the program expects it.
        """
        if self._run(inputs, outputs, parts, after, look):
            return
        usual = self._in_usual_form(inputs, outputs)
        if not self._run(*usual, parts, after, look):
            self._refuse(inputs, outputs)

    def _run(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        parts: Callable[[], Iterable[Part]] | None = None,
        after: Callable[[Part], object] = _nothing,
        look: Callable[[], object] = _nothing,
    ) -> bool:
        """Whether the arrays are as expected, and the outputs hence computed."""
        pool = self._pool
        if pool is not None and pool.size < self._workers:
            pool.grow(self._workers)
        arena = None
        if self._arena_nbytes:
            arena = self._arenas.acquire(self._arena_nbytes)
        try:
            try:
                instance = self._instances.pop()
            except IndexError:
                instance = self._new_instance()
            words = instance.words
            if arena is not None and instance.arena != arena.address:
                self._bind(instance, arena.address)
            for place, _ in self._checks:
                words[place] = 0
            if parts is None:
                done = self._enter(words, *inputs, *outputs)
                if self._pauses and words[sequence.PAUSED]:
                    self.go_on(words, [*inputs, *outputs], look)
                    words[driver.FIRST] = 0
            else:
                arrays = [*inputs, *outputs]
                done = self._enter_parts(words, arrays, parts(), after, look)
            for place, check in self._checks:
                if words[place]:
                    raise check.error(int(words[place].view(np.int64)))
            # words that an exception left half changed are not used again
            if len(self._instances) < KEPT_INSTANCES:
                self._instances.append(instance)
        finally:
            if arena is not None:
                self._arenas.release(arena)
        return done

    def go_on(
        self,
        words: np.ndarray[Any, np.dtype[np.uint64]],
        arrays: Sequence[Array],
        look: Callable[[], object],
    ) -> None:
        """Go on with a command that is paused, until it is done."""
        while words[sequence.PAUSED]:
            words[sequence.PAUSED] = 0
            look()  # Python handles signals here, too
            self._enter(words, *arrays)

    def _enter_parts(
        self,
        words: np.ndarray[Any, np.dtype[np.uint64]],
        arrays: Sequence[Array],
        parts: Iterable[Part],
        after: Callable[[Part], object],
        look: Callable[[], object],
    ) -> bool:
        which = slice(driver.FIRST, driver.END + 1)
        whole = words[which].copy()
        done = True
        for part in parts:
            words[which] = part
            done = self._enter(words, *arrays)
            self.go_on(words, arrays, look)
            if not done:
                break
            after(part)
        words[which] = whole
        return done

    @property
    def constants(self) -> list[Array]:
        """The arrays that the commands read."""
        return [b.array for b in self._buffers if isinstance(b, Constant)]

    def _new_instance(self) -> _Instance:
        words = self._words.copy()
        words[self._block_words] += np.uint64(address_of(words))
        return _Instance(words)

    def _bind(self, instance: _Instance, arena: int) -> None:
        places = self._arena_words
        instance.words[places] = self._words[places] + np.uint64(arena)
        instance.arena = arena

    def _in_usual_form(
        self, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[list[Array], list[Array]]:
        """The arrays as the entry expects them; outputs are never copied for that."""
        if self._specs is None or len(inputs) + len(outputs) != len(self._specs):
            return (
                [usual_form(array, array.dtype) for array in map(np.asarray, inputs)],
                [array.view(np.ndarray) for array in outputs],
            )
        expected = [spec.dtype for spec in self._specs]
        usual = [
            usual_form(array, dtype or array.dtype)
            if dtype in (None, array.dtype)
            else array
            for array, dtype in zip(map(np.asarray, inputs), expected, strict=False)
        ]
        # like usual_form, of which a copy would be lost
        places = [
            array.view(dtype, np.ndarray) if dtype == array.dtype else array
            for array, dtype in zip(outputs, expected[len(inputs) :], strict=True)
        ]
        return usual, places

    def _refuse(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        raise ValueError(
            "a program was run with arrays that it was not made for: inputs "
            f"{_described(inputs)}, outputs {_described(outputs)}; expected "
            + (
                f"{self._n_inputs} inputs, and outputs in C order and writeable"
                if self._specs is None
                else f"inputs {_described(self._specs[: self._n_inputs])}, outputs "
                f"{_described(self._specs[self._n_inputs :])}, in C order and writeable"
            )
        )


class _Instance:
    """The words of a program for one run at a time.

    Attributes:
        words: the block.
        arena: the address of the arena that the words name.
    """

    __slots__ = ("arena", "words")

    def __init__(self, words: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        self.words = words
        self.arena = 0


def _resolve(work: Work, library: Library, look: Callable[[], None]) -> None:
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


def _seconds(work: Work, workers: int) -> list[float]:
    """About how long each command takes; a piece is only run by as many workers."""
    seconds: list[float] = []
    for piece, *_ in work.placed:
        laid: Laid = piece.assembly
        if laid.seconds is None:
            laid.seconds = [estimated_seconds(c, workers) for c in piece.commands]
        seconds += laid.seconds
    return seconds


def _described(arrays: Iterable[Array | Described]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays) or "none"


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
