"""Padding against numpy's."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.schedule.pad import MODES, record_pad
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


def expected(x: Any, before: list[int], after: list[int], mode: str, value: Any) -> Any:
    """What is taken away is taken first."""
    cut = tuple(
        slice(max(0, -b), n - max(0, -a))
        for b, a, n in zip(before, after, x.shape, strict=True)
    )
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    more = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x[cut], widths, mode, **more)  # type: ignore[call-overload]


def pad(
    isa: Isa,
    x: Any,
    before: list[int],
    after: list[int],
    mode: str,
    value: Any = None,
    *,
    order: list[int] | None = None,
    workers: int = 1,
) -> Any:
    run = Interpreter(isa, workers)
    order = order or list(range(x.ndim))
    inverse = np.argsort(order).tolist()
    shape = [b + n + a for b, n, a in zip(before, x.shape, after, strict=True)]
    out = run.output(x.dtype, tuple(shape[a] for a in order)).transpose(inverse)
    source = run.input(x.transpose(order)).transpose(inverse)
    record_pad(run.recorder, source, out, before, after, mode=mode, value=value)
    run.run()
    return run.read(out)


@isas
@pytest.mark.parametrize("mode", MODES)
def test_random_shapes(isa: Isa, mode: str) -> None:
    generator = np.random.default_rng(MODES.index(mode))
    for _ in range(60):
        rank = int(generator.integers(1, 5))
        shape = generator.choice([1, 2, 3, 5, 8], rank).tolist()
        dtype = generator.choice([np.int8, np.float16, np.float32, np.float64])
        x = generator.integers(-99, 99, shape).astype(dtype)
        # often several times as much as there is
        before, after = generator.choice([0, 0, 1, 2, 7, 19, -1], (2, rank)).tolist()
        for axis in range(rank):
            if shape[axis] + min(before[axis], 0) + min(after[axis], 0) < 1:
                before[axis] = 0
                after[axis] = max(after[axis], 0)
        value = np.array(7, dtype)
        found = pad(
            isa,
            x,
            before,
            after,
            mode,
            value,
            order=generator.permutation(rank).tolist(),
            workers=2,
        )
        wanted = expected(x, before, after, mode, value)
        np.testing.assert_array_equal(found, wanted, f"{shape} {before} {after}")


@isas
@pytest.mark.parametrize("mode", MODES)
def test_far_more_than_there_is_takes_few_commands(isa: Isa, mode: str) -> None:
    x = np.arange(3, dtype=np.float32)
    run = Interpreter(isa)
    out = run.output(np.float32, (100_003,))
    value = np.array(1, np.float32)
    record_pad(
        run.recorder,
        run.input(x),
        out,
        [50_000],
        [50_000],
        mode=mode,
        value=value,
    )
    assert len(run.recorder.commands) <= 2
    run.run()
    wanted = expected(x, [50_000], [50_000], mode, value)
    np.testing.assert_array_equal(run.read(out), wanted)


@isas
def test_bits_stay_as_they_are(isa: Isa) -> None:
    special = [math.nan, -0.0, math.inf, 1e-42]
    x = np.array(special, np.float32).view(np.uint32)
    for mode in MODES:
        value = np.array(0x7FC0_1234, np.uint32)
        found = pad(isa, x, [5], [6], mode, value)
        np.testing.assert_array_equal(found, expected(x, [5], [6], mode, value))


def test_other_types() -> None:
    for dtype in (np.bool_, np.int64, ml_dtypes.bfloat16, np.complex128):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        found = pad(ISAS[0], x, [1, 2], [0, 3], "wrap")
        assert (found == expected(x, [1, 2], [0, 3], "wrap", None)).all()


def test_more_taken_away_than_there_is() -> None:
    """The rest is taken from what is added."""
    x, value = np.ones((2, 3), np.float32), np.array(5, np.float32)
    found = pad(ISAS[0], x, [-4, 0], [9, 0], "constant", value)
    np.testing.assert_array_equal(found, np.full((7, 3), 5))
    found = pad(ISAS[0], x, [-2, 0], [0, 0], "constant", value)
    assert found.shape == (0, 3)


def test_what_does_not_fit_is_refused() -> None:
    x = np.ones((2, 0), np.float32)
    with pytest.raises(ValueError, match="without elements"):
        pad(ISAS[0], x, [0, 1], [0, 0], "edge")
    with pytest.raises(ValueError, match="not one float32"):
        pad(ISAS[0], x, [0, 1], [0, 0], "constant", np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="mode mirror"):
        pad(ISAS[0], x, [0, 1], [0, 0], "mirror")
    run = Interpreter()
    out = run.output(np.float32, (2, 2))
    with pytest.raises(ValueError, match="is not float32"):
        record_pad(run.recorder, run.input(x), out, [0, 1], [0, 0])
