"""Timings of commands, and the machine's peaks."""

from __future__ import annotations

import time

import numpy as np
import pytest

from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.isa import AVX2, NEON, SSE
from onnxplug_cpu.compiler.runtime import profile as profile_module
from onnxplug_cpu.compiler.runtime.jit import Library, compile_object
from onnxplug_cpu.compiler.runtime.profile import Peaks, Timing, measured_peaks, profile
from onnxplug_cpu.compiler.runtime.program import Program

from ..sample_kernels import ADD, COUNT, FLOAT, LONG, input_view, output_view


def test_every_command_is_timed() -> None:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 2))
    x, middle = input_view(0, FLOAT, 64), recorder.temporary(FLOAT, (64,))
    out, counts, who = (
        output_view(0, FLOAT, 64),
        output_view(1, LONG, 4),
        output_view(2, LONG, 4),
    )
    recorder.nodes = (4, 5)
    words = {"x": x.address, "y": x.address, "out": middle.address, "n": 64}
    call(recorder, ADD, words, label="first", flops=64, nbytes=512)
    recorder.nodes = (7,)
    busy = {"counts": counts.address, "workers": who.address, "work": 5_000_000}
    call(recorder, COUNT, busy, chunks=4, label="busy")
    words = {"x": middle.address, "y": x.address, "out": out.address, "n": 64}
    call(recorder, ADD, words, label="last")
    program = Program(recorder.commands, library, 2, n_inputs=1, n_outputs=3)
    given = np.random.rand(64).astype(np.float32)
    results = [np.zeros(64, np.float32), np.zeros(4, int), np.zeros(4, int)]
    began = time.perf_counter_ns()
    timings = profile(program, [given], results)
    ended = time.perf_counter_ns()
    np.testing.assert_array_equal(results[0], given + given + given)
    assert (results[1] == 1).all()  # each command was run once
    assert [timing.label for timing in timings] == ["first", "busy", "last"]
    assert [timing.kernel for timing in timings] == [ADD.key, COUNT.key, ADD.key]
    assert [timing.nodes for timing in timings] == [(4, 5), (7,), (7,)]
    assert [timing.flops for timing in timings] == [64, 0, 0]
    assert [timing.nbytes for timing in timings] == [512, 0, 0]
    starts = [timing.start for timing in timings]
    assert began < starts[0] < starts[1] < starts[2] < ended
    assert timings[1].duration > 1_000_000
    assert timings[1].duration < starts[2] - starts[1]
    assert timings[0].duration < timings[1].duration


def test_profiling_refuses_other_arrays() -> None:
    program = Program([], Library.host(), 1, n_inputs=1, n_outputs=0)
    with pytest.raises(ValueError, match="expected 1 inputs"):
        profile(program, [], [])


def test_rates_and_shares() -> None:
    timing = Timing("", "", 0, 1000, 40_000, 5_000, ())
    assert timing.gflops == 40
    assert timing.gbytes == 5
    assert Peaks(gflops=80, gbytes=10).share(timing) == 0.5
    assert Peaks(gflops=160, gbytes=10).share(timing) == 0.5
    assert Peaks(gflops=80, gbytes=100).share(timing) == 0.5
    assert timing._replace(duration=0).gflops == 40_000


def test_peaks_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_module, "measured", {})
    peaks = measured_peaks(Library.host(), 1)
    assert 1 < peaks.gflops < 2000
    assert 0.2 < peaks.gbytes < 2000
    assert measured_peaks(Library.host(), 1) is peaks


def test_kernels_of_peaks_compile_for_other_processors() -> None:
    for isa in (AVX2, SSE, NEON):
        for kernel in (profile_module.ARITHMETIC, profile_module.READING):
            assert compile_object(kernel, isa)
