"""Programs: words get their values, temporaries their places, constants their form."""

from __future__ import annotations

import mmap
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.buffers import Address, Buffer
from onnxplug_compiler.ir.recorder import PackedConstants
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Words
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.runtime import program as program_module
from onnxplug_cpu.compiler.runtime import time_slices
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.template import ArraySpec
from onnxplug_cpu.compiler.runtime.time_slices import (
    BETWEEN_LOOKS,
    Division,
    Part,
    estimated_seconds,
)

from ..files import mapped, resident
from ..sample_kernels import (
    ADD,
    CALL,
    COUNT,
    FLOAT,
    KEEP,
    LONG,
    input_view,
    output_view,
)


def add(recorder: Recorder, x: View, y: View, out: View, chunks: int = 1) -> None:
    words = {"x": x.address, "y": y.address, "out": out.address, "n": x.size // chunks}
    call(recorder, ADD, words, chunks=chunks)


def random_program(
    seed: int, workers: int, arenas: Arenas | None = None
) -> tuple[Program, Any]:
    """Sums of sums of two inputs and constants, and the outputs that they should give.

    Sizes are the same, so that wrong places show.
    """
    rng, random_ = np.random.default_rng(seed), random.Random(seed)
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, workers))
    n, n_outputs = random_.choice([8, 64, 1000]), random_.randint(1, 3)
    views = [input_view(0, FLOAT, n), input_view(1, FLOAT, n)]
    terms: list[np.ndarray[Any, Any]] = [np.array([1.0, 0, 0]), np.array([0, 1.0, 0])]
    for _ in range(random_.randint(0, 3)):
        value = float(rng.integers(1, 100))
        views.append(recorder.constant(np.full(n, value, np.float32)))
        terms.append(np.array([0, 0, value]))
    wanted = []
    steps = random_.randint(n_outputs, 40)
    for step in range(steps):
        # mostly what is new, so that old places are used again
        a, b = (
            min(len(views) - 1, int(random_.triangular(0, len(views), len(views))))
            for _ in range(2)
        )
        left = steps - step
        if left <= n_outputs:
            out = output_view(n_outputs - left, FLOAT, n)
        else:
            out = recorder.temporary(FLOAT, (n,))
        add(recorder, views[a], views[b], out, chunks=random_.choice([1, 2, 4]))
        views.append(out)
        terms.append(terms[a] + terms[b])
        if left <= n_outputs:
            wanted.append(terms[-1])
    program = Program(
        recorder.commands,
        library,
        workers,
        n_inputs=2,
        n_outputs=n_outputs,
        arenas=arenas,
    )

    def check(turn: int) -> None:
        turned = np.random.default_rng(turn)
        x, y = turned.standard_normal((2, n)).astype(np.float32)
        outputs = [np.full(n, np.nan, np.float32) for _ in wanted]
        program.run([x, y], outputs)
        for out, (of_x, of_y, number) in zip(outputs, wanted, strict=True):
            expected = of_x * x.astype(np.float64) + of_y * y.astype(np.float64)
            # sums of sums: the error is relative to the sum of the terms' sizes
            scale = of_x * np.abs(x) + of_y * np.abs(y) + number
            assert np.max(np.abs(out - expected - number) / (scale + 1)) < 1e-5

    return program, check


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_random_programs(workers: int) -> None:
    arenas = Arenas()
    for seed in range(25):
        _, check = random_program(seed, workers, arenas)
        for turn in range(3):
            check(turn)


def test_programs_share_arenas_in_any_order() -> None:
    arenas = Arenas()
    checks = [random_program(seed, 2, arenas)[1] for seed in range(6)]
    for turn in range(60):
        checks[turn * 7 % 6](turn)


def test_a_run_keeps_to_its_own_arena() -> None:
    arenas = Arenas()
    _, check = random_program(8, 2, arenas)
    check(0)
    used = arenas.acquire(1)
    assert used.nbytes > 1  # it is the run's
    used.array[:] = 77
    check(1)  # in another arena, with the words of the first
    assert (used.array == 77).all()
    arenas.release(used)
    check(2)


def test_programs_on_several_threads() -> None:
    arenas = Arenas()
    checks = [random_program(seed, 2, arenas)[1] for seed in (3, 4, 5)]
    failures: list[BaseException] = []

    def loop(number: int) -> None:
        try:
            for turn in range(100):
                checks[(turn + number) % 3](turn)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arrays_of_an_equal_dtype_or_another_class_are_used_where_they_are() -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    n = 8
    given = input_view(0, FLOAT, n)
    add(recorder, given, given, output_view(0, FLOAT, n))
    spec = ArraySpec(np.dtype(np.float32), (n,))
    program = Program(
        recorder.commands, library, 1, n_inputs=1, n_outputs=1, specs=[spec, spec]
    )
    x = np.arange(n, dtype=np.float32)
    unpickled = pickle.loads(pickle.dumps(x))
    read_only, subclass = x.copy(), x.view(np.recarray)
    read_only.flags.writeable = False
    odd = np.empty(4 * n + 1, np.uint8)[1:].view(np.float32)
    odd[:] = x
    for array in (x, unpickled, read_only, subclass, odd, np.repeat(x, 2)[::2]):
        for out in (np.zeros_like(x), pickle.loads(pickle.dumps(0 * x)), 0 * subclass):
            program.run([array], [out])
            assert out.tolist() == (2 * x).tolist()
    for refused in (odd, read_only, x.astype(np.float64), x[:4]):
        with pytest.raises(ValueError, match="arrays that it was not made for"):
            program.run([x], [refused])
    with pytest.raises(ValueError, match="arrays that it was not made for"):
        program.run([x.astype(">f4")], [np.zeros_like(x)])


def one_command(**named: Any) -> Any:
    """What a command that keeps two of its words writes."""
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    out = output_view(0, LONG, 2)
    call(recorder, KEEP, {"out": out.address, **named})
    program = Program(recorder.commands, library, 1, n_inputs=1, n_outputs=1)
    result = np.zeros(2, np.int64)
    given = np.zeros(8)
    program.run([given], [result])
    return result, given


def test_words_have_their_values() -> None:
    for number in (0, 1, -1, 1 << 40, -(1 << 63), (1 << 64) - 1, np.int64(-5)):
        result, _ = one_command(value=number, pointer=np.int32(3))
        assert int(result[0]) & (2**64 - 1) == int(number) & (2**64 - 1)
        assert result[1] == 3
    array = np.arange(10.0)
    constant = Recorder(CpuTarget(Library.host().isa, 1)).constant(array)
    result, given = one_command(
        value=Address(constant.buffer, 24),
        pointer=Address(input_view(0, LONG, 8).buffer, 16),
    )
    assert result.tolist() == [array.ctypes.data + 24, given.ctypes.data + 16]
    # a strided view may begin before its array
    result, given = one_command(
        value=Address(constant.buffer, -8),
        pointer=Address(input_view(0, LONG, 8).buffer, -8),
    )
    assert result.tolist() == [array.ctypes.data - 8, given.ctypes.data - 8]


def test_temporaries_are_aligned_and_apart() -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    scratch, distance = worker_memory(recorder, 10)
    other = recorder.temporary(LONG, (1,))
    words = {"value": scratch, "pointer": other.address}
    call(recorder, KEEP, {**words, "out": output_view(0, LONG, 2).address})
    program = Program(recorder.commands, library, 1, n_inputs=0, n_outputs=1)
    result = np.zeros(2, np.int64)
    program.run([], [result])
    assert (result % 64 == 0).all()
    assert abs(result[0] - result[1]) >= distance == 64


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_nested_words(depth: int) -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 2))
    n = 30
    x, out = input_view(0, FLOAT, n), output_view(0, FLOAT, n)
    middle = recorder.temporary(FLOAT, (n,))
    add(recorder, x, x, middle)
    constant = recorder.constant(np.arange(n, dtype=np.float32))
    code, words = Code(ADD), Words((middle.address, constant.address, out.address, 15))
    for _ in range(depth - 1):
        code, words = Code(CALL), Words((code, words))
    call(recorder, CALL, {"code": code, "more": words}, chunks=2)
    later = recorder.temporary(FLOAT, (n,))
    add(recorder, x, x, later)  # must not have been given middle's place too early
    program = Program(recorder.commands, library, 2, n_inputs=1, n_outputs=1)
    for _ in range(2):
        given, result = np.random.rand(n).astype(np.float32), np.zeros(n, np.float32)
        program.run([given], [result])
        np.testing.assert_array_equal(
            result, 2 * given + np.arange(n, dtype=np.float32)
        )


class Packing:
    """Plans that use one array packed: doubled, that is."""

    def __init__(self, n: int = 1000) -> None:
        self.session: PackedConstants = {}
        self.array = np.arange(n, dtype=np.float32)
        self.counts = np.zeros(1, np.int64)

    def recorded(self, workers: int = 2) -> Recorder:
        """A plan; those of a session are recorded one at a time."""
        recorder = Recorder(CpuTarget(Library.host().isa, workers), self.session)
        n = len(self.array)
        source = recorder.constant(self.array)

        def double(recorder: Recorder, source: View, address: Address) -> None:
            middle = recorder.temporary(FLOAT, (n,))
            out = View.contiguous(address.buffer, FLOAT, (n,))
            zero = recorder.constant(np.zeros(n, np.float32))
            add(recorder, source, zero, middle, chunks=4)
            add(recorder, middle, source, out, chunks=4)
            counts = recorder.constant(self.counts)
            words = {"counts": counts.address, "work": 0}
            call(recorder, COUNT, {**words, "workers": worker_memory(recorder, 8)[0]})

        address = recorder.packed(source, "doubled", source.nbytes, double)
        doubled = View.contiguous(address.buffer, FLOAT, (n,))
        add(recorder, input_view(0, FLOAT, n), doubled, output_view(0, FLOAT, n))
        return recorder

    def program(self, workers: int = 2, recorder: Recorder | None = None) -> Program:
        recorder = recorder or self.recorded(workers)
        return Program(
            recorder.commands, Library.host(), workers, n_inputs=1, n_outputs=1
        )

    def check(self, program: Program) -> None:
        x = np.random.rand(len(self.array)).astype(np.float32)
        out = np.zeros_like(x)
        program.run([x], [out])
        np.testing.assert_array_equal(out, x + 2 * self.array)


def test_constants_are_packed_once_for_all_programs() -> None:
    packing = Packing()
    first = packing.program()
    second = packing.program()
    packing.check(first)
    packing.check(second)
    packing.check(packing.program(workers=1))
    assert packing.counts[0] == 1


def test_threads_that_need_the_same_packed_constant() -> None:
    packing = Packing(100_000)
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def make(recorder: Recorder) -> None:
        try:
            start.wait()
            packing.check(packing.program(recorder=recorder))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    plans = [packing.recorded() for _ in range(4)]
    threads = [threading.Thread(target=make, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert packing.counts[0] == 1


def test_packing_that_failed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = Packing()
    run = Program.run

    def interrupted(self: Program, *arguments: Any) -> None:
        monkeypatch.setattr(Program, "run", run)
        raise KeyboardInterrupt

    monkeypatch.setattr(Program, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        packing.program()
    packing.check(packing.program())


def test_many_packed_constants_lie_in_several_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_module, "TOGETHER", 5000)
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1), {})
    n, total = 700, input_view(0, FLOAT, 700)
    for number in range(9):
        source = recorder.constant(np.full(n, number + 1.0, np.float32))

        def double(recorder: Recorder, source: View, address: Address) -> None:
            add(recorder, source, source, View.contiguous(address.buffer, FLOAT, (n,)))

        address = recorder.packed(source, "doubled", source.nbytes, double)
        following = recorder.temporary(FLOAT, (n,))
        add(recorder, total, View.contiguous(address.buffer, FLOAT, (n,)), following)
        total = following
    add(recorder, total, total, output_view(0, FLOAT, n))
    program = Program(recorder.commands, library, 1, n_inputs=1, n_outputs=1)
    out = np.zeros(n, np.float32)
    program.run([np.ones(n, np.float32)], [out])
    assert (out == 2 * (1 + 2 * 45)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_packing_gives_back_the_pages_of_mapped_files(tmp_path: Path) -> None:
    _, array = mapped(tmp_path / "weights", mmap.ACCESS_READ)
    packing = Packing()
    n = len(array) // 16 * 4  # `double` cuts them into four chunks
    packing.array = array[: 4 * n].view(np.float32)
    program = packing.program()
    assert resident(array.ctypes.data) <= 2 * mmap.PAGESIZE
    with np.errstate(all="ignore"):
        packing.check(program)


def counting(workers: int, chunks: list[int], work: int) -> Program:
    """A program that counts how often each chunk of its commands is done, a command of
    so many steps of work in each."""
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, workers))
    counts, who = output_view(0, LONG, sum(chunks)), output_view(1, LONG, sum(chunks))
    for number, count in enumerate(chunks):
        start = 8 * sum(chunks[:number])
        words: dict[str, Any] = {
            "counts": Address(counts.buffer, start),
            "workers": Address(who.buffer, start),
            "work": work,
        }
        call(recorder, COUNT, words, chunks=count, flops=count * work)
    return Program(recorder.commands, library, workers, n_inputs=0, n_outputs=2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_parts_are_every_chunk_once(workers: int) -> None:
    chunks = [1, 2, 3, 100, 1, 1000, 7, 2]
    program = counting(workers, chunks, work=10)
    for parts in (
        [Part(0, 8)],
        [Part(0, 3), Part(3, 4, 0, 50), Part(3, 4, 50, 100), Part(4, 8)],
        [Part(n, n + 1, c, c + 1) for n in range(8) for c in range(chunks[n])],
        [Part(0, 0), Part(0, 1), Part(1, 8), Part(8, 8)],
    ):
        counts, who = np.zeros((2, sum(chunks)), np.int64)
        seen: list[Part] = []
        program.run_in_parts([], [counts, who], lambda p=parts: p, seen.append)
        assert (counts == 1).all()
        assert who.max() < workers
        assert seen == parts


def divided(
    costs: list[tuple[float, int]], pace: Callable[[int], float], workers: int = 1
) -> list[tuple[Part, float]]:
    """The parts of commands with estimated seconds and chunks, and what each takes.

    *pace* gives what a second of the estimate takes in truth, by the part.
    """
    recorder = Recorder(CpuTarget(Library.host().isa, workers))
    for seconds, chunks in costs:
        words: dict[str, Any] = {"counts": 0, "workers": 0, "work": 0}
        call(recorder, COUNT, words, chunks=chunks, flops=int(seconds * 40e9))
    estimates = [estimated_seconds(c, workers) for c in recorder.commands]
    division = Division([c.chunks for c in recorder.commands], estimates, workers)
    now = 0.0
    parts: list[tuple[Part, float]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_slices.time, "perf_counter", lambda: now)
        for part in division.parts():
            taken = 0.0
            for command in range(part.first, part.last):
                seconds, chunks = costs[command]
                done = min(part.end, chunks) - part.begin
                taken += seconds * done / chunks * pace(len(parts))
            now += taken
            parts.append((part, taken))
    return parts


@pytest.mark.parametrize("pace", [0.1, 1.0, 20.0])
def test_parts_take_about_as_long_whatever_the_estimate_is_worth(pace: float) -> None:
    costs = [(1e-4, 4), (2.0, 4000), (1e-5, 1), (3e-3, 30), (1.0, 3000), (1e-4, 1)]
    found = divided(costs, lambda part: pace)
    done = {
        (command, chunk)
        for part, _ in found
        for command in range(part.first, part.last)
        for chunk in range(part.begin, min(part.end, costs[command][1]))
    }
    assert len(done) == sum(chunks for _, chunks in costs)
    assert [part.first for part, _ in found] == sorted(part.first for part, _ in found)
    taken = [seconds for _, seconds in found]
    assert max(taken) < 6 * BETWEEN_LOOKS
    assert max(taken[3:]) < 1.5 * BETWEEN_LOOKS
    assert len(found) < 2 * sum(taken) / BETWEEN_LOOKS + 12


def test_parts_recover_from_a_moment_in_which_nothing_went_on() -> None:
    found = divided([(2.0, 4000)], lambda part: 500.0 if part == 3 else 1.0)
    assert len(found) < 2 * 2.0 / BETWEEN_LOOKS


def test_parts_have_as_many_chunks_for_each_thread() -> None:
    parts = [part for part, _ in divided([(5.0, 1000)], lambda part: 1.0, workers=3)]
    assert len(parts) > 20
    assert all((part.end - part.begin) % 3 == 0 for part in parts[:-1])


def test_a_run_that_ends_early_leaves_the_program_as_it_was() -> None:
    program = counting(2, [30, 30], work=10)
    counts, who = np.zeros((2, 60), np.int64)

    def stop(part: Part) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run_in_parts([], [counts, who], lambda: [Part(0, 1, 0, 10)], stop)
    assert counts.sum() == 10
    counts[:] = 0
    for _ in range(3):
        program.run([], [counts, who])
    assert (counts == 3).all()


def test_commands_that_cannot_be_linked() -> None:
    library = Library.host()

    def made(**words: Any) -> Program:
        recorder = Recorder(CpuTarget(library.isa, 1))
        chunks = words.pop("chunks", 1)
        call(
            recorder, KEEP, {"value": 0, "pointer": 0, "out": 0, **words}, chunks=chunks
        )
        return Program(recorder.commands, library, 1, n_inputs=1, n_outputs=1)

    with pytest.raises(ValueError, match="input 1 of a program that has fewer"):
        made(value=input_view(1, LONG, 1).address)
    with pytest.raises(ValueError, match="output 1 of a program that has fewer"):
        made(value=output_view(1, LONG, 1).address)
    with pytest.raises(ValueError, match="16777216 chunks"):
        made(chunks=1 << 24)
    with pytest.raises(TypeError, match="has no place"):
        made(value=Address(Buffer(8)))


def test_an_empty_program() -> None:
    Program([], Library.host(), 2, n_inputs=0, n_outputs=0).run([], [])


def test_constants_live_as_long_as_the_program() -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    constant = recorder.constant(np.full(50_000, 3, np.float32))
    zero = recorder.constant(np.zeros(50_000, np.float32))
    add(recorder, constant, zero, output_view(0, FLOAT, 50_000))
    program = Program(recorder.commands, library, 1, n_inputs=0, n_outputs=1)
    del recorder, constant, zero
    rubbish = [np.full(50_000, 5, np.float32) for _ in range(20)]
    out = np.zeros(50_000, np.float32)
    program.run([], [out])
    assert (out == 3).all()
    assert rubbish


def test_making_a_program_is_quick() -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 2))
    view = input_view(0, FLOAT, 64)
    for _ in range(199):
        out = recorder.temporary(FLOAT, (64,))
        nested = Words((view.address, view.address, out.address, 16, *range(10)))
        call(recorder, CALL, {"code": Code(ADD), "more": nested}, chunks=4)
        view = out
    add(recorder, view, view, output_view(0, FLOAT, 64))
    taken = []
    for _ in range(20):
        began = time.thread_time()
        Program(recorder.commands, library, 2, n_inputs=1, n_outputs=1)
        taken.append(time.thread_time() - began)
    assert min(taken) < 0.02  # 2 ms on an idle machine


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_constants_that_another_thread_is_packing_are_packed_anew_in_a_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, half = Packing(), Packing()
    whole.program(workers=1)
    packs, goes_on = threading.Event(), threading.Event()
    run = Program.run

    def wait(*arguments: Any) -> None:
        if threading.current_thread() is packer:
            packs.set()
            goes_on.wait(60)
        run(*arguments)

    monkeypatch.setattr(Program, "run", wait)
    packer = threading.Thread(target=half.program, kwargs={"workers": 1})
    packer.start()
    assert packs.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for packing in (whole, half):
                packing.check(packing.program(workers=1))
                code += packing.counts[0] != 1
            code -= 1
        finally:
            os._exit(code)
    goes_on.set()
    packer.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    half.check(half.program(workers=1))
    assert half.counts[0] == 1
