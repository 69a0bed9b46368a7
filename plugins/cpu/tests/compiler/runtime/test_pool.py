"""The worker pool: every chunk once, whoever does it, and no way to hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Address
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.cores import default_workers
from onnxplug_cpu.compiler.machine.isa import AVX2, NEON
from onnxplug_cpu.compiler.runtime import linked, pool
from onnxplug_cpu.compiler.runtime.jit import Library, compile_object
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.waits import System

from ..sample_kernels import COUNT, LONG, output_view

Array: TypeAlias = np.ndarray[Any, Any]


def counting(
    workers: int, commands: list[int], work: int = 0
) -> tuple[Program, Callable[[], tuple[Array, Array]]]:
    """A program whose commands have those numbers of chunks, and what runs it.

    A run gives how often each chunk was done, and by whom.
    """
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, workers))
    total = sum(commands)
    counts, who = output_view(0, LONG, total), output_view(1, LONG, total)
    start = 0
    for chunks in commands:
        call(
            recorder,
            COUNT,
            {
                "counts": Address(counts.buffer, 8 * start),
                "workers": Address(who.buffer, 8 * start),
                "work": work,
            },
            chunks=chunks,
        )
        start += chunks
    made = Program(recorder.commands, library, workers, n_inputs=0, n_outputs=2)

    def run() -> tuple[Array, Array]:
        arrays = np.zeros(total, np.int64), np.full(total, -1)
        made.run([], arrays)
        return arrays

    return made, run


def the_pool() -> pool.Pool:
    return pool.shared_pool(Library.host())


def is_parked(of: pool.Pool, worker: int) -> bool:
    return of.field(pool.PARKED + worker * pool.LINE) == 1


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_chunk_is_done_once(workers: int) -> None:
    _, run = counting(workers, [1, 2, 3, 1, 4, 7, 64, 1, 1000, 2], work=200)
    for _ in range(30):
        counts, who = run()
        assert (counts == 1).all()
        assert who.min() >= 0
        assert who.max() < workers
        assert who[0] == 0  # a single chunk is the caller's


def test_the_work_is_shared() -> None:
    _, run = counting(2, [64], work=100_000)
    assert eventually(lambda: set(run()[1]) == {0, 1})


def test_workers_begin_at_the_end() -> None:
    _, run = counting(2, [64], work=20_000)
    for _ in range(200):
        _, who = run()
        # the caller's chunks come first, the other's after them
        assert (np.diff(who) >= 0).all()


@pytest.mark.parametrize("workers", [2, 4])
def test_a_hundred_thousand_small_commands(workers: int) -> None:
    _, run = counting(workers, [2, 3, 2, 5] * 500)
    for _ in range(50):
        counts, who = run()
        assert (counts == 1).all()
        assert who.max() < workers


def test_programs_on_several_threads_at_a_time() -> None:
    wrong = []
    threads = []
    for workers, commands in [(2, [3, 50, 2]), (4, [9, 1, 17]), (2, [2] * 20)]:
        _, run = counting(workers, commands, work=500)

        def loop(run: Callable[[], Any] = run, workers: int = workers) -> None:
            for _ in range(150):
                counts, who = run()
                if not (counts == 1).all() or who.max() >= workers:
                    wrong.append((counts, who))

        threads.append(threading.Thread(target=loop))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_one_program_on_several_threads_at_a_time() -> None:
    _, run = counting(2, [3, 20, 2], work=5000)
    wrong: list[object] = []

    def loop() -> None:
        for _ in range(100):
            counts, _ = run()
            if not (counts == 1).all():
                wrong.append(counts)

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_run_that_finds_the_pool_in_use_computes_alone() -> None:
    _, run = counting(2, [100], work=1000)
    run()
    shared = the_pool()
    shared.set_field(pool.LOCK, 1)
    try:
        counts, who = run()
    finally:
        shared.set_field(pool.LOCK, 0)
    assert (counts == 1).all()
    assert (who == 0).all()


def test_idle_workers_sleep_and_only_those_needed_wake() -> None:
    _, on_four = counting(4, [64], work=2000)
    on_four()
    shared = the_pool()
    everybody = range(1, shared.size)
    assert eventually(lambda: all(is_parked(shared, w) for w in everybody))
    _, alone = counting(1, [64], work=2000)
    alone()
    assert all(is_parked(shared, worker) for worker in everybody)
    _, on_two = counting(2, [64], work=2000)
    on_two()
    assert all(is_parked(shared, worker) for worker in everybody if worker > 1)
    assert eventually(lambda: is_parked(shared, 1))
    assert eventually(lambda: 1 in on_two()[1])  # and wakes again


def test_a_run_gets_no_more_threads_than_it_may_have() -> None:
    _, on_four = counting(4, [64], work=2000)
    _, on_two = counting(2, [64], work=2000)
    on_four()
    shared = the_pool()
    pauses = shared.field(pool.PAUSES)
    shared.set_field(pool.PAUSES, 1_000_000)  # so that all workers look for work
    try:
        assert eventually(lambda: on_four()[1].max() > 1)
        for _ in range(50):
            on_four()
            assert on_two()[1].max() <= 1
    finally:
        shared.set_field(pool.PAUSES, pauses)


def test_workers_that_cannot_sleep_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    give_way = pool.SYSTEM.give_way
    monkeypatch.setattr(pool, "SYSTEM", System("", 0, 0, give_way))
    monkeypatch.setattr(pool, "WORKER", Kernel(pool.Worker("")))
    alternative = pool.Pool(Library.host())
    monkeypatch.setattr(linked, "shared_pool", lambda library: alternative)
    _, run = counting(2, [64], work=20_000)
    before = set(threading.enumerate())
    try:
        for _ in range(5):
            counts, _ = run()
            assert (counts == 1).all()
            time.sleep(0.002)
        assert eventually(lambda: 1 in run()[1])
    finally:
        threads = set(threading.enumerate()) - before
        alternative.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_closed_pool_leaves_the_work_to_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = pool.Pool(Library.host())
    monkeypatch.setattr(linked, "shared_pool", lambda library: closed)
    _, run = counting(3, [50])
    before = set(threading.enumerate())
    run()
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    closed.close()
    for thread in threads:  # on a busy machine they end later
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    counts, who = run()
    assert (counts == 1).all()
    assert (who == 0).all()


def test_too_many_threads_are_refused() -> None:
    _, run = counting(pool.MAX_WORKERS + 1, [2])
    with pytest.raises(ValueError, match=f"at most {pool.MAX_WORKERS}"):
        run()


class Limited(threading.Thread):
    """A thread of a system that gives no more than *left* of them."""

    left = 0

    def start(self) -> None:
        if Limited.left == 0:
            raise RuntimeError("can't start new thread")
        Limited.left -= 1
        super().start()


@pytest.mark.parametrize("left", [0, 1])
def test_runs_go_on_with_the_threads_that_there_are(
    left: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alternative = pool.Pool(Library.host())
    monkeypatch.setattr(linked, "shared_pool", lambda library: alternative)
    monkeypatch.setattr(pool, "warned", set())
    monkeypatch.setattr(threading, "Thread", Limited)
    monkeypatch.setattr(Limited, "left", left)
    _, run = counting(4, [64], work=20_000)
    try:
        for _ in range(5):
            counts, who = run()
            assert (counts == 1).all()
            assert who.max() <= left
        assert alternative.size == 1 + left
        (record,) = caplog.records
        assert f"may use 4 of them use {1 + left}" in record.getMessage()
        # the limit is raised, and threads are asked for again after a while
        monkeypatch.setattr(Limited, "left", 9)
        run()
        assert alternative.size == 1 + left
        monkeypatch.setattr(alternative, "try_again_at", 0.0)
        run()
        assert alternative.size == 4
    finally:
        alternative.close()


def test_workers_have_numbers_of_their_own_whatever_interrupts_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alternative = pool.Pool(Library.host())
    monkeypatch.setattr(linked, "shared_pool", lambda library: alternative)

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            raise KeyboardInterrupt

    numbers: list[int] = []
    work = alternative.work
    alternative.work = lambda control, number: (  # type: ignore[assignment]
        numbers.append(number),
        work(control, number),
    )[1]
    _, run = counting(3, [64], work=20_000)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", Interrupted)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    run()
        for _ in range(5):
            counts, who = run()
            assert (counts == 1).all()
            assert who.max() < 3
        assert eventually(lambda: len(numbers) == 4)
        assert len(set(numbers)) == 4
    finally:
        alternative.close()


SCRIPT = """
import atexit, os, sys, threading, time
sys.path.insert(0, {folder!r})
import compiler.runtime.test_pool as t
{body}
"""


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    folder = str(Path(__file__).parents[2])
    script = SCRIPT.format(folder=folder, body=body)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_fork_has_workers_of_its_own() -> None:
    done = run_script(
        """
program, run = t.counting(3, [64, 2], work=100_000)
assert t.eventually(lambda: len(set(run()[1])) > 1)
busy = threading.Thread(target=lambda: [run() for _ in range(200)], daemon=True)
busy.start()  # so that the pool is in use, and its lock perhaps held, at the fork
time.sleep(0.02)
child = os.fork()
if child == 0:
    shared = t.the_pool()
    assert shared.size == 1, shared.size
    counts, who = run()
    assert (counts == 1).all()
    assert shared.size == 3, shared.size
    ok = t.eventually(lambda: len(set(run()[1])) > 1)
    print("child", ok, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
busy.join()
assert (run()[0] == 1).all()
print("parent", status, flush=True)
"""
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["child", "True", "parent", "0"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    "ending",
    [
        "run()",  # workers spin
        "run(); time.sleep(0.2)",  # workers sleep
        "threading.Thread(target=lambda: [run() for _ in range(10**6)],"
        " daemon=True).start(); time.sleep(0.05)",  # in the middle of a run
        "run(); sys.exit(0)",
    ],
)
def test_the_process_ends(ending: str) -> None:
    done = run_script(
        f"""
atexit.register(lambda: print(t.the_pool()._closed, (run()[0] == 1).all()))
program, run = t.counting(3, [64], work=10_000)
{ending}
"""
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["True", "True"]
    assert done.returncode == 0


def test_native_code_for_other_processors() -> None:
    for isa in (AVX2, NEON):
        for kernel in (pool.WORKER, pool.WAKE_ALL):
            assert compile_object(kernel, isa)


# how many workers there should be


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def topology(cores: dict[str, list[int]]) -> dict[str, str]:
    """Files of processors by core, as Linux has them: ``"0,4"`` are two hardware
    threads of one core."""
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return {
        folder.format(processor): core + "\n"
        for core, processors in cores.items()
        for processor in processors
    }


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def allow(*numbers: int) -> None:
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda process: {*numbers}, raising=False
        )

    return allow


def test_hardware_threads_of_a_core_count_once(
    processors: Callable[..., None], tmp_path: Path
) -> None:
    write(tmp_path, topology({"0,4": [0, 4], "1,5": [1, 5], "2-3": [2, 3]}))
    processors(0, 1, 2, 3, 4, 5)
    assert default_workers(tmp_path) == 3
    processors(0, 4)
    assert default_workers(tmp_path) == 1
    processors(0, 1)
    assert default_workers(tmp_path) == 2
    processors(0, 7)  # of which the system says nothing
    assert default_workers(tmp_path) == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
            },
            1,
        ),
        (
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
            1,
        ),
        (
            {
                "proc/self/cgroup": "12:pids:/x\n4:cpu,cpuacct:/docker/1f\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        (
            {"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/cpu.max": "nonsense"},
            8,
        ),
        ({"proc/self/cgroup": "garbage"}, 8),
    ],
)
def test_control_groups_limit_the_workers(
    files: dict[str, str],
    expected: int,
    processors: Callable[..., None],
    tmp_path: Path,
) -> None:
    processors(*range(8))
    assert default_workers(write(tmp_path, files)) == expected


def test_this_machine_has_a_worker() -> None:
    assert 1 <= default_workers() <= (os.cpu_count() or 1)
