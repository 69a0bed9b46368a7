"""Convolves by transforms of tiles with pages around each buffer that nobody may touch.

    python -m plugins.cpu.tests.compiler.guarded_winograd FIRST:LAST

tries the cases of these seeds, as :mod:`.guarded` does random graphs.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from onnxplug.authoring.entries import Cache
from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.winograd.commands import record_transformed
from onnxplug_cpu.compiler.kernels.winograd.transforms import TILINGS
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.runtime.program import Program

from .guarded import Fence, GuardedArenas
from .interpreter import ISAS
from .kernels.test_winograd import Sizes, exact

F32 = np.dtype(np.float32)
ADD = Chain(("f32", "f32"), (), (Step("Add", (0, 1), "f32"),), (2,))


def attempt(library: Library, seed: int, *, at_end: bool) -> None:
    """The convolution of one seed, compared with numpy's."""
    rng = np.random.default_rng(seed)
    pads = tuple(int(n) for n in rng.integers(0, 4, 4))
    assert len(pads) == 4
    sizes = Sizes(
        int(rng.integers(1, 4)),
        int(rng.choice([1, 5, 16, 33, 70, 390])),
        int(rng.integers(3, 25)),
        int(rng.integers(3, 25)),
        int(rng.choice([1, 7, 32, 65, 100])),
        pads,
    )
    workers, tile = int(rng.integers(1, 4)), int(rng.choice(list(TILINGS)))
    images, lines, pixels, columns = sizes.result
    with Fence(at_end=at_end):
        x, weights = (
            np.ascontiguousarray(array.transpose(order))
            for array, order in zip(
                sizes.random(seed), ((0, 2, 3, 1), (0, 1, 2, 3)), strict=True
            )
        )
        if rng.random() < 0.3:  # what reads the weights once more
            x.flat[rng.integers(x.size)] = np.inf
        more = rng.standard_normal(sizes.result, F32)
        found = np.empty(sizes.result, F32)
        recorder = Recorder(CpuTarget(library.isa, workers))
        shape = (images, 1, lines, pixels, columns)
        first = View.contiguous(Input(0, x.nbytes), F32, x.shape)
        second = View.contiguous(Input(1, more.nbytes), F32, shape)
        out = View.contiguous(Output(0, found.nbytes), F32, shape)
        record_transformed(
            recorder,
            first.transpose((0, 3, 1, 2)),
            recorder.constant(weights),
            (pads[0], pads[1]),
            epilogue(ADD, [second], [out]),
            tile=tile,
        )
        arenas = GuardedArenas(at_end=at_end)
        program = Program(
            recorder.commands,
            library,
            workers,
            n_inputs=2,
            n_outputs=1,
            arenas=arenas,
        )
        program.run([x, more], [found])
        arenas.check()
        with np.errstate(invalid="ignore"):
            expected = exact(x.transpose((0, 3, 1, 2)), weights, sizes.pads) + more
        finite = np.isfinite(expected)
        size = np.sqrt(9 * sizes.depth)
        assert np.array_equal(np.isfinite(found), finite), seed
        errors = abs(found[finite] - expected[finite])
        assert np.all(errors <= 2e-5 * size), seed


def main(first: int, last: int) -> None:
    """Try the seeds, on each of the descriptions that this processor can run."""
    libraries = [Library(isa, Cache("onnxplug-cpu", limit=0)) for isa in ISAS]
    for seed in range(first, last):
        print(f"seed {seed}", flush=True)
        for library in libraries:
            for at_end in (True, False):
                attempt(library, seed, at_end=at_end)


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
    sys.stdout.flush()
    os._exit(0)  # some arrays live longer than what frees them
