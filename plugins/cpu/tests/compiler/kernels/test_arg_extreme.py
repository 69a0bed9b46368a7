"""Positions of extremes against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.kernels.reduction.arg_extreme import record_arg_extreme
from onnxplug_cpu.compiler.target.isa import Isa

from ..interpreter import ISAS, Interpreter


def positions(
    isa: Isa,
    x: np.ndarray[Any, Any],
    axis: int,
    largest: bool,
    last: bool,
    change: Any = lambda view: view,
    workers: int = 1,
) -> np.ndarray[Any, Any]:
    interpreter = Interpreter(isa, workers)
    view = change(interpreter.input(x))
    shape = view.shape[:axis] + view.shape[axis + 1 :]
    out = interpreter.output(np.int64, shape)
    record_arg_extreme(
        interpreter.recorder, view, out, axis, largest=largest, last=last
    )
    interpreter.run()
    return interpreter.read(out)


def reference(x: Any, axis: int, largest: bool, last: bool) -> Any:
    function = np.argmax if largest else np.argmin
    if not last:
        return function(x, axis)
    return x.shape[axis] - 1 - function(np.flip(x, axis), axis)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_f32(isa: Isa, largest: bool, last: bool) -> None:
    rng = np.random.default_rng(1)
    for shape in [(1,), (7,), (100,), (5, 33), (33, 5), (3, 40, 20), (2, 1, 70)]:
        # few different numbers, so that many are equal
        x = rng.integers(-3, 4, shape).astype(np.float32)
        for axis in range(len(shape)):
            found = positions(isa, x, axis, largest, last)
            np.testing.assert_array_equal(found, reference(x, axis, largest, last))
    x = rng.standard_normal((6, 40, 30)).astype(np.float32)
    for axis in range(3):
        found = positions(
            isa, x, axis, largest, last, lambda v: v.transpose((2, 0, 1)), workers=3
        )
        np.testing.assert_array_equal(
            found, reference(x.transpose(2, 0, 1), axis, largest, last)
        )


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_other_elements(isa: Isa, dtype: Any) -> None:
    x = np.random.default_rng(2).integers(-3, 4, (3, 40, 21)).astype(dtype)
    if dtype is not np.float64:
        x[0, 0], x[1, 1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    for axis, last in [(0, True), (1, False), (2, True), (2, False)]:
        for largest in (True, False):
            found = positions(isa, x, axis, largest, last)
            np.testing.assert_array_equal(found, reference(x, axis, largest, last))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_special_values(isa: Isa) -> None:
    inf, nan = math.inf, math.nan
    for n in (3, 16, 20, 33):
        x = np.full((6, n), -inf, np.float32)
        x[1, 1:] = inf
        x[2, [0, -1]] = nan
        x[3, 1] = nan
        x[4] = inf
        x[5, ::2] = -0.0
        for axis in (0, 1):
            array = np.ascontiguousarray(x if axis else x.T)
            for largest in (True, False):
                for last in (True, False):
                    found = positions(isa, array, axis, largest, last)
                    expected = reference(array, axis, largest, last)
                    np.testing.assert_array_equal(found, expected)


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="along 0"):
        positions(ISAS[0], np.zeros((0, 2), np.float32), 0, True, False)
