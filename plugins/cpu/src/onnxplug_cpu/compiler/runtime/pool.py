"""The worker pool: threads of the process that help any run of any session.

Workers are Python threads that stay in a native loop, without the GIL: they look for
chunks, spin for a while when there are none, and then sleep in the system until they
are woken.  Who spins gives way to threads that have work, of whatever process.

**A job's chunks are claimed, not assigned**: the caller claims them like the workers
do, so that it needs no worker to get done, and waits at most for chunks that were
begun.  Hence a worker that the system does not schedule holds nobody, and a process
whose workers are gone (after fork, at exit) still computes.

One job is done at a time.  A run that finds the pool with another's job does its own
chunks alone.

Free-threaded builds of Python and subinterpreters are not supported.  Sleeping is
tested on Linux; the waits of macOS and Windows are written after their manuals and
have not run.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug.authoring.locks import new_lock
from onnxplug.ep import raise_interruption
from onnxplug_cpu.compiler.codegen import atomics
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.codegen.types import I1, I32, I64, PTR, Type
from onnxplug_cpu.compiler.commands.chunks import MAX_CHUNKS
from onnxplug_cpu.compiler.machine.cores import default_workers
from onnxplug_cpu.compiler.runtime.arena import address_of
from onnxplug_cpu.compiler.runtime.waits import (
    LONGEST_MICROSECONDS,
    convention,
    find_system,
    write_give_way,
    write_wait,
    write_wake,
)

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Module, Value
    from onnxplug_cpu.compiler.machine.isa import Isa
    from onnxplug_cpu.compiler.runtime.jit import Library

MAX_WORKERS: Final = 256
"""Threads of one job at most, the caller included."""

SPIN: Final = 500e-6
"""Seconds for which a worker looks for another job before it sleeps.

Waking a thread takes the system 5–50 µs, so a network's short sequential parts, and
what the caller does between two runs, should pass before it sleeps.
"""

CROWDED_SPIN: Final = 2e-6
"""The same, when there are more workers than processors for them."""

RETRY: Final = 1.0
"""Seconds after which a thread that the system did not give is asked for again."""

PATIENCE: Final = 512
"""Pauses after which who spins lets another thread have the processor, if one wants it:
some 5 to 20 µs.  A power of two."""

# The control block: bytes from its start.  What different threads write lies on
# different pairs of cache lines.
_TICKET = 0  # unclaimed chunks: first (24 bits), end (24 bits), threads (16 bits)
_FUNCTION = 8  # of the job
_WORDS = 16  # of the job
_DONE = 128  # chunks of the job that are finished
LOCK = 256  # 1 while a job is being done
PAUSES = 384  # how long to spin
_QUIT = 392  # 1 when workers are to end
_WAIT = 400  # addresses of the system's functions
_WAKE = 408
_GIVE_WAY = 416
_ONE = 424  # the number 1
_LONGEST = 432  # how long to sleep at most: seconds, nanoseconds
PARKED = 512  # for each worker a line: 1 while it sleeps or is about to
LINE = 128

SYSTEM: Final = find_system()

# native code


def _field(f: Function, control: Value, offset: int) -> Value:
    return f.instruction(PTR, f"getelementptr i8, {control}, i64 {offset}")


def _parked(f: Function, control: Value, worker: Value) -> Value:
    return f.at(_field(f, control, PARKED), worker * LINE, Type("i8"))


def _give_way(f: Function, control: Value, system: str) -> None:
    write_give_way(f, system, f.load(_field(f, control, _GIVE_WAY), PTR))


def _logical_shift(f: Function, value: Value, bits: int) -> Value:
    return f.instruction(value.type, f"lshr {value}, {bits}")


def _first(ticket: Value) -> Value:
    return ticket & MAX_CHUNKS


def _end(f: Function, ticket: Value) -> Value:
    return _logical_shift(f, ticket, 24) & MAX_CHUNKS


def _may_claim(f: Function, ticket: Value, worker: Value) -> Value:
    any_left = _first(ticket).compare("lt", _end(f, ticket))
    return any_left & worker.compare("lt", _logical_shift(f, ticket, 48))


def _write_drain(module: Module, name: str) -> None:
    """``void drain(ptr control, i64 worker)``: do chunks until all are claimed.

    Even workers take the first chunk and odd ones the last, so that two threads tend
    to have the same halves of an array in one command after another.
    """
    f = module.function(
        name, [("control", PTR), ("worker", I64)], internal=True, inline=False
    )
    control, worker = f.parameters
    odd = (worker & 1).compare("ne", 0)

    def turn() -> tuple[Value, list[Value]]:
        ticket = atomics.load(f, control, I64)
        any_left = _may_claim(f, ticket, worker)
        f.branch(any_left, lambda: claim(ticket))
        return any_left, []

    def claim(ticket: Value) -> None:
        chunk = f.select(odd, _end(f, ticket) - 1, _first(ticket))
        rest = f.select(odd, ticket - (1 << 24), ticket + 1)
        # that this may be another job with the same ticket does no harm: a job's
        # function and words are read after its chunk is claimed, and stay until the
        # chunk is done
        won = atomics.replace(f, control, ticket, rest)
        f.branch(won, lambda: do(chunk))

    def do(chunk: Value) -> None:
        function = f.load(_field(f, control, _FUNCTION), PTR)
        words = f.load(_field(f, control, _WORDS), PTR)
        f.call_pointer(function, words, chunk, worker)
        done = _field(f, control, _DONE)
        atomics.add(f, done, 1)

    f.repeat(turn)
    f.finish()


def _write_worker(module: Module, name: str, isa: Isa, system: str) -> None:
    drain = f"{name}.drain"
    _write_drain(module, drain)
    f = module.function(
        name, [("control", PTR), ("worker", I64)], I64, convention=convention(system)
    )
    control, worker = f.parameters
    parked = _parked(f, control, worker)

    def turn(_: Value) -> tuple[Value, list[Value]]:
        f.call_void(drain, control, worker)
        pauses = f.load(_field(f, control, PAUSES), I64)

        def spin(count: Value) -> tuple[Value, list[Value]]:
            atomics.pause(f, isa)
            # now and then only, as it takes long where nobody wants the processor
            now = (count & PATIENCE - 1).compare("eq", PATIENCE - 1)
            f.branch(now, lambda: _give_way(f, control, system))
            idle = ~_may_claim(f, atomics.load(f, control, I64), worker)
            return idle & count.compare("lt", pauses), [count + 1]

        f.repeat(spin, [f.value(0, I64)])
        (state,) = f.branch(wanted(), lambda: [f.value(0, I64)], lambda: [park()])
        ends = atomics.load(f, _field(f, control, _QUIT), I64).compare("ne", 0)
        again = ~ends & state.compare("eq", 0)
        return again, [f.select(ends, f.value(0, I64), state)]

    def wanted() -> Value:
        ends = atomics.load(f, _field(f, control, _QUIT), I64).compare("ne", 0)
        return ends | _may_claim(f, atomics.load(f, control, I64), worker)

    def park() -> Value:
        if not system:
            return f.value(1, I64)
        # a worker says that it sleeps and then looks for work once more, while who
        # has work says so and then looks for sleepers: one of the two sees the other
        atomics.exchange(f, parked, f.value(1, I32))
        f.branch(wanted(), lambda: None, sleep)
        atomics.exchange(f, parked, f.value(0, I32))
        return f.value(0, I64)

    def sleep() -> None:
        wait = f.load(_field(f, control, _WAIT), PTR)
        one = _field(f, control, _ONE)
        longest = _field(f, control, _LONGEST)

        def once() -> tuple[Value, list[Value]]:
            write_wait(f, isa, system, wait, parked, one, longest)
            # systems have been seen to lose who wakes a thread: look again by oneself
            stays = atomics.load(f, parked, I32).compare("ne", 0) & ~wanted()
            return stays, []

        f.repeat(once)

    (result,) = f.repeat(turn, [f.value(0, I64)])
    f.finish(result)


def write_parallel(module: Module, name: str, isa: Isa, system: str) -> str:
    """Define ``i1 parallel(ptr control, ptr function, ptr words, i64 begin, i64 end,
    i64 threads)``: do a command's chunks from *begin* up to, but not with, *end* with
    the pool, at most with *threads* threads.

    It does nothing and is false when the pool has another job.

    Args:
        system: how workers sleep, the :attr:`~.waits.System.name`.

    Returns:
        The function's name.
    """
    drain, wake, parallel = f"{name}.drain", f"{name}.wake", f"{name}.parallel"
    _write_drain(module, drain)
    _write_wake_all(module, wake, isa, system, internal=True)
    f = module.function(
        parallel,
        [(n, PTR) for n in ("control", "function", "words")]
        + [(n, I64) for n in ("begin", "end", "threads")],
        I1,
        internal=True,
        inline=False,
    )
    control, function, words, begin, end, threads = f.parameters
    chunks = end - begin
    lock = _field(f, control, LOCK)

    def job() -> None:
        f.store(function, _field(f, control, _FUNCTION))
        f.store(words, _field(f, control, _WORDS))
        f.store(f.value(0, I64), _field(f, control, _DONE))
        atomics.exchange(f, control, (threads << 48) | (end << 24) | begin)
        f.call_void(wake, control, f.minimum(threads, chunks))
        f.call_void(drain, control, f.value(0, I64))
        f.repeat(wait, [f.value(0, I64)])
        atomics.exchange(f, lock, f.value(0, I64))

    def wait(count: Value) -> tuple[Value, list[Value]]:
        done = atomics.load(f, _field(f, control, _DONE), I64)
        more = done.compare("ne", chunks)
        f.branch(more, lambda: pause(count))
        return more, [count + 1]

    def pause(count: Value) -> None:
        atomics.pause(f, isa)
        impatient = count.compare("gt", PATIENCE)
        f.branch(impatient, lambda: _give_way(f, control, system))

    free = atomics.exchange(f, lock, f.value(1, I64)).compare("eq", 0)
    f.branch(free, job)
    f.finish(free)
    return parallel


def _write_wake_all(
    module: Module, name: str, isa: Isa, system: str, *, internal: bool = False
) -> None:
    f = module.function(
        name,
        [("control", PTR), ("threads", I64)],
        internal=internal,
        convention="" if internal else convention(system),
    )
    control, threads = f.parameters

    def wake(worker: Value) -> None:
        parked = _parked(f, control, worker)
        sleeps = atomics.load(f, parked, I32).compare("ne", 0)
        f.branch(sleeps, lambda: wake_up(parked))

    def wake_up(parked: Value) -> None:
        atomics.exchange(f, parked, f.value(0, I32))
        function = f.load(_field(f, control, _WAKE), PTR)
        write_wake(f, isa, system, function, parked)

    f.loop(threads, wake, start=1)
    f.finish()


class Worker(Generator):
    """``i64 worker(ptr control, i64 worker)``: a worker's life.

    It returns 0 to end, and 1 to be called again a little later, where native code
    knows no way to sleep.

    Attributes:
        system: how workers sleep, the :attr:`~.waits.System.name`.
    """

    system: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write_worker(module, name, isa, self.system)


class WakeAll(Generator):
    """``void wake(ptr control, i64 threads)``: wakes the sleepers of *threads*."""

    system: str

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write_wake_all(module, name, isa, self.system)


WORKER: Final = Kernel(Worker(SYSTEM.name))
WAKE_ALL: Final = Kernel(WakeAll(SYSTEM.name))


class Pool:
    """The process's workers; there is one, :func:`shared_pool`.

    Attributes:
        control: the address of the control block, which native code is given.
        size: threads that one job can have, the caller included.
        work: a worker's life, of the control block's address and the worker's number.
        try_again_at: when the system is asked for more threads, after it refused some,
            by the clock of ``time.monotonic``.

    Invariant: no two workers have the same number, which is that of their scratch
    memory.
    """

    def __init__(self, library: Library) -> None:
        addresses = library.addresses([WORKER, WAKE_ALL])
        # a function of ctypes releases the GIL while it runs
        self.work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
            addresses[WORKER]
        )
        self._wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            addresses[WAKE_ALL]
        )
        self._memory = np.zeros(PARKED + LINE * MAX_WORKERS + 2 * LINE, np.uint8)
        start = -address_of(self._memory) % LINE
        self._fields = self._memory[start:][:-LINE].view(np.uint64)
        self.control = address_of(self._fields)
        self._pauses_per_second = 1.0
        self.start_anew()
        self.set_field(PAUSES, 4000)
        self._pauses_per_second = self._measure_pauses()

    def start_anew(self) -> None:
        """Begin without workers, as in a new process."""
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count(1)
        self.size = 1
        self._closed = False
        self.try_again_at = 0.0
        self._fields[:] = 0
        for field, value in (
            (_WAIT, SYSTEM.wait),
            (_WAKE, SYSTEM.wake),
            (_GIVE_WAY, SYSTEM.give_way),
            (_ONE, 1),
            (_LONGEST + 8, 1000 * LONGEST_MICROSECONDS),
        ):
            self.set_field(field, value)

    def field(self, offset: int) -> int:
        """What the control block has at *offset*, in bytes."""
        return int(self._fields[offset // 8])

    def set_field(self, offset: int, value: int) -> None:
        """Write to the control block at *offset*, in bytes."""
        self._fields[offset // 8] = value

    def _measure_pauses(self) -> float:
        """How many pauses a second has: from some 10 to some 100 million."""
        self.set_field(_QUIT, 1)  # the worker's function spins and ends
        self.work(self.control, 1)
        began = time.perf_counter()
        self.work(self.control, 1)
        taken = time.perf_counter() - began
        self.set_field(_QUIT, 0)
        return self.field(PAUSES) / max(taken, 1e-9)

    def grow(self, workers: int) -> None:
        """Have threads for jobs of *workers* threads, the caller included.

        Where the system gives no more threads, jobs are done by those that there are,
        and a warning is logged once.

        Raises:
            ValueError: more than :data:`MAX_WORKERS`.
        """
        if workers > MAX_WORKERS:
            raise ValueError(
                f"{workers} threads are asked for; one run uses at most {MAX_WORKERS}"
            )
        with self._lock:
            if workers <= self.size or self._closed:
                return
            if time.monotonic() < self.try_again_at:
                return
            crowded = workers > default_workers()
            spin = CROWDED_SPIN if crowded else SPIN
            self.set_field(PAUSES, int(spin * self._pauses_per_second))
            while self.size < workers:
                thread = threading.Thread(
                    target=self._live, name=f"onnxplug-cpu-{self.size}", daemon=True
                )
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise_interruption(error)
                    self._threads.remove(thread)
                    self.try_again_at = time.monotonic() + RETRY
                    _warn_of_threads(workers, self.size, error)
                    return
                self.size += 1

    def _live(self) -> None:
        # taken here, for whoever starts a thread may be interrupted in the middle
        number = next(self._numbers)
        while number < MAX_WORKERS and self.work(self.control, number):
            time.sleep(0.0005)

    def close(self) -> None:
        """End the workers; jobs are then done by their callers alone."""
        with self._lock:
            self._closed = True
            self.size = 1
            self.set_field(_QUIT, 1)
            self._wake(self.control, len(self._threads) + 1)
            deadline = time.monotonic() + 0.5
            for thread in self._threads:
                if thread.ident is not None:  # else it was not started after all
                    thread.join(max(0.0, deadline - time.monotonic()))
            self._threads.clear()


_shared: Pool | None = None
_shared_lock = new_lock()


def shared_pool(library: Library) -> Pool:
    """The process's pool; it has no threads until it grows.

    Args:
        library: compiles the workers' code, if this is the first call.
    """
    global _shared
    with _shared_lock:
        if _shared is None:
            pool = Pool(library)
            atexit.register(pool.close)  # before it can have threads
            _shared = pool
        return _shared


warned: set[int] = set()
"""How many threads were asked for when this process logged that there are fewer."""


def _warn_of_threads(wanted: int, found: int, error: RuntimeError) -> None:
    """Log once that runs have fewer threads than they may."""
    if not warned:
        import logging  # seldom needed, and slow to import

        warned.add(wanted)
        logging.getLogger("onnxplug.cpu").warning(
            "the system gives no more threads (%s), so runs that may use %d of them "
            "use %d; raise its limit, or set intra_op_num_threads",
            error,
            wanted,
            found,
        )


def _after_fork() -> None:
    """The child has the parent's memory, and none of its threads."""
    if _shared is not None:
        _shared.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
