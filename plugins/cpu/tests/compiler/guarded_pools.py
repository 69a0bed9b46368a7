"""Pools and convolves channel by channel with pages around each buffer that nobody may
touch.

    python -m plugins.cpu.tests.compiler.guarded_pools FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does random graphs.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np

from onnxplug.authoring.entries import Cache
from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import MOST_CODED_TERMS, slides_of
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.window.commands import record_depthwise
from onnxplug_cpu.compiler.kernels.window.pool import record_pool
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.runtime.program import Program

from .guarded import Fence, GuardedArenas
from .interpreter import ISAS
from .kernels.test_window import POOLS, SUM, Windows, first, last, reference

F32 = np.dtype(np.float32)
RELU = Chain(("f32",), (), (Step("Relu", (0,), "f32"),), (1,))


def contents(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    taps: tuple[int, ...],
    *,
    coded: bool,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An input and weights; differences of codes if it has *coded* elements."""
    if coded:
        codes = rng.integers(0, 256, shape, np.uint8)
        return codes, rng.integers(-9, 9, taps).astype(F32)
    return rng.standard_normal(shape, F32), rng.standard_normal(taps, F32)


def attempt(library: Library, seed: int, *, at_end: bool) -> None:
    """The windows of one seed, compared with numpy's."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 3]))
    most = (80, 12, 5)[rank - 1]
    taps = tuple(int(n) for n in rng.choice([1, 2, 3, 5, most], rank))
    strides = tuple(int(n) for n in rng.integers(1, 4, rank))
    dilations = tuple(int(n) for n in rng.integers(1, 3, rank))
    extents = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    pads = tuple(int(rng.integers(0, extent)) for extent in (*extents, *extents))
    windows = Windows(taps, strides, dilations, pads)
    spatial = tuple(extent + int(rng.integers(0, 20)) for extent in extents)
    channels = int(rng.choice([1, 3, 16, 33, 70]))
    images, workers = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    shape = (images, channels, *spatial)
    result = (images, channels, *windows.counts(spatial))
    lasts, out_lasts = (bool(n) for n in rng.integers(0, 2, 2))
    weigh, coded = (bool(n) for n in rng.integers(0, 2, 2))
    coded = coded and weigh and math.prod(taps) <= MOST_CODED_TERMS
    combining = POOLS[int(rng.integers(0, len(POOLS)))]

    def placed(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
        order = last(len(shape)) if channels_last else range(len(shape))
        return tuple(shape[axis] for axis in order)

    def seen(view: View, channels_last: bool) -> View:
        return view.transpose(first(len(view.shape))) if channels_last else view

    with Fence(at_end=at_end):
        array, weights = contents(
            rng, placed(shape, lasts), (channels, 1, *taps), coded=coded
        )
        found = np.empty(placed(result, out_lasts), F32)
        recorder = Recorder(CpuTarget(library.isa, workers))
        x = View.contiguous(Input(0, array.nbytes), array.dtype, array.shape)
        x = seen(x, lasts)
        w = View.contiguous(Input(1, weights.nbytes), F32, weights.shape)
        if rng.integers(0, 2):
            w = recorder.constant(weights)
        out = View.contiguous(Output(0, found.nbytes), F32, found.shape)
        out = seen(out, out_lasts)
        activates = weigh and not coded and bool(rng.integers(0, 2))
        if weigh:
            record_depthwise(
                recorder,
                x,
                w,
                recorder.temporary(F32, result) if activates else out,
                strides=strides,
                dilations=dilations,
                pads=pads,
                zero=recorder.constant(np.array(9, F32)) if coded else None,
                epilogue=epilogue(RELU, [], [out]) if activates else None,
            )
        else:
            record_pool(recorder, combining, x, out, slides_of(*windows))
        arenas = GuardedArenas(at_end=at_end)
        program = Program(
            recorder.commands,
            library,
            workers,
            n_inputs=2,
            n_outputs=1,
            arenas=arenas,
        )
        program.run([array, weights], [found])
        arenas.check()
        rows = array.transpose(first(rank + 2)) if lasts else array
        if coded:
            rows = rows - np.array(9, F32)
        exact, size = reference(
            SUM if weigh else combining, rows, windows, weights if weigh else None
        )
        if activates:
            exact = np.maximum(exact, 0)
        got = found.transpose(first(rank + 2)) if out_lasts else found
        with np.errstate(invalid="ignore"):
            near = abs(got - exact) <= 1e-6 * size + 1e-37
        assert np.all(near | (got == exact) | np.isnan(exact)), seed


def main(begin: int, end: int) -> None:
    """Try the seeds, on each of the descriptions that this processor can run."""
    libraries = [Library(isa, Cache("onnxplug-cpu", limit=0)) for isa in ISAS]
    for seed in range(begin, end):
        print(f"seed {seed}", flush=True)
        for library in libraries:
            for at_end in (True, False):
                attempt(library, seed, at_end=at_end)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
    sys.stdout.flush()
    os._exit(0)  # some arrays live longer than what frees them
