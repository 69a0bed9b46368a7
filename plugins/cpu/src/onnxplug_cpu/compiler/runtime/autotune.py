"""Measures candidates, which compute the same, and keeps which was the fastest.

A network runs each of its kernels with caches that are full of other things, and what
is fastest with warm caches often is not then.  So before each measurement as much
memory is read as the caches hold, and then what the layer before would have written.
The candidates are measured in turn, by the threads of the session: all of them, then
those that are not far behind, and at last only the fastest and the first, which says
what is gained: the best of many measurements is also the luckiest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onnxplug.authoring.entries import fingerprint
from onnxplug.authoring.locks import new_rlock
from onnxplug_cpu.compiler.codegen.emit import Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.ir.commands import (
    Address,
    Buffer,
    Code,
    Command,
    Output,
    Word,
    Words,
)
from onnxplug_cpu.compiler.ir.recorder import Candidate, Choose, Recorder
from onnxplug_cpu.compiler.runtime.arena import ALIGNMENT, Arenas, allocate, round_up
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.time_slices import Part
from onnxplug_cpu.compiler.target.isa import LANES, VECTOR_BYTES
from onnxplug_cpu.compiler.target.processor import model_name

if TYPE_CHECKING:
    import numpy as np

    from onnxplug_cpu.compiler.runtime.jit import Library
    from onnxplug_cpu.compiler.target.isa import Isa

BUDGET: Final = 20.0
"""Seconds that a session measures at most."""

MOST_EVICTED: Final = 64 << 20
"""Bytes that are read at most to fill the caches with something else."""

_GAIN: Final = 1.03
"""How much faster than the first candidate another has to be to be chosen."""

_BEHIND: Final = 1.1
"""How much slower than the fastest a candidate may be to be measured again."""

_LONG: Final = 0.25
"""Seconds after which candidates are not measured another time."""

_ROUNDS: Final = (2, 3, 7)
"""How often candidates are measured: all, those not far behind, the last two."""

_FILL: Final = 0x3C
"""Bytes that are small numbers of every type of floats."""


class Choice(NamedTuple):
    """What was measured of some candidates.

    Attributes:
        changes: the fields of the fastest that are not those of the first.
        first, best: what the two took, in ns.
    """

    changes: dict[str, Any]
    first: int
    best: int

    @property
    def text(self) -> str:
        """What is to be said of it; nothing if the first candidate is the fastest."""
        if not self.changes:
            return ""
        fields = " ".join(f"{name}={value}" for name, value in self.changes.items())
        return (
            f"autotune chose {fields}: {self.first / max(self.best, 1):.2f} times as "
            f"fast as by default ({self.first / 1e3:.0f} → {self.best / 1e3:.0f} µs)"
        )


class _BudgetSpent(Exception):
    """No time is left to measure."""


class Tuner:
    """Finds the fastest candidates for one session.

    Args:
        library: has the machine code, and keeps choices for later sessions and
            processes, beside it.
        workers: threads of a run.
        budget: seconds to measure at most.

    Attributes:
        library: that given.
        measured: what was asked for and is known, by its name.
        unmeasured: names of what was not measured, as no time was left.
    """

    def __init__(
        self, library: Library, workers: int, budget: float | None = None
    ) -> None:
        self.library = library
        self._workers = workers
        self._left = BUDGET if budget is None else budget
        self.measured: dict[str, Choice] = {}
        self.unmeasured: set[str] = set()

    @property
    def counts(self) -> dict[str, int]:
        """How many schedules were asked for, by what became of them."""
        other = sum(bool(choice.changes) for choice in tuple(self.measured.values()))
        counts = {"measured schedules": len(self.measured), "of them changed": other}
        if self.unmeasured:
            counts["schedules left as there was no time"] = len(self.unmeasured)
        return counts

    def watched(self, look: Callable[[], None]) -> Choose:
        """:meth:`choose`, with *look* called between measurements."""

        def choose(
            candidates: Sequence[Candidate],
            record: Callable[[Recorder, Candidate], None],
            read: Sequence[Buffer],
        ) -> tuple[Candidate, str]:
            return self.choose(candidates, record, read, look)

        return choose

    def choose(
        self,
        candidates: Sequence[Candidate],
        record: Callable[[Recorder, Candidate], None],
        read: Sequence[Buffer],
        look: Callable[[], None] = lambda: None,
    ) -> tuple[Candidate, str]:
        """As :class:`~..ir.recorder.Choose` says.

        Args:
            look: called between measurements; it may raise.
        """
        first = candidates[0]
        commands = self._commands(first, record)
        name = self._name(commands)
        with _lock:
            found = self._known(name, candidates)
            if found is None and name not in self.unmeasured:
                began = time.perf_counter()
                try:
                    found = self._measured(candidates, record, read, look)
                except _BudgetSpent:
                    self.unmeasured.add(name)
                finally:
                    self._left -= time.perf_counter() - began
                if found is not None:
                    # another process may have been first: then all do the same
                    found = self._stored(name, candidates) or found
                    self.library.remember(name, json.dumps(found).encode())
        if found is None:
            return first, ""
        chosen[name] = self.measured[name] = found
        return first._replace(**found.changes), found.text  # type: ignore[attr-defined]

    def _commands(
        self, candidate: Candidate, record: Callable[[Recorder, Candidate], None]
    ) -> list[Command]:
        recorder = Recorder(self.library.isa, self._workers)
        record(recorder, candidate)
        return recorder.commands

    def _name(self, commands: Sequence[Command]) -> str:
        """What is measured: the processor, the threads and all of *commands* but
        addresses.  The library adds the code and its version."""
        what = (model_name(), self._workers, _described(commands))
        return f"autotune {fingerprint(repr(what)).hex()}"

    def _known(self, name: str, candidates: Sequence[Candidate]) -> Choice | None:
        found = self.measured.get(name) or chosen.get(name)
        return self._stored(name, candidates) if found is None else found

    def _stored(self, name: str, candidates: Sequence[Candidate]) -> Choice | None:
        content = self.library.recall(name)
        return None if content is None else _read(content, candidates)

    def _measured(
        self,
        candidates: Sequence[Candidate],
        record: Callable[[Recorder, Candidate], None],
        read: Sequence[Buffer],
        look: Callable[[], None],
    ) -> Choice:
        deadline = time.perf_counter() + self._left

        def check() -> None:
            look()
            if time.perf_counter() > deadline:
                raise _BudgetSpent

        check()
        first = candidates[0]
        different: dict[str, tuple[Candidate, list[Command]]] = {}
        for candidate in candidates:
            commands = self._commands(candidate, record)
            different.setdefault(_described(commands), (candidate, commands))
        if len(different) == 1:
            return Choice({}, 0, 0)
        bench = Bench(self.library, self._workers, [*different.values()], read, check)
        bench.measure(
            bench.candidates, 1
        )  # which takes misses of the TLB and of branches
        bench.forget()
        bench.measure(bench.candidates, _ROUNDS[0])
        bench.measure(bench.within(_BEHIND), _ROUNDS[1])
        faster = bench.within(bench.taken(first) / bench.taken(bench.fastest) / _GAIN)
        together = _combined(first, faster)
        if together not in candidates:
            commands = self._commands(together, record)
            if _described(commands) not in different:
                bench.add(together, commands)
                bench.measure([together], _ROUNDS[0] + _ROUNDS[1])
        best = bench.fastest
        bench.forget()
        bench.measure([first, best], _ROUNDS[2])
        before, after = bench.taken(first), bench.taken(best)
        if before < _GAIN * after:
            return Choice({}, before, before)
        return Choice(_difference(first, best), before, after)


class Bench:
    """Measures candidates to compute the same with cold caches.

    All that they read and write is in an array of its own, behind what is read to fill
    the caches.

    Args:
        library: has the machine code.
        workers: threads.
        candidates: two or more, with their commands, of which the first two show what
            is there before and afterwards: the buffers of both.
        read: those that are in caches when a candidate begins.
        check: called between measurements; it may raise.

    Attributes:
        candidates: those that can be measured.
    """

    def __init__(
        self,
        library: Library,
        workers: int,
        candidates: Sequence[tuple[Any, Sequence[Command]]],
        read: Sequence[Buffer],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._library = library
        self._workers = workers
        self._check = check
        self._arenas = Arenas()
        self._cold = min(max(2 * library.isa.l2, library.isa.l3), MOST_EVICTED)
        self._end = _SUMS_BYTES + round_up(self._cold, _PAGE)
        self._places: dict[Buffer, int] = {}
        (_, one), (_, other) = candidates[:2]
        common = {*_buffers(one)} & {*_buffers(other)} | {*read}
        for buffer in common:
            self._places[buffer] = self._end
            self._end = round_up(self._end + buffer.nbytes, _PAGE)
        self._before = [_reading(_SUMS_BYTES, self._cold)]
        self._before += [_reading(self._places[b], b.nbytes) for b in read if b.nbytes]
        self._programs: dict[Any, tuple[Program, np.ndarray[Any, Any]]] = {}
        self._taken: dict[Any, list[int]] = {}
        most = max(self._laid(commands)[1] for _, commands in candidates)
        self._array = _filled(most)
        for candidate, commands in candidates:
            self.add(candidate, commands)

    @property
    def candidates(self) -> list[Any]:
        """Those that can be measured."""
        return list(self._programs)

    def add(self, candidate: Any, commands: Sequence[Command]) -> None:
        """Let *candidate* be measured, too."""
        laid, nbytes = self._laid(commands)
        if len(self._array) < nbytes + _CHUNK:
            self._array = _filled(nbytes)
        program = Program(
            [*self._before, *laid],
            self._library,
            self._workers,
            n_inputs=0,
            n_outputs=1,
            arenas=self._arenas,
            look=self._check,
        )
        self._programs[candidate] = program, self._array
        self._taken[candidate] = []

    def _laid(self, commands: Sequence[Command]) -> tuple[list[Command], int]:
        """The commands over the array, and its bytes; what only they use lies where
        others' does."""
        places, end = self._places.copy(), self._end
        for buffer in _buffers(commands):
            if buffer not in places:
                places[buffer] = end
                end = round_up(end + buffer.nbytes, _PAGE)
        moved = [
            command._replace(
                words=tuple(_moved(word, places) for word in command.words)
            )
            for command in commands
        ]
        return moved, end

    def measure(self, candidates: Sequence[Any], rounds: int) -> None:
        """Measure *candidates* in turn, *rounds* times, or less if they take long."""
        began = time.perf_counter()
        for done in range(rounds):
            if done and time.perf_counter() - began > _LONG:
                break
            for candidate in candidates:
                self._check()
                program, array = self._programs[candidate]
                taken = self._parts(len(program.commands), self._taken[candidate])
                program.run_in_parts([], [array], taken, _nothing)

    def _parts(self, commands: int, taken: list[int]) -> Callable[[], Iterator[Part]]:
        def parts() -> Iterator[Part]:
            yield Part(0, len(self._before))
            began = time.perf_counter_ns()
            yield Part(len(self._before), commands)
            taken.append(max(1, time.perf_counter_ns() - began))

        return parts

    def forget(self) -> None:
        """Forget what was measured."""
        for taken in self._taken.values():
            taken.clear()

    def taken(self, candidate: Any) -> int:
        """The least that *candidate* took, in ns."""
        return min(self._taken[candidate])

    def within(self, share: float) -> list[Any]:
        """Candidates that took at most *share* times the least, the fastest first."""
        least = {
            candidate: min(taken) for candidate, taken in self._taken.items() if taken
        }
        most = share * min(least.values())
        found = [candidate for candidate, taken in least.items() if taken <= most]
        return sorted(found, key=least.__getitem__)

    @property
    def fastest(self) -> Any:
        """The candidate that took least."""
        return self.within(1.0)[0]


def _nothing(part: Part) -> None:
    """What there is to do between parts."""


def _combined(first: Candidate, faster: Iterable[Candidate]) -> Candidate:
    """What differs from *first* in all that *faster* differ in, with the earliest one's
    value of each field."""
    fields: dict[str, Any] = {}
    for candidate in faster:
        fields = _difference(first, candidate) | fields
    return first._replace(**fields)  # type: ignore[attr-defined, no-any-return]


def _difference(first: Candidate, other: Candidate) -> dict[str, Any]:
    names = first._fields  # type: ignore[attr-defined]
    values = zip(names, first, other, strict=True)
    return {name: value for name, usual, value in values if value != usual}


def _read(content: bytes, candidates: Sequence[Candidate]) -> Choice | None:
    """A choice that was kept; ``None`` if it is none of these candidates, or of what
    combines them."""
    try:
        fields, *taken = json.loads(content)
        fields = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        before, after = map(int, taken)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    for name, value in fields.items():
        found = [getattr(candidate, name, None) for candidate in candidates]
        # of the same type, as what is equal need not be
        if not any(value == one and type(value) is type(one) for one in found):
            return None
    return Choice(fields, before, after)


def _buffers(commands: Iterable[Command]) -> list[Buffer]:
    """Those that are named, in order."""
    found: dict[Buffer, None] = {}

    def look(words: Iterable[Word]) -> None:
        for word in words:
            if isinstance(word, Address):
                found[word.buffer] = None
            elif isinstance(word, Words):
                look(word.words)

    for command in commands:
        look(command.words)
    return list(found)


def _moved(word: Word, places: Mapping[Buffer, int]) -> Word:
    if isinstance(word, Address):
        return Address(_ARRAY, places[word.buffer] + word.offset)
    if isinstance(word, Words):
        return Words(tuple(_moved(each, places) for each in word.words))
    return word


def _described(commands: Sequence[Command]) -> str:
    """All of commands but which buffers they name."""
    numbers = {buffer: n for n, buffer in enumerate(_buffers(commands))}

    def of(word: Word) -> object:
        if isinstance(word, Address):
            # how it is aligned is all that an offset is worth
            return "at", numbers[word.buffer], word.offset % ALIGNMENT
        if isinstance(word, Words):
            return [of(each) for each in word.words]
        return word.kernel.key if isinstance(word, Code) else int(word)

    return repr(
        [(c.kernel.key, c.chunks, [of(word) for word in c.words]) for c in commands]
    )


_PAGE: Final = 4096
_CHUNK: Final = 1 << 20
"""Bytes that a chunk reads at most."""

_SUMS_BYTES: Final = round_up(MOST_EVICTED // _CHUNK * 4 * LANES, _PAGE)
_ARRAY: Final = Output(0, 1 << 62)


def _filled(nbytes: int) -> np.ndarray[Any, Any]:
    """So many bytes, and a chunk more; pages that were never written are all one."""
    array = allocate(nbytes + _CHUNK).array
    array[:] = _FILL
    return array


def _reading(start: int, nbytes: int) -> Command:
    """Reads so many bytes of the array, and some more."""
    each = min(_CHUNK, round_up(-(-nbytes // 16), _PAGE))
    chunks = min(-(-nbytes // each), MOST_EVICTED // _CHUNK)
    words = (Address(_ARRAY, start), each, Address(_ARRAY))
    return Command(_READING, words, chunks, "", 0, nbytes, ())


class _Reading(Generator):
    """Reads so many bytes a chunk, a multiple of a page, and writes what they add up
    to."""

    words = ("data", "nbytes", "sums")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, nbytes = k.function, k.integer("nbytes")
        vector = Type("i32").vector(LANES)
        data = f.at(k.pointer("data"), k.chunk * nbytes, Type("i8"))

        def turn(index: Value, *sums: Value) -> list[Value]:
            return [
                value
                + f.load(f.at(data, index + VECTOR_BYTES * number, Type("i8")), vector)
                for number, value in enumerate(sums)
            ]

        step = 4 * VECTOR_BYTES
        one, two, three, four = f.loop(nbytes, turn, [f.zero(vector)] * 4, step=step)
        place = f.at(k.pointer("sums"), k.chunk * LANES, Type("i32"))
        f.store((one + two) + (three + four), place)
        f.finish()


_READING: Final = Kernel(_Reading())

_lock: Final = new_rlock()
"""Held while something is measured, which others would disturb."""

chosen: Final[dict[str, Choice]] = {}
"""What this process has measured, or read, by its name."""
