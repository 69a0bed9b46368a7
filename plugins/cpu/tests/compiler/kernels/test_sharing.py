"""Stages that threads share: each share is done once, whoever comes, in order."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.codegen import atomics
from onnxplug_cpu.compiler.codegen.emit import I64, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.recurrent.sharing import shared_bytes, write_stages
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, address

Array = np.ndarray[Any, Any]

STAGES = 200


class _Words(KernelWords):
    memory: Pointer
    shares: Integer
    counts: Pointer
    behind: Pointer


class Counting(Generator):
    """Counts how often each share of each stage is done, and where a share of the stage
    before was not."""

    words = _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _Words(module, name)
        f = k.function
        shares = k.shares

        def body(stage: Value, share: Value) -> None:
            place = f.at(k.counts, stage * shares + share, I64)
            atomics.add(f, place, 1)

            def look(other: Value) -> None:
                before = f.at(k.counts, stage * shares - shares + other, I64)
                missing = atomics.load(f, before, I64).compare("eq", 0)
                f.branch(missing, lambda: atomics.add(f, k.behind, 1))

            def look_all() -> None:
                f.loop(shares, look)

            f.branch(stage.compare("ne", 0), look_all)

        stages = f.value(STAGES, I64)
        write_stages(f, isa, k.memory, k.chunk, shares, stages, body)
        f.finish()


class Run:
    def __init__(self, isa: Isa, shares: int) -> None:
        self.memory = np.zeros(shared_bytes(shares) // 8, np.int64)
        self.counts = np.zeros((STAGES, shares), np.int64)
        self.behind = np.zeros(1, np.int64)
        given = (self.memory, self.counts, self.behind)
        memory, counts, behind = (array.ctypes.data for array in given)
        self.words = np.array([memory, shares, counts, behind], np.uint64)
        self.function = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )(address(Kernel(Counting()), isa))

    def chunk(self, number: int) -> threading.Thread:
        words = self.words.ctypes.data
        thread = threading.Thread(target=self.function, args=(words, number, number))
        thread.start()
        return thread


@pytest.mark.parametrize("together", [False, True])
def test_all_is_done_once(together: bool) -> None:
    for shares in (2, 3):
        run = Run(ISAS[0], shares)
        threads = []
        for number in reversed(range(shares)):
            threads.append(run.chunk(number))
            if not together:
                threads[-1].join()
        for thread in threads:
            thread.join()
        assert (run.counts == 1).all()
        assert not run.behind[0]


def test_who_waits_long_goes_on_alone() -> None:
    run = Run(ISAS[0], 2)
    done, owner, claims = run.memory[0:1], run.memory[8:9], run.memory[16::8]
    claims[1] = 1  # by a thread that is put aside in the first stage
    waiting = run.chunk(0)
    until = time.monotonic() + 10
    while not owner[0] and time.monotonic() < until:
        time.sleep(0.001)
    assert owner[0] == 1
    assert done[0] == 1
    run.counts[0, 1] = 1
    done[0] = 2  # it has done its share, and leaves
    waiting.join()
    assert (run.counts == 1).all()
    run.chunk(1).join()
    assert (run.counts == 1).all()
