"""Normalisations of rows against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels import rows as kernels_rows
from onnxplug_cpu.compiler.kernels.normalization.norm import record_norm
from onnxplug_cpu.compiler.machine.isa import Isa, host_isa

from ..interpreter import ISAS, Interpreter

EPSILON = float(np.finfo(np.float32).eps)
WIDTHS = [*range(1, 70, 4), 16, 32, 64, 197, 768, 1024, 1025, 3000]


def statistics(x: Any, epsilon: float, centered: bool) -> tuple[Any, Any]:
    x = np.asarray(x, np.float64)
    mean = x.mean(-1, keepdims=True) if centered else np.zeros((*x.shape[:-1], 1))
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return mean, 1 / np.sqrt(variance + epsilon)


def norm(
    isa: Isa,
    x: np.ndarray[Any, Any],
    *others: tuple[str, Any],
    change: Any = lambda view: view,
    workers: int = 1,
    outputs: tuple[str, ...] = (),
    **options: Any,
) -> list[np.ndarray[Any, Any]]:
    """The result, then the *outputs*; *others* are broadcast."""
    interpreter = Interpreter(isa, workers)
    view: View = change(interpreter.input(x))
    out = interpreter.output(np.float32, view.shape)
    results = [out]
    for name, array in others:
        options[name] = interpreter.input(array).broadcast_to(view.shape)
    for name in outputs:
        options[name] = interpreter.output(np.float32, (*view.shape[:-1], 1))
        results.append(options[name])
    record_norm(interpreter.recorder, view, out, **options)
    interpreter.run()
    return [interpreter.read(result) for result in results]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("centered", [True, False])
def test_rows(isa: Isa, centered: bool) -> None:
    rng = np.random.default_rng(1)
    for n in WIDTHS:
        for rows in (1, 4, 7):
            x = (rng.standard_normal((rows, n)) * 3 + 1).astype(np.float32)
            scale, bias = rng.standard_normal((2, n)).astype(np.float32)
            mean, inverse = statistics(x, 1e-5, centered)
            found, *stashed = norm(
                isa,
                x,
                ("scale", scale),
                ("bias", bias),
                centered=centered,
                epsilon=1e-5,
                outputs=("mean", "inverse") if centered else ("inverse",),
            )
            if n == 1 and centered:
                np.testing.assert_array_equal(found, np.broadcast_to(bias, x.shape))
                continue
            expected = (x - mean) * inverse * scale + bias
            np.testing.assert_allclose(found, expected, 4e-7, 2e-6)
            for array, value in zip(reversed(stashed), (inverse, mean), strict=False):
                np.testing.assert_allclose(array, value, 4e-7, 1e-6)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_without_scale_or_bias(isa: Isa) -> None:
    x = np.random.default_rng(2).standard_normal((3, 5, 37)).astype(np.float32)
    rows = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    mean, inverse = statistics(x, 0.1, True)
    plain = (x - mean) * inverse
    for others, expected in [
        ([], plain),
        ([("scale", rows)], plain * rows),
        ([("bias", rows)], plain + rows),
        ([("bias", rows), ("scale", rows)], plain * rows + rows),
    ]:
        (found,) = norm(isa, x, *others, epsilon=0.1)
        np.testing.assert_allclose(found, expected, 4e-7, 1e-6)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_strides(isa: Isa) -> None:
    x = np.random.default_rng(4).standard_normal((6, 40, 30)).astype(np.float32)
    views: list[tuple[Any, Any]] = [
        (lambda v: v.transpose((2, 0, 1)), x.transpose(2, 0, 1)),
        (lambda v: v.transpose((1, 0, 2)), x.transpose(1, 0, 2)),
        (
            lambda v: v.slice((1, 2, 29), (4, 17, 10), (1, 2, -3)),
            x[1:5, 2:36:2, 29:0:-3],
        ),
    ]
    for change, viewed in views:
        mean, inverse = statistics(viewed, 1e-5, True)
        (found,) = norm(isa, x, change=change, epsilon=1e-5)
        np.testing.assert_allclose(found, (viewed - mean) * inverse, 1e-6, 2e-6)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_no_digits_cancel(isa: Isa) -> None:
    """A mean far from zero, and long rows."""
    rng = np.random.default_rng(5)
    for n, offset in [(768, 1000.0), (50000, 30.0)]:
        x = (rng.standard_normal((2, n)) + offset).astype(np.float32)
        mean, inverse = statistics(x, 0.0, True)
        found, means, inverses = norm(isa, x, epsilon=0.0, outputs=("mean", "inverse"))
        np.testing.assert_allclose(means, mean, EPSILON)
        np.testing.assert_allclose(inverses, inverse, 4 * EPSILON)
        error = abs(found - (x - mean) * inverse).max()
        assert error <= offset * EPSILON


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_special_values(isa: Isa) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[inf, 1, 2], [nan, 1, 2], [1, 1, 1], [1e-40, 2e-40, 0]], np.float32)
    (found,) = norm(isa, x, epsilon=1e-5)
    assert np.isnan(found[:2]).all()
    assert (found[2] == 0).all()
    np.testing.assert_allclose(
        found[3], (x[3] - 1e-40) / np.sqrt(1e-5), rtol=1e-5, atol=3e-43
    )


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_many_workers_cover_everything_once(isa: Isa) -> None:
    x = np.random.default_rng(6).standard_normal((1003, 201)).astype(np.float32)
    mean, inverse = statistics(x, 1e-5, True)
    (found,) = norm(isa, x, epsilon=1e-5, workers=4)
    np.testing.assert_allclose(found, (x - mean) * inverse, 1e-6, 2e-6)


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        norm(ISAS[0], np.zeros((2, 3)), epsilon=0.0)


@pytest.mark.parametrize("centered", [True, False])
def test_rows_that_take_long(centered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kernels_rows, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 60))
    )
    isa = host_isa()
    assert isa is not None
    rng = np.random.default_rng(9)
    for rows in (1, 3):
        x = (rng.standard_normal((rows, 1001)) * 3 + 1).astype(np.float32)
        scale, bias = rng.standard_normal((2, 1001)).astype(np.float32)
        mean, inverse = statistics(x, 1e-5, centered)
        outputs = ("mean", "inverse") if centered else ("inverse",)
        found, *stashed = norm(
            isa,
            x,
            ("scale", scale),
            ("bias", bias),
            centered=centered,
            epsilon=1e-5,
            outputs=outputs,
        )
        expected = (x - mean) * inverse * scale + bias
        np.testing.assert_allclose(found, expected, 4e-7, 3e-6)
        for array, value in zip(reversed(stashed), (inverse, mean), strict=False):
            np.testing.assert_allclose(array, value, 4e-7, 1e-6)
