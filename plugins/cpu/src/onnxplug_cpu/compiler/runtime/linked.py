"""A program that is linked: a block of words that runs in one native call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.arrays import usual_form
from onnxplug_compiler.ir.buffers import Buffer, Check, Constant, Packed
from onnxplug_cpu.compiler.runtime import driver, sequence
from onnxplug_cpu.compiler.runtime.arena import Arenas, address_of, place_of
from onnxplug_cpu.compiler.runtime.pool import Pool, shared_pool
from onnxplug_cpu.compiler.runtime.template import Described, Template
from onnxplug_cpu.compiler.runtime.time_slices import Division, Part

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.words import Command
    from onnxplug_cpu.compiler.runtime.jit import Library

Array: TypeAlias = "np.ndarray[Any, Any]"

KEPT_INSTANCES: Final = 4
"""Blocks of words that a program keeps for later runs."""

WORTH_RELEASING: Final = 5e-6
"""Seconds that a run has to take for the GIL to be released meanwhile."""


def _nothing(*given: Part) -> None:
    """What there is to do between parts of a run that nobody cancels."""


class ErrorFound(Exception):
    """A run has found an error, which a plan that was made for its sizes tells."""


class LinkedProgram:
    """A block of words that runs in one native call, on several threads.

    A program may be run from several threads of Python at a time; others go on
    meanwhile, unless the run is short.  A long run looks for signals on its way.

    Args:
        template: the block, of which all packed constants are there.
        division: how long the commands take.
        library: has the machine code of kernels.
        workers: threads that a command may use.
        n_inputs: how many of the arrays of a run are inputs.
        specs: what the inputs and then the outputs must be, to be checked in each run.
        arenas: those of the session.
        checks: what to look at after each run.
        targets: the packed constants that the commands write, and their addresses.

    Attributes:
        division, workers, n_inputs, specs, arenas: as given.
        looks: whether a run may be so long that it should look on its way.

    Raises:
        KernelUnavailable: the driver cannot be compiled here.
    """

    def __init__(
        self,
        template: Template,
        division: Division,
        library: Library,
        workers: int,
        *,
        n_inputs: int,
        specs: Sequence[Described] | None,
        arenas: Arenas,
        checks: Sequence[Check] = (),
        targets: Mapping[Buffer, int] = MappingProxyType({}),
    ) -> None:
        self.division = division
        self.workers = workers
        self.n_inputs = n_inputs
        self.specs = specs
        self.arenas = arenas
        buffers = template.constants
        shared = driver.shared_driver(library)
        self._enter = shared.run
        self._pool: Pool | None = None
        if workers > 1 and division.most_chunks > 1:
            self._pool = shared_pool(library)
        words = template.words

        def address(buffer: Constant | Packed) -> int:
            target = targets.get(buffer)
            return place_of(buffer) if target is None else target

        added = np.array([address(buffer) for buffer in buffers], np.uint64)
        words[template.constant_words] += added[template.constant_owners]
        words[driver.PYTHON] = shared.python
        self._pauses = template.pauses
        self._is_long = division.is_long
        self.looks: Final = self._pauses or self._is_long
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
                self._own_arena = self.arenas.allocate(self._arena_nbytes)
                self._bind(instance, self._own_arena.address)
            self._undisturbed = instance.words

    @property
    def commands(self) -> tuple[Command, ...]:
        """Those that it was made of; none if it was kept, which has none."""
        return ()

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
        if self._is_long and threading.current_thread() is threading.main_thread():
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
        if pool is not None and pool.size < self.workers:
            pool.grow(self.workers)
        arena = None
        if self._arena_nbytes:
            arena = self.arenas.acquire(self._arena_nbytes)
        try:
            try:
                instance = self._instances.pop()
            except IndexError:
                instance = self._new_instance()
            words = instance.words
            if arena is not None and instance.arena != arena.address:
                self._bind(instance, arena.address)
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
            # words that an exception left half changed, or with an error of a check,
            # are not used again
            if len(self._instances) < KEPT_INSTANCES:
                self._instances.append(instance)
        finally:
            if arena is not None:
                self.arenas.release(arena)
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
        if self.specs is None or len(inputs) + len(outputs) != len(self.specs):
            return (
                [usual_form(array, array.dtype) for array in map(np.asarray, inputs)],
                [array.view(np.ndarray) for array in outputs],
            )
        expected = [spec.dtype for spec in self.specs]
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
                f"{self.n_inputs} inputs, and outputs in C order and writeable"
                if self.specs is None
                else f"inputs {_described(self.specs[: self.n_inputs])}, outputs "
                f"{_described(self.specs[self.n_inputs :])}, in C order and writeable"
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


def _described(arrays: Iterable[Array | Described]) -> str:
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays) or "none"
