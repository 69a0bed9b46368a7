"""The native entry: which arrays it takes, and what it does to Python around it."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.isa import AVX2, NEON
from onnxplug_cpu.compiler.runtime import driver
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, Library, compile_object
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.template import ArraySpec

from ..sample_kernels import ADD, COUNT, FLOAT, LONG, input_view, output_view


def adding(*shape: int, checked: bool = True) -> Program:
    """The sum of two arrays."""
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    x, y = input_view(0, FLOAT, *shape), input_view(1, FLOAT, *shape)
    out = output_view(0, FLOAT, *shape)
    call(
        recorder, ADD, {"x": x.address, "y": y.address, "out": out.address, "n": x.size}
    )
    specs = [ArraySpec(FLOAT, shape)] * 3 if checked else None
    return Program(recorder.commands, library, 1, n_inputs=2, n_outputs=1, specs=specs)


def arrays(*shape: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    y = rng.standard_normal(shape).astype(np.float32)
    return x, y, np.zeros(shape, np.float32)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3, 5), (1,) * 32])
def test_arrays_of_any_rank(shape: tuple[int, ...]) -> None:
    x, y, out = arrays(*shape)
    adding(*shape).run([x, y], [out])
    np.testing.assert_array_equal(out, x + y)


def entered(program: Program, *given: Any) -> bool:
    """Whether the native entry itself takes these arrays."""
    return program.try_run(given, ())


def test_what_the_entry_refuses() -> None:
    program = adding(4, 6)
    x, y, out = arrays(4, 6)
    locked = out.copy()
    locked.flags.writeable = False
    other = np.zeros((6, 4), np.float32)
    unaligned = np.zeros(4 * 6 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
    assert entered(program, x, y, out)
    for given in [
        (x, y),
        (x, y, out, out),
        (),
        (other, y, out),
        (x, other, out),
        (x, y, other),
        (x.reshape(24), y, out),
        (x.reshape(4, 6, 1), y, out),
        (x.astype(np.float64), y, out),
        (x.view(np.int32), y, out),
        (x.astype(">f4"), y, out),
        (other.T, y, out),
        (x, y, other.T),
        (x, y, locked),
        (unaligned, y, out),
        (np.ma.masked_array(x), y, out),
        (None, y, out),
        (x, 1.0, out),
        (list(x), y, out),
    ]:
        out[:] = 7
        assert entered(program, *given) is False, given
        assert (out == 7).all()
    locked_input = x.copy()
    locked_input.flags.writeable = False
    assert entered(program, locked_input, y, out)
    np.testing.assert_array_equal(out, x + y)


def test_unchecked_programs_take_any_shape_in_order() -> None:
    program = adding(4, 6, checked=False)
    x, y, out = arrays(4, 6)
    assert entered(program, x.reshape(24), y.view(np.int32), out)
    assert not entered(program, x.T, y, out)
    np.testing.assert_array_equal(out, x + y)


def test_run_takes_what_can_be_brought_into_form() -> None:
    program = adding(4, 6)
    x, y, out = arrays(4, 6)
    unpickled = pickle.loads(pickle.dumps(x))
    in_columns = np.asfortranarray(y)
    assert not entered(program, unpickled, in_columns, out)
    program.run([unpickled, in_columns], [out.view(np.recarray)])
    np.testing.assert_array_equal(out, x + y)


def test_run_says_what_is_wrong() -> None:
    program = adding(4, 6)
    x, y, out = arrays(4, 6)
    with pytest.raises(ValueError, match=r"inputs float32\[6, 4\], .*expected inputs"):
        program.run([x.T, y], [out])
    with pytest.raises(ValueError, match=r"outputs float64\[4, 6\]; expected"):
        program.run([x, y], [out.astype(np.float64)])
    with pytest.raises(ValueError, match="inputs float32"):
        program.run([x], [out])
    with pytest.raises(ValueError, match="expected 2 inputs"):
        adding(4, 6, checked=False).run([x, y, y], [out])


def test_references_are_neither_lost_nor_kept() -> None:
    program = adding(2)
    x, y, out = arrays(2)
    objects = (x, y, out, True, False, None, driver.shared_driver(Library.host()).run)
    before = [sys.getrefcount(item) for item in objects]
    for _ in range(1000):
        entered(program, x, y, out)
        entered(program, x, y)
    assert [sys.getrefcount(item) for item in objects] == before


def busy(work: int, flops: int) -> Program:
    library = Library.host()
    recorder = Recorder(CpuTarget(library.isa, 1))
    words = {
        "counts": output_view(0, LONG, 1).address,
        "workers": output_view(1, LONG, 1).address,
        "work": work,
    }
    call(recorder, COUNT, words, flops=flops)
    return Program(recorder.commands, library, 1, n_inputs=0, n_outputs=2)


def test_other_threads_go_on_during_long_runs_only() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # threads change only where one releases the GIL

    def turns_meanwhile(program: Program) -> int:
        turns, ends, begun = 0, False, threading.Event()

        def count() -> None:
            nonlocal turns
            while not ends:
                turns += 1
                begun.set()
                time.sleep(0)

        other = threading.Thread(target=count)
        other.start()
        begun.wait()
        out = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
        before = turns
        program.run([], out)
        after = turns
        ends = True
        other.join()
        return after - before

    work = 50_000_000
    try:
        assert turns_meanwhile(busy(work, flops=10**9)) > 0
        assert turns_meanwhile(busy(work, flops=1)) == 0
    finally:
        sys.setswitchinterval(interval)


def test_native_code_for_other_processors() -> None:
    for isa in (AVX2, NEON):
        assert compile_object(driver.ENTRY, isa)


def test_an_unknown_layout_of_arrays_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.check_layout()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        with pytest.raises(KernelUnavailable, match="PYTHON_GIL=1"):
            driver.check_layout()
    monkeypatch.setattr(driver, "OUTPUT_FLAGS", 1 << 20)  # which no array has
    with pytest.raises(KernelUnavailable, match="do not know"):
        driver.check_layout()
