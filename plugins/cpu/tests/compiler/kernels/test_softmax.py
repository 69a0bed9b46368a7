"""Softmax against numpy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels import rows as kernels_rows
from onnxplug_cpu.compiler.kernels.normalization.softmax import record_softmax
from onnxplug_cpu.compiler.machine.isa import Isa, host_isa

from ..interpreter import ISAS, Interpreter


def reference(x: Any, axis: int = -1, log: bool = False) -> Any:
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = x - x.max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        return shifted - np.log(total) if log else np.exp(shifted) / total


def softmax(
    isa: Isa,
    x: np.ndarray[Any, Any],
    change: Any = lambda view: view,
    workers: int = 1,
    in_place: bool = False,
    **options: Any,
) -> np.ndarray[Any, Any]:
    interpreter = Interpreter(isa, workers)
    view: View = change(interpreter.input(x))
    if in_place:
        interpreter = Interpreter(isa, workers)
        copy = interpreter.output(x.dtype, x.shape)
        interpreter.read(copy)
        interpreter.memory(copy.buffer)[:] = x.reshape(-1).view(np.uint8)
        view = out = change(copy)
    else:
        out = interpreter.output(x.dtype, view.shape)
    record_softmax(interpreter.recorder, view, out, **options)
    interpreter.run()
    return interpreter.read(out)


def check(found: Any, x: Any, axis: int = -1, log: bool = False) -> None:
    expected, epsilon = reference(x, axis, log), float(np.finfo(x.dtype).eps)
    if log:
        np.testing.assert_allclose(found, expected, 3 * epsilon, 8 * epsilon)
    else:
        # the differences are rounded before they are exponents
        largest = np.ptp(x[np.isfinite(x)]) if x.size else 0
        np.testing.assert_allclose(found, expected, (6 + largest) * epsilon, 2e-38)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("log", [False, True])
def test_rows(isa: Isa, log: bool) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 7, 16, 40, 300):
        x = rng.standard_normal((5, n)) * 50
        check(softmax(isa, x, log=log), x, log=log)
        check(softmax(isa, x.T.copy(), axis=0, log=log), x.T, axis=0, log=log)
    for n in [*range(1, 70, 5), 16, 32, 64, 128, 197, 256, 257, 300, 512, 1000]:
        for rows in (1, 3, 4, 9):
            x = (rng.standard_normal((rows, n)) * 5).astype(np.float32)
            check(softmax(isa, x, log=log), x, log=log)
            check(softmax(isa, x, log=log, in_place=True), x, log=log)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("log", [False, True])
def test_other_axes_and_strides(isa: Isa, log: bool) -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((5, 70, 83)) * 5).astype(np.float32)
    for axis in (0, 1, 2):
        check(softmax(isa, x, axis=axis, log=log), x, axis, log)
        check(softmax(isa, x, axis=axis, log=log, in_place=True), x, axis, log)
        found = softmax(
            isa, x, change=lambda v: v.transpose((2, 0, 1)), axis=axis, log=log
        )
        check(found, x.transpose(2, 0, 1), axis, log)
        found = softmax(
            isa,
            x,
            change=lambda v: v.slice((1, 2, 1), (3, 30, 40), (1, 2, 2)),
            axis=axis,
            log=log,
        )
        check(found, x[1:4, 2:62:2, 1:81:2], axis, log)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_special_values(isa: Isa) -> None:
    inf, nan = math.inf, math.nan
    rows = [
        [-inf, -inf, -inf],
        [-inf, 1.0, 2.0],
        [inf, 1.0, 2.0],
        [nan, 1.0, 2.0],
        [1.0, 2.0, nan],
        [1.5e38, -1.5e38, 1.5e38],
        [1e-45, 0.0, -1e-45],
        [0.0, -90.0, -100.0],
        [0.0, -104.5, -1000.0],
    ]
    x = np.array(rows, np.float32)
    for log in (False, True):
        for axis in (0, 1):
            array = np.ascontiguousarray(x if axis else x.T)
            found = softmax(isa, array, axis=axis, log=log)
            expected = reference(array, axis, log)
            np.testing.assert_allclose(found, expected, 1e-6, 2e-38)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_many_workers_cover_everything_once(isa: Isa) -> None:
    x = np.random.default_rng(4).standard_normal((1003, 201)).astype(np.float32)
    check(softmax(isa, x, workers=4), x)


def test_nothing_is_recorded_for_nothing() -> None:
    assert softmax(ISAS[0], np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        softmax(ISAS[0], np.zeros((2, 3), np.int32))


@pytest.mark.parametrize("log", [False, True])
def test_what_takes_long_is_computed_in_parts(
    log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    isa = host_isa()
    assert isa is not None
    rng = np.random.default_rng(9)
    cases = [
        ((1000,), 0),
        ((3, 777), 1),
        ((777, 3), 0),
        ((7, 500), 0),
        ((2, 9, 200), 1),
    ]
    for shape, axis in cases:
        x = (rng.standard_normal(shape) * 5).astype(np.float32)
        plain = softmax(isa, x, axis=axis, log=log)
        with monkeypatch.context() as patch:
            patch.setattr(
                kernels_rows, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 60))
            )
            interpreter = Interpreter(isa)
            out = interpreter.output(np.float32, shape)
            source = interpreter.input(x)
            record_softmax(interpreter.recorder, source, out, axis=axis, log=log)
            chunks = [command.chunks for command in interpreter.recorder.commands]
            assert sum(chunks) > 1, shape
            interpreter.run()
            found = interpreter.read(out)
            check(found, x, axis, log)
            check(softmax(isa, x, axis=axis, log=log, in_place=True), x, axis, log)
        np.testing.assert_allclose(found, plain, 2e-6, 2e-6)
