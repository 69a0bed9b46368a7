"""Contracts random windows with pages around each buffer that nobody may touch.

    python -m plugins.cpu.tests.compiler.guarded_windows FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does random graphs.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from onnxplug.authoring.entries import Cache
from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.runtime.program import Program

from .guarded import GuardedArenas, fence
from .interpreter import ISAS
from .kernels.test_contraction_bf16_rounded import rounded
from .kernels.test_contraction_bf16_windows import record as record_by_tiles
from .kernels.test_contraction_windows import exact, filters, windows
from .tiled import EMULATED

F32 = np.dtype(np.float32)


def attempt(library: Library, seed: int, *, at_end: bool, rounds: bool = False) -> None:
    """Contract the windows of one seed, and compare.

    Args:
        rounds: factors to bfloat16.
    """
    rng = np.random.default_rng(seed)
    kernel = tuple(int(n) for n in rng.integers(1, 5, 2))
    steps = tuple(int(n) for n in rng.integers(1, 4, 2))
    dilations = tuple(int(n) for n in rng.integers(1, 4, 2))
    groups, images = int(rng.choice([1, 2])), int(rng.integers(1, 3))
    depth, each = (int(n) for n in rng.choice([1, 3, 16, 33], 2))
    spatial = [
        (taps - 1) * dilation + 1 + int(rng.integers(0, 40))
        for taps, dilation in zip(kernel, dilations, strict=True)
    ]
    constant = bool(rng.integers(0, 2))
    workers = int(rng.integers(1, 3))
    with fence(at_end):
        image = rng.standard_normal((images, *spatial, groups * depth), F32)
        weights = rng.standard_normal((groups * each, depth, *kernel), F32)
        recorder = Recorder(
            CpuTarget(library.isa, workers, rounds=(("float32", 1),) if rounds else ())
        )
        first = View.contiguous(Input(0, image.nbytes), F32, image.shape)
        second = View.contiguous(Input(1, weights.nbytes), F32, weights.shape)
        if constant:
            second = recorder.constant(weights)
        a = windows(first, kernel, steps, dilations, groups)
        b = filters(second, groups)
        result = np.empty((*a.shape[:4], each), F32)
        out = View.contiguous(Output(0, result.nbytes), F32, result.shape)
        if (library.isa.tiles or rounds) and constant:
            record_by_tiles(recorder, a, b, out)
        else:
            record_contraction(recorder, a, b, out)
        arenas = GuardedArenas(at_end=at_end)
        program = Program(
            recorder.commands,
            library,
            workers,
            n_inputs=2,
            n_outputs=1,
            arenas=arenas,
        )
        program.run([image, weights], [result])
        arenas.check()

        def read(view: View, array: np.ndarray) -> np.ndarray:
            strides = [stride * F32.itemsize for stride in view.strides]
            start = array.reshape(-1)[view.offset // F32.itemsize :]
            return np.lib.stride_tricks.as_strided(start, view.shape, strides)

        if rounds and constant:
            image, weights = rounded(image), rounded(weights)
        wanted, size = exact(read(a, image), read(b, weights))
        assert np.all(np.abs(result - wanted) <= 1e-6 * size), seed


def main(first: int, last: int) -> None:
    """Try the seeds, on each of the descriptions that this processor can run."""
    isas = [*ISAS, *EMULATED]
    libraries = [Library(isa, Cache("onnxplug-cpu", limit=0)) for isa in isas]
    for seed in range(first, last):
        print(f"seed {seed}", flush=True)
        for library in libraries:
            for at_end in (True, False):
                attempt(library, seed, at_end=at_end)
                if seed % 4 == 0:
                    attempt(library, seed, at_end=at_end, rounds=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
    sys.stdout.flush()
    os._exit(0)  # some arrays live longer than what frees them
