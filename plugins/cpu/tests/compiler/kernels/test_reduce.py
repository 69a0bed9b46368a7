"""Reductions against numpy in float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.families import REDUCTIONS
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.reduction import commands
from onnxplug_cpu.compiler.kernels.reduction.commands import (
    record_moments,
    record_reduce,
)
from onnxplug_cpu.compiler.machine.isa import Isa, host_isa
from onnxplug_kernels import find_kernel
from onnxplug_kernels.namespaces import namespace_of

from ..interpreter import ISAS, Interpreter

EPSILON = float(np.finfo(np.float32).eps)


def reference(kind: str, x: Any, axes: tuple[int, ...]) -> Any:
    with np.errstate(all="ignore"):
        match kind:
            case "ReduceSum":
                return x.sum(axes)
            case "ReduceMean":
                return x.sum(axes) / max(math.prod(x.shape[a] for a in axes), 1)
            case "ReduceMax":
                return x.max(axes, initial=-math.inf)
            case "ReduceMin":
                return x.min(axes, initial=math.inf)
            case "ReduceProd":
                return x.prod(axes)
            case "ReduceL1":
                return abs(x).sum(axes)
            case "ReduceL2":
                return np.sqrt((x * x).sum(axes))
            case "ReduceSumSquare":
                return (x * x).sum(axes)
            case "ReduceLogSum":
                return np.log(x.sum(axes))
            case "ReduceLogSumExp":
                return np.log(np.exp(x).sum(axes))
    raise AssertionError(kind)


def reduce(
    isa: Isa,
    kind: str,
    x: np.ndarray[Any, Any],
    axes: tuple[int, ...],
    change: Any = lambda view: view,
    keepdims: bool = True,
    workers: int = 1,
) -> np.ndarray[Any, Any]:
    interpreter = Interpreter(isa, workers)
    view: View = change(interpreter.input(x))
    shape = tuple(
        1 if axis in axes else size
        for axis, size in enumerate(view.shape)
        if keepdims or axis not in axes
    )
    out = interpreter.output(x.dtype, shape)
    record_reduce(interpreter.recorder, kind, view, out, axes)
    interpreter.run()
    return interpreter.read(out)


SHAPES = [
    ((), ()),
    ((1,), (0,)),
    ((5,), ()),
    ((1000,), (0,)),
    ((3, 70), (1,)),
    ((3, 70), (0,)),
    ((37, 129), (1,)),
    ((65, 33), (0,)),
    ((4, 5, 6), (1,)),
    ((4, 5, 6), (0, 2)),
    ((3, 4, 5, 6, 7), (1, 3)),
    ((3, 4, 5, 6, 7), (0, 2, 4)),
    ((2, 3, 7, 7), (2, 3)),
    ((2, 300), (0, 1)),
    ((0, 3), (0,)),
    ((3, 0), (0,)),
    ((3, 0), (1,)),
]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_f32(isa: Isa, kind: str) -> None:
    rng = np.random.default_rng(1)
    for shape, axes in SHAPES:
        x = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        if kind not in ("ReduceProd", "ReduceLogSum"):
            x *= rng.choice([-3.0, 3.0], shape).astype(np.float32)
        found = reduce(isa, kind, x, axes, keepdims=len(shape) % 2 == 0)
        expected = reference(kind, x.astype(np.float64), axes).reshape(found.shape)
        scale = abs(expected)
        if kind == "ReduceSum":
            scale = reference("ReduceL1", x.astype(np.float64), axes)
        scale = np.maximum(scale.reshape(found.shape), 1)
        steps = 2 + (x.size // max(found.size, 1) if kind == "ReduceProd" else 0)
        with np.errstate(invalid="ignore"):
            near = abs(found - expected) <= steps * EPSILON * scale
        assert ((found == expected) | near).all(), (shape, axes, found, expected)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"])
def test_views(isa: Isa, kind: str) -> None:
    """Any strides: transposed, sliced with steps, backward, broadcast."""
    x = np.random.default_rng(2).standard_normal((6, 40, 30)).astype(np.float32)
    views: list[tuple[Any, Any]] = [
        (lambda v: v.transpose((2, 0, 1)), x.transpose(2, 0, 1)),
        (lambda v: v.transpose((1, 2, 0)), x.transpose(1, 2, 0)),
        (
            lambda v: v.slice((1, 2, 1), (4, 17, 9), (1, 2, 3)),
            x[1:5, 2:36:2, 1:28:3],
        ),
        (
            lambda v: v.slice((5, 39, 29), (6, 40, 30), (-1, -1, -1)),
            x[::-1, ::-1, ::-1],
        ),
        (
            lambda v: v.slice((0, 0, 0), (6, 1, 30)).broadcast_to((2, 6, 5, 30)),
            np.broadcast_to(x[:, :1], (2, 6, 5, 30)),
        ),
    ]
    for change, viewed in views:
        for axes in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]:
            found = reduce(isa, kind, x, axes, change, keepdims=False)
            expected = reference(kind, viewed.astype(np.float64), axes)
            np.testing.assert_allclose(found, expected, rtol=3e-6, atol=3e-5)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_many_workers_cover_everything_once(isa: Isa) -> None:
    x = np.random.default_rng(3).standard_normal((7, 1000, 131)).astype(np.float32)
    for axes in [(0,), (1,), (2,), (0, 2), (0, 1)]:
        found = reduce(isa, "ReduceSum", x, axes, workers=4)
        expected = x.astype(np.float64).sum(axes, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_are_no_worse_than_pairwise(isa: Isa, axis: int) -> None:
    x = np.random.default_rng(4).uniform(0, 1, (1 << 19, 3)).astype(np.float32)
    x = np.ascontiguousarray(x.T) if axis else x
    expected = x.sum(axis, dtype=np.float64)
    found = reduce(isa, "ReduceSum", x, (axis,), keepdims=False)
    assert (abs(found - expected) <= 1.01 * EPSILON * expected).all()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_special_values(isa: Isa) -> None:
    inf, nan = math.inf, math.nan
    rows = [
        [1.0, nan, 3.0],
        [nan, 1.0, 3.0],
        [1.0, 3.0, nan],
        [inf, -inf, 1.0],
        [inf, inf, 1.0],
        [-inf, -inf, -inf],
        [1e-45, 0.0, 1e-45],
    ]
    x = np.array(rows, np.float32)
    for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1"):
        for axis in (0, 1):
            array = np.ascontiguousarray(x if axis else x.T)
            found = reduce(isa, kind, array, (axis,), keepdims=False)
            with np.errstate(all="ignore"):
                expected = reference(kind, array, (axis,))
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=kind)
    for axis in (0, 1):
        array = np.ascontiguousarray(x if axis else x.T)
        found = reduce(isa, "ReduceLogSumExp", array, (axis,), keepdims=False)
        np.testing.assert_allclose(
            found, [nan, nan, nan, inf, inf, -inf, math.log(3)], rtol=1e-6
        )


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("dtype", "float64 int32 int64 uint32 uint64".split())
def test_other_elements(isa: Isa, dtype: str) -> None:
    rng = np.random.default_rng(5)
    floats = dtype == "float64"
    least = 0 if dtype[0] == "u" else -9
    x = rng.integers(least, 10, (5, 37, 21)).astype(dtype)
    if floats:
        x = rng.uniform(0.9, 1.1, x.shape) * rng.choice([-1, 1], x.shape)
    else:
        x[0] = np.iinfo(dtype).max - x[0]
    for kind in REDUCTIONS:
        # floats beyond an integer's range become any integer
        is_of_floats = kind in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
        given = np.abs(x) % 700 if is_of_floats else x
        if kind == "ReduceMean" and not floats:  # of a sum that does not wrap
            given = x // 1000
        for axes in [(0,), (1,), (2,), (0, 1, 2)]:
            found = reduce(isa, kind, given, axes, keepdims=False)
            wanted = arrays(kind, given, axes)
            if floats:
                np.testing.assert_allclose(found, wanted, 4e-15, 3e-14, err_msg=kind)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=kind)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_extremes_of_bytes(isa: Isa, dtype: str) -> None:
    x = np.random.default_rng(6).integers(0, 256, (5, 37, 21)).astype(np.uint8)
    x = x > 250 if dtype == "bool" else x.view(dtype)
    for kind in ("ReduceMax", "ReduceMin"):
        for axes in [(0,), (1,), (2,), (0, 1, 2)]:
            found = reduce(isa, kind, x, axes, keepdims=False)
            np.testing.assert_array_equal(found, arrays(kind, x, axes))


def arrays(kind: str, x: np.ndarray[Any, Any], axes: tuple[int, ...]) -> Any:
    """The array tier's result, without the reduced axes."""
    kernel = find_kernel("", kind, 24)
    assert kernel is not None
    with np.errstate(all="ignore"):
        return kernel.function(namespace_of(np), x, np.array(axes), keepdims=0)


def test_repeated_elements() -> None:
    """Integers that are converted are converted once, however often they repeat."""
    # the norms of what is repeated fit: what does not is undefined, and not wrapped by
    # all processors
    x = np.arange(7, dtype=np.int32)[:, None] + 900_000_000
    for kind in ("ReduceMean", "ReduceL2", "ReduceSum"):
        repeat = functools.partial(View.broadcast_to, shape=(7, 5))
        found = reduce(ISAS[0], kind, x, (1,), repeat)
        whole = np.repeat(x, 5, axis=1)
        np.testing.assert_array_equal(found[:, 0], arrays(kind, whole, (1,)))


def test_the_empty_extremes_of_integers() -> None:
    for dtype in (np.int32, np.uint32, np.int8):
        x = np.zeros((0, 4), dtype)
        limits = np.iinfo(dtype)
        assert (reduce(ISAS[0], "ReduceMax", x, (0,)) == limits.min).all()
        assert (reduce(ISAS[0], "ReduceMin", x, (0,)) == limits.max).all()


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="ReduceSum of i8"):
        reduce(ISAS[0], "ReduceSum", np.zeros((2,), np.int8), (0,))
    with pytest.raises(ValueError, match="ReduceMax of f16"):
        reduce(ISAS[0], "ReduceMax", np.zeros((2,), np.float16), (0,))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("workers", [1, 3])
def test_moments(isa: Isa, workers: int) -> None:
    """The variance is that of what differs from the mean, which may be far from 0."""
    generator = np.random.default_rng(workers)
    for shape, axes in [(s, a) for s, a in SHAPES if a and math.prod(s)]:
        x = generator.uniform(99.0, 101.0, shape).astype(np.float32)
        run = Interpreter(isa, workers)
        order = generator.permutation(x.ndim).tolist()
        view = run.input(x.transpose(order)).transpose(np.argsort(order).tolist())
        found = record_moments(run.recorder, view, axes)
        run.run()
        mean, variance = (run.read(each) for each in found)
        wide = x.astype(np.float64)
        expected = wide.mean(axes, keepdims=True)
        assert mean.shape == variance.shape == expected.shape
        np.testing.assert_allclose(mean, expected, 4 * EPSILON)
        around = ((wide - mean) ** 2).mean(axes, keepdims=True)
        np.testing.assert_allclose(variance, around, 8 * EPSILON)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_moments_of_special_values(isa: Isa) -> None:
    x = np.array([[math.inf, 1], [math.nan, 1], [1e-40, 3e-40], [2, 2]], np.float32)
    for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        run = Interpreter(isa)
        found = record_moments(run.recorder, run.input(array), (axis,))
        run.run()
        mean, variance = (run.read(each).reshape(-1) for each in found)
        np.testing.assert_allclose(mean, [math.inf, math.nan, 2e-40, 2], 1e-4)
        np.testing.assert_array_equal(variance, [math.nan, math.nan, 0, 0])


def test_what_has_no_moments_is_refused() -> None:
    run = Interpreter()
    with pytest.raises(ValueError, match="moments of float64"):
        record_moments(run.recorder, run.input(np.zeros(3)), (0,))
    with pytest.raises(ValueError, match=r"over \(\)"):
        record_moments(run.recorder, run.input(np.zeros(3, np.float32)), ())


STRETCHED: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    # the array, what it is stretched to, and the axes
    ((1,), (37,), (0,)),
    ((1, 5), (4, 5), (0,)),
    ((1, 5), (4, 5), (0, 1)),
    ((1, 40), (70, 40), (1,)),
    ((3, 1, 7), (3, 6, 7), (1,)),
    ((3, 1, 7), (3, 6, 7), (0, 1)),
    ((3, 1, 7), (3, 6, 7), (2,)),
    ((3, 1, 1), (3, 6, 5), (1,)),
    ((1, 1), (300, 300), (0, 1)),
]


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [True, False])
def test_what_is_stretched_is_as_if_it_were_not(kind: str, keepdims: bool) -> None:
    isa = host_isa()
    rng = np.random.default_rng(3)
    for shape, stretched, axes in STRETCHED:
        x = rng.uniform(0.97, 1.03, shape).astype(np.float32)
        found = reduce(
            isa, kind, x, axes, lambda v, s=stretched: v.broadcast_to(s), keepdims
        )
        expected = reference(
            kind, np.broadcast_to(x, stretched).astype(np.float64), axes
        )
        tolerance = math.prod(stretched) * EPSILON if kind == "ReduceProd" else 4e-7
        np.testing.assert_allclose(
            found.ravel(), np.ravel(expected), rtol=tolerance, atol=4e-7
        )


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_2_40_times_the_same_takes_no_time(kind: str) -> None:
    isa = host_isa()
    n = 1 << 40
    with np.errstate(all="ignore"):
        for value in (0.0, -0.0, 1.0, -1.0, 1.5, 3e38, math.inf, -math.inf, math.nan):
            x = np.full((1, 2), value, np.float32)
            found = reduce(isa, kind, x, (0,), lambda v: v.broadcast_to((n, 2)))
            wide = np.float64(value)
            expected = {
                "ReduceSum": wide * n,
                "ReduceMean": wide,
                "ReduceMax": wide,
                "ReduceMin": wide,
                "ReduceProd": wide**n,
                "ReduceL1": abs(wide) * n,
                "ReduceL2": abs(wide) * 2**20,
                "ReduceSumSquare": np.float64(np.float32(wide * wide)) * n,
                "ReduceLogSum": np.log(np.float64(np.float32(wide * n))),
                "ReduceLogSumExp": wide + np.log(n),
            }[kind]
            if kind == "ReduceL2" and value == 3e38:
                expected = math.inf  # as its square is
            expected = np.float64(np.float32(expected))
            np.testing.assert_allclose(found, [[expected] * 2], rtol=3e-7)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n", [2, 3, 1000, (1 << 40) + 12345])
def test_integers_that_are_stretched_wrap(dtype: type, n: int) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    x = np.array([[7, -3, 1 << 20, -(1 << 31), 0, -1]], dtype)
    values = [int(value) for value in x[0]]

    def wrapped(value: int) -> int:
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    for kind, expected in (
        ("ReduceSum", [wrapped(v * n) for v in values]),
        ("ReduceL1", [wrapped(wrapped(abs(v)) * n) for v in values]),
        ("ReduceSumSquare", [wrapped(v * v * n) for v in values]),
        (
            "ReduceProd",
            [wrapped(pow(v % (1 << bits), n, 1 << bits)) for v in values],
        ),
        ("ReduceMax", values),
        ("ReduceMin", values),
    ):
        found = reduce(
            host_isa(), kind, x, (0,), lambda v: v.broadcast_to((n, 6)), False
        )
        assert found.tolist() == expected, kind


def test_what_is_repeated_along_kept_axes_is_computed_once() -> None:
    interpreter = Interpreter(host_isa())
    x = np.random.default_rng(4).standard_normal((1, 64)).astype(np.float32)
    view = interpreter.input(x).broadcast_to((1000, 64))
    out = interpreter.output(x.dtype, (1000,))
    record_reduce(interpreter.recorder, "ReduceSum", view, out, (1,))
    assert interpreter.recorder.commands[0].flops == 64
    interpreter.run()
    np.testing.assert_allclose(interpreter.read(out), [x.sum()] * 1000, rtol=1e-6)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything beyond 100 bytes takes long."""
    monkeypatch.setattr(
        commands, "fewest_chunks", lambda seconds: max(1, int(seconds * 8e9 / 100))
    )


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_what_takes_long_is_reduced_in_pieces(kind: str) -> None:
    rng = np.random.default_rng(5)
    for shape, axes in SHAPES:
        x = rng.uniform(0.9, 1.1, shape).astype(np.float32)
        found = reduce(host_isa(), kind, x, axes, keepdims=len(shape) % 2 == 0)
        expected = reference(kind, x.astype(np.float64), axes).reshape(found.shape)
        rounded = x.size * EPSILON if kind == "ReduceProd" else 4e-7
        np.testing.assert_allclose(found, expected, rtol=rounded, atol=4e-7)


@pytest.mark.usefixtures("in_pieces")
def test_moments_in_pieces() -> None:
    rng = np.random.default_rng(6)
    for shape, axes in SHAPES:
        if not axes:
            continue
        interpreter = Interpreter(host_isa())
        x = rng.normal(50, 1, shape).astype(np.float32)
        found = record_moments(interpreter.recorder, interpreter.input(x), axes)
        interpreter.run()
        if not math.prod(shape):
            continue
        wide = x.astype(np.float64)
        for view, expected in zip(
            found, (wide.mean(axes), wide.var(axes)), strict=True
        ):
            np.testing.assert_allclose(
                interpreter.read(view).ravel(), np.ravel(expected), rtol=1e-5, atol=1e-8
            )


def test_a_long_row_has_chunks_that_are_not(in_pieces: None) -> None:
    results = []
    for workers in (1, 2, 3):
        interpreter = Interpreter(host_isa(), workers)
        x = np.random.default_rng(7).standard_normal(10007).astype(np.float32)
        out = interpreter.output(x.dtype, (1,))
        source = interpreter.input(x)
        record_reduce(interpreter.recorder, "ReduceSum", source, out, (0,))
        assert len(interpreter.recorder.commands) > 2
        interpreter.run()
        results.append(interpreter.read(out).tobytes())
    assert len(set(results)) == 1  # whatever the number of threads
