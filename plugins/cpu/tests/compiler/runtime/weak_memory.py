"""Programs of few threads on memory that is ordered no more than LLVM promises.

Every write of a place is kept, in the order in which the place gets them.  A thread's
*view* says from which write on it reads each place: it may read an older one than the
latest, unless something that happened before it tells it of a newer.  A release hands a
view over with what it writes, and an acquire takes it; what is sequentially consistent
keeps one order for all (Kang et al., "A promising semantics for relaxed-memory
concurrency", POPL 2017, without promises: nothing is written before what was read
earlier).  x86 does less.

Plain accesses must be ordered by others: where two are not, of which one writes, that
is a :class:`Violation`.  All interleavings, and all writes that may be read, are tried;
but a thread goes on with what concerns nobody, and with plain accesses, at once: which
are ordered does not depend on when they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

PLAIN = "plain"
_ACQUIRES = ("acquire", "acq_rel", "seq_cst")
_RELEASES = ("release", "acq_rel", "seq_cst")
_SC = "seq_cst"

View: TypeAlias = dict[str, int]
Registers: TypeAlias = dict[str, Any]
Values: TypeAlias = Callable[[Registers], Any]


class Violation(AssertionError):
    """What a program does that it must not do."""


class Do(NamedTuple):
    """An instruction; *value* and *test* are given the thread's registers.

    Attributes:
        kind: ``load``, ``store``, ``exchange``, ``replace``, ``add``, ``await``,
            ``sleep``, ``wake``, ``go`` or ``check``.
        place: in memory; or the label that ``go`` goes to, and what ``check`` says.
        order: LLVM's, or :data:`PLAIN`.
        value: what is written or added; of ``replace`` what is expected, and what is
            written.
        test: what ``await`` waits for, of what it reads, and when ``go`` goes.
        into: the register for what was read; of ``replace`` whether it wrote.
    """

    kind: str
    place: str = ""
    order: str = PLAIN
    value: Values = lambda _: None
    test: Callable[[Any], bool] = lambda _: True
    into: str = ""


Program: TypeAlias = Sequence[Do | str]
"""Instructions and labels."""


class _Thread(NamedTuple):
    place: int
    registers: Registers
    view: View
    sleeps: str = ""


class _State(NamedTuple):
    writes: dict[str, tuple[tuple[Any, tuple[Any, ...]], ...]]
    common: View  # of what is sequentially consistent
    reads: View  # how often who read plainly
    threads: tuple[_Thread, ...]

    def key(self) -> Any:
        return (
            _frozen(self.writes),
            _frozen(self.common),
            _frozen(self.reads),
            tuple(
                (t.place, _frozen(t.registers), _frozen(t.view), t.sleeps)
                for t in self.threads
            ),
        )


def _frozen(mapping: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(mapping.items()))


class Explorer:
    """Tries all that *programs* may do.

    Args:
        start: what memory has when they begin.
        endless: threads that may sleep for ever once all others have ended.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        start: Mapping[str, Any],
        endless: Sequence[int] = (),
    ) -> None:
        self._programs = programs
        self._labels = [
            {step: n for n, step in enumerate(p) if isinstance(step, str)}
            for p in programs
        ]
        self._start, self._endless = start, endless
        self.states = 0

    def explore(self) -> None:
        """Try everything.

        Raises:
            Violation: of the first way to do what must not be done.
        """
        writes = {place: ((value, ()),) for place, value in self._start.items()}
        threads = tuple(_Thread(0, {}, {}) for _ in self._programs)
        waiting, seen = [_State(writes, {}, {}, threads)], set()
        while waiting:
            state = waiting.pop()
            key = state.key()
            if key in seen:
                continue
            seen.add(key)
            self.states += 1
            following = [
                after
                for number in range(len(self._programs))
                for after in self._steps(state, number)
            ]
            if not following:
                self._look_at_end(state)
            waiting += following

    def _look_at_end(self, state: _State) -> None:
        for number, thread in enumerate(state.threads):
            done = thread.place == len(self._programs[number])
            if not done and number not in self._endless:
                raise Violation(f"thread {number} waits for ever at {thread.place}")

    def _steps(self, state: _State, number: int) -> list[_State]:
        """What may be after the thread's next instruction, and what concerns only the
        thread after it."""
        following = self._step(state, number)
        done = []
        while following:
            after = following.pop()
            if self._concerns_others(after.threads[number], self._programs[number]):
                done.append(after)
            else:
                following += self._step(after, number)
        return done

    @staticmethod
    def _concerns_others(thread: _Thread, program: Program) -> bool:
        if thread.place == len(program) or thread.sleeps:
            return True
        step = program[thread.place]
        return not (
            isinstance(step, str)
            or step.kind in ("go", "check")
            or (step.kind in ("load", "store") and step.order == PLAIN)
        )

    def _step(self, state: _State, number: int) -> list[_State]:
        thread, program = state.threads[number], self._programs[number]
        if thread.place == len(program) or thread.sleeps:
            return []
        step = program[thread.place]
        thread = thread._replace(place=thread.place + 1)
        if isinstance(step, str):
            return [_with(state, number, thread)]
        method: Callable[..., list[_State]] = getattr(self, f"_{step.kind}")
        return method(state, number, thread, step)

    # what needs no memory

    def _go(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        if step.test(thread.registers):
            thread = thread._replace(place=self._labels[number][step.place])
        return [_with(state, number, thread)]

    def _check(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        if not step.test(thread.registers):
            raise Violation(f"thread {number}: {step.place}")
        return [_with(state, number, thread)]

    def _sleep(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        # the system looks at memory itself, while nobody can wake the thread
        if state.writes[step.place][-1][0] == 1:
            thread = thread._replace(sleeps=step.place)
        return [_with(state, number, thread)]

    def _wake(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        state = _with(state, number, thread)
        woken = tuple(
            each._replace(sleeps="") if each.sleeps == step.place else each
            for each in state.threads
        )
        return [state._replace(threads=woken)]

    # reads

    def _load(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        writes = state.writes[step.place]
        oldest = thread.view.get(step.place, 0)
        if step.order == PLAIN:
            if oldest != len(writes) - 1:
                raise Violation(f"thread {number} reads {step.place} unordered")
            reader = f"{step.place} by {number}"
            count = state.reads.get(reader, 0) + 1
            state = state._replace(reads=state.reads | {reader: count})
            thread = thread._replace(view=thread.view | {reader: count})
        if step.order == _SC:
            oldest = max(oldest, state.common.get(step.place, 0))
        return [
            _with(state, number, _read(thread, step, time, *writes[time]))
            for time in range(oldest, len(writes))
            if step.test(writes[time][0])
        ]

    _await = _load

    # writes

    def _store(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        if step.order == PLAIN:
            self._need_order(state, number, thread, step.place)
        return [_written(state, number, thread, step, step.value(thread.registers))]

    def _need_order(
        self, state: _State, number: int, thread: _Thread, place: str
    ) -> None:
        latest = len(state.writes[place]) - 1
        known = thread.view.get(place, 0) == latest
        for reader, count in state.reads.items():
            if reader.startswith(f"{place} by") and not reader.endswith(f"{number}"):
                known = known and thread.view.get(reader, 0) == count
        if not known:
            raise Violation(f"thread {number} writes {place} unordered")

    def _exchange(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        value = step.value(thread.registers)
        return [self._changed(state, number, thread, step, lambda _: value)]

    def _add(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        more = step.value(thread.registers)
        return [self._changed(state, number, thread, step, lambda old: old + more)]

    def _replace(
        self, state: _State, number: int, thread: _Thread, step: Do
    ) -> list[_State]:
        expected, value = step.value(thread.registers)
        won = state.writes[step.place][-1][0] == expected
        if won:
            after = self._changed(state, number, thread, step, lambda _: value)
        else:
            time = len(state.writes[step.place]) - 1
            thread = _read(thread, step, time, *state.writes[step.place][time])
            after = _with(state, number, thread)
        registers = after.threads[number].registers | {step.into: won}
        thread = after.threads[number]._replace(registers=registers)
        return [_with(after, number, thread)]

    def _changed(
        self,
        state: _State,
        number: int,
        thread: _Thread,
        step: Do,
        change: Callable[[Any], Any],
    ) -> _State:
        """What is read is what was written last, and nothing comes between."""
        time = len(state.writes[step.place]) - 1
        value, view = state.writes[step.place][time]
        thread = _read(thread, step, time, value, view)
        # who acquires what is written also sees what was released before
        return _written(state, number, thread, step, change(value), dict(view))


def _with(state: _State, number: int, thread: _Thread) -> _State:
    threads = list(state.threads)
    threads[number] = thread
    return state._replace(threads=tuple(threads))


def _join(one: View, other: View) -> View:
    return one | {key: max(time, one.get(key, 0)) for key, time in other.items()}


def _read(
    thread: _Thread, step: Do, time: int, value: Any, view: tuple[Any, ...]
) -> _Thread:
    known = _join(thread.view, {step.place: time})
    if step.order in _ACQUIRES:
        known = _join(known, dict(view))
    registers = thread.registers | {step.into: value} if step.into else thread.registers
    return thread._replace(view=known, registers=registers)


def _written(
    state: _State,
    number: int,
    thread: _Thread,
    step: Do,
    value: Any,
    released: View | None = None,
) -> _State:
    time = len(state.writes[step.place])
    thread = thread._replace(view=_join(thread.view, {step.place: time}))
    released = released or {}
    if step.order in _RELEASES:
        released = _join(released, thread.view)
    writes = (*state.writes[step.place], (value, _frozen(released)))
    state = state._replace(writes=state.writes | {step.place: writes})
    if step.order == _SC:
        state = state._replace(common=_join(state.common, {step.place: time}))
    return _with(state, number, thread)
