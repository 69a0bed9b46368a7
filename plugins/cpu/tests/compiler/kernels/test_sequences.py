"""CumSum and Trilu, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_cpu.compiler.kernels.movement.trilu import record_trilu
from onnxplug_cpu.compiler.kernels.reduction import cumulative
from onnxplug_cpu.compiler.kernels.reduction.cumulative import record_cumulative
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


@isas
@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_cumsum(isa: Isa, dtype: str) -> None:
    generator = np.random.default_rng(0)
    for shape in ((7,), (1, 128), (3, 4, 5), (2, 0, 3), (2, 3, 1, 40)):
        for axis in range(-len(shape), len(shape)):
            for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
                run = Interpreter(isa, 2)
                x = (generator.standard_normal(shape) * 9).astype(dtype)
                out = run.output(dtype, shape)
                record_cumulative(
                    run.recorder,
                    run.input(x.T).transpose(range(len(shape))[::-1]),
                    out,
                    axis,
                    exclusive=bool(exclusive),
                    reverse=bool(reverse),
                )
                run.run()
                turned = np.flip(x, axis) if reverse else x
                expected = np.cumsum(turned, axis, dtype=dtype)
                if exclusive and shape[axis]:
                    expected = np.roll(expected, 1, axis)
                    np.moveaxis(expected, axis, 0)[0] = 0
                expected = np.flip(expected, axis) if reverse else expected
                assert (run.read(out) == expected).all()


@isas
@pytest.mark.parametrize("dtype", ["bool", "f2", "f4", "f8"])
def test_trilu(isa: Isa, dtype: str) -> None:
    generator = np.random.default_rng(0)
    for shape in ((5, 5), (3, 9), (2, 3, 17, 4), (1, 1), (2, 0, 3)):
        for diagonal in (-40, -4, -1, 0, 1, 3, 2**40):
            for upper in (True, False):
                run = Interpreter(isa, 2)
                x = (generator.integers(0, 2, shape) + 1).astype(dtype)
                out = run.output(dtype, shape)
                given = run.input(np.swapaxes(x, -1, -2))
                order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
                given = given.transpose(order)
                record_trilu(run.recorder, given, out, diagonal, upper=upper)
                run.run()
                expected = (np.triu if upper else np.tril)(x, min(diagonal, 99))
                assert (run.read(out) == expected).all()


def test_other_dtypes_are_refused() -> None:
    run = Interpreter()
    x = run.input(np.zeros(3, np.int16))
    with pytest.raises(ValueError, match="int16"):
        record_cumulative(run.recorder, x, run.output("i2", (3,)), 0)


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
def test_a_cumsum_that_takes_long_has_parts(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cumulative, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 10))
    )
    # of whole numbers, so that sums of floats are exact
    generator = np.random.default_rng(0)
    for shape, axis in (((1000,), 0), ((3, 101), 1), ((101, 3), 0), ((2, 97, 5), 1)):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            run = Interpreter(ISAS[0], 2)
            x = generator.integers(-9, 9, shape).astype(dtype)
            out = run.output(dtype, shape)
            record_cumulative(
                run.recorder,
                run.input(x),
                out,
                axis,
                exclusive=bool(exclusive),
                reverse=bool(reverse),
            )
            assert len(run.recorder.commands) > 3
            run.run()
            expected = np.flip(x, axis) if reverse else x
            expected = np.cumsum(expected, axis, dtype=dtype)
            if exclusive:
                expected = np.roll(expected, 1, axis)
                np.moveaxis(expected, axis, 0)[0] = 0
            expected = np.flip(expected, axis) if reverse else expected
            assert (run.read(out) == expected).all()
