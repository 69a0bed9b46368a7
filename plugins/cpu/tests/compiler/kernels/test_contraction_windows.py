"""Contractions over windows of images, with their taps, against numpy in float64."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.commands.words import Code, Words
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kernels.contraction import commands
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter
from ..rarely import crossed

Array: TypeAlias = np.ndarray[Any, Any]
each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


def windows(
    image: View,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int = 1,
) -> View:
    """An image [N, *spatial, C], one to three spatial axes, as [N, groups, lines,
    rows, *taps, C / groups]; images of volumes are lines, too."""
    n, *spatial, channels = image.shape
    out = [
        (size - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, stride, dilation in zip(
            spatial, kernel, strides, dilations, strict=True
        )
    ]
    along = image.strides[1:-1]
    steps = [stride * by for stride, by in zip(along, strides, strict=True)]
    taps = [stride * by for stride, by in zip(along, dilations, strict=True)]
    if len(out) == 1:
        out, steps = [1, *out], [0, *steps]
    assert len(out) == 2
    depth = channels // groups
    last = image.strides[-1]
    return View(
        image.buffer,
        image.offset,
        image.dtype,
        (n, groups, *out, *kernel, depth),
        (image.strides[0], depth * last, *steps, *taps, last),
    )


def filters(weights: View, groups: int = 1) -> View:
    """[M, C / groups, *kernel] as [1, groups, *kernel, C / groups, M / groups]."""
    columns, depth, *kernel = weights.shape
    each = columns // groups
    of_column, of_depth, *taps = weights.strides
    return View(
        weights.buffer,
        weights.offset,
        weights.dtype,
        (1, groups, *kernel, depth, each),
        (0, each * of_column, *taps, of_depth, of_column),
    )


def exact(a: Array, b: Array) -> tuple[Array, Array]:
    """The contraction in float64, and what its terms are without their signs."""
    taps = a.ndim - 5
    b = np.broadcast_to(b, (*a.shape[:2], *b.shape[2:]))
    left = a.reshape(*a.shape[:4], -1).astype(np.float64)
    right = b.reshape(*b.shape[:2], -1, b.shape[-1]).astype(np.float64)
    assert taps + 1 == b.ndim - 3
    right = right[:, :, None]
    with np.errstate(invalid="ignore"):
        return left @ right, np.abs(left) @ np.abs(right)


def contract(
    interpreter: Interpreter, a: View, b: View, bound: float | None = None
) -> None:
    """Contract the two, and compare."""
    out = interpreter.output(a.dtype, (*a.shape[:4], b.shape[-1]))
    record_contraction(interpreter.recorder, a, b, out)
    interpreter.run()
    found = interpreter.read(out)
    wanted, size = exact(interpreter.read(a), interpreter.read(b))
    if bound is None:
        bound = 1e-6 if found.dtype == np.float32 else 2e-15
    assert np.all(np.abs(found - wanted) <= bound * size)


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


@each_isa
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constant", [False, True])
def test_random_windows(isa: Isa, dtype: Any, constant: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        axes = int(rng.integers(1, 3))
        kernel = tuple(int(n) for n in rng.integers(1, 5, axes))
        strides = tuple(int(n) for n in rng.integers(1, 4, axes))
        dilations = tuple(int(n) for n in rng.integers(1, 4, axes))
        groups = int(rng.choice([1, 1, 2, 3]))
        depth, each = (int(n) for n in rng.choice([1, 2, 3, 7, 16, 33, 48], 2))
        spatial = [
            (taps - 1) * dilation + 1 + int(rng.integers(0, 40))
            for taps, dilation in zip(kernel, dilations, strict=True)
        ]
        gap = int(rng.choice([0, 0, 5]))
        images = int(rng.integers(1, 3))
        interpreter = Interpreter(isa, int(rng.integers(1, 4)))
        whole = interpreter.input(
            normal(rng, images, *spatial, groups * depth + gap, dtype=dtype)
        )
        image = whole.slice(
            [0] * (axes + 2), (images, *spatial, groups * depth)
        )  # pixels further apart than they have channels
        array = normal(rng, groups * each, depth, *kernel, dtype=dtype)
        weights = (
            interpreter.recorder.constant(array)
            if constant
            else interpreter.input(array)
        )
        contract(
            interpreter,
            windows(image, kernel, strides, dilations, groups),
            filters(weights, groups),
        )


@each_isa
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_filters_of_16_bits(isa: Isa, dtype: Any) -> None:
    rng = np.random.default_rng(6)
    for size, depth, each, groups in (
        (9, 40, 70, 1),
        (24, 150, 33, 1),
        (7, 3, 9, 2),
    ):
        interpreter = Interpreter(isa, 2)
        image = interpreter.input(normal(rng, 2, size, size, groups * depth))
        weights = normal(rng, groups * each, depth, 3, 3, dtype=dtype)
        contract(
            interpreter,
            windows(image, (3, 3), (1, 1), (1, 1), groups),
            filters(interpreter.recorder.constant(weights), groups),
        )


@each_isa
@pytest.mark.parametrize("constant", [False, True])
def test_channels_before_pixels_are_copied(isa: Isa, constant: bool) -> None:
    rng = np.random.default_rng(2)
    for groups, strides in itertools.product((1, 2), ((1, 1), (2, 3))):
        interpreter = Interpreter(isa, 2)
        image = interpreter.input(normal(rng, 2, 6, 9, 20)).transpose((0, 2, 3, 1))
        array = normal(rng, 10, 6 // groups, 3, 2)
        weights = (
            interpreter.recorder.constant(array)
            if constant
            else interpreter.input(array)
        )
        a = windows(image, (3, 2), strides, (1, 2), groups)
        contract(interpreter, a, filters(weights, groups))


@each_isa
@pytest.mark.parametrize(
    ("spatial", "kernel", "depth", "columns"),
    [
        ((9, 9), (3, 3), 512, 40),  # a tap in several blocks of K
        ((9, 9), (3, 3), 150, 40),  # several taps in each block
        ((12, 58), (3, 3), 64, 64),
        ((7, 40), (1, 1), 900, 33),
        ((300, 20), (5, 1), 4, 70),  # many lines, in several parts
    ],
)
@pytest.mark.parametrize(
    ("workers", "strides", "dilations"),
    crossed([1, 3], [(1, 1), (2, 2)], [(1, 1), (1, 2)]),
)
def test_divided(
    isa: Isa,
    spatial: tuple[int, int],
    kernel: tuple[int, int],
    depth: int,
    columns: int,
    workers: int,
    strides: tuple[int, int],
    dilations: tuple[int, int],
) -> None:
    rng = np.random.default_rng(3)
    array, weights = (
        normal(rng, 2, *spatial, depth),
        normal(rng, columns, depth, *kernel),
    )
    interpreter = Interpreter(isa, workers)
    image = interpreter.input(array)
    a = windows(image, kernel, strides, dilations)
    contract(interpreter, a, filters(interpreter.recorder.constant(weights)))


@each_isa
def test_three_axes_of_taps(isa: Isa) -> None:
    rng = np.random.default_rng(4)
    interpreter = Interpreter(isa)
    volume = interpreter.input(normal(rng, 5, 6, 30, 8))
    depth, height, width, channels = volume.strides
    # planes of the result are batches of the contraction
    a = View(
        volume.buffer,
        0,
        volume.dtype,
        (3, 1, 5, 14, 3, 2, 3, 8),
        (depth, 0, height, 2 * width, depth, height, width, channels),
    )
    weights = filters(interpreter.recorder.constant(normal(rng, 19, 8, 3, 2, 3)))
    contract(interpreter, a, weights)


@each_isa
def test_lines_fold_where_they_can(isa: Isa) -> None:
    """Windows of single pixels are the rows of one product."""
    recorder = Recorder(CpuTarget(isa, 1))
    image = recorder.temporary(np.dtype(np.float32), (3, 7, 7, 64))
    out = recorder.temporary(np.dtype(np.float32), (3, 1, 7, 7, 96))
    weights = filters(recorder.constant(np.ones((96, 64, 1, 1), np.float32)))
    record_contraction(
        recorder, windows(image, (1, 1), (1, 1), (1, 1)), weights, out, label="Conv"
    )
    (command,) = recorder.commands
    assert command.label == "Conv 3×7×7×96×64"
    words = dict(zip(command.kernel.words, command.words, strict=True))
    assert (words["lines"], words["taps"]) == (1, 1)


@each_isa
def test_taps_fold_where_they_can(isa: Isa) -> None:
    """The taps of a line of consecutive pixels are one longer tap."""
    recorder = Recorder(CpuTarget(isa, 1))
    image = recorder.temporary(np.dtype(np.float32), (1, 16, 30, 32))
    for dilation, taps, depth in ((1, 3, 96), (2, 9, 32)):
        a = windows(image, (3, 3), (1, 1), (1, dilation))
        out = recorder.temporary(np.dtype(np.float32), (*a.shape[:4], 20))
        weights = filters(recorder.constant(np.ones((20, 32, 3, 3), np.float32)))
        record_contraction(recorder, a, weights, out)
        command = recorder.commands[-1]
        words = dict(zip(command.kernel.words, command.words, strict=True))
        assert (words["taps"], words["depth"]) == (taps, depth)
        assert isinstance(words["offsets"], Words)
        assert len(words["offsets"].words) == taps


@each_isa
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_epilogue(isa: Isa, groups: int, kernel: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    interpreter = Interpreter(isa, 2)
    image = interpreter.input(normal(rng, 2, 10, 31, 6 * groups))
    weights = interpreter.recorder.constant(normal(rng, 20 * groups, 6, *kernel))
    a = windows(image, kernel, (1, 1), (1, 1), groups)
    shape = (*a.shape[:4], 20)
    bias = interpreter.input(normal(rng, groups, 20))
    bias = View(bias.buffer, 0, bias.dtype, shape, (0, 20, 0, 0, 1))
    residual = interpreter.input(normal(rng, *shape))
    gate = interpreter.input(normal(rng, 2, groups, 20))  # as squeeze-and-excitation's
    gate = View(gate.buffer, 0, gate.dtype, shape, (20 * groups, 20, 0, 0, 1))
    chain = Chain(
        ("f32",) * 4,
        (),
        (
            Step("Add", (0, 1), "f32"),
            Step("Mul", (4, 3), "f32"),
            Step("Add", (5, 2), "f32"),
        ),
        (6,),
    )
    n, _, lines, rows, columns = shape
    whole = interpreter.output(np.float32, (n, lines, rows, groups, columns))
    out = whole.transpose((0, 3, 1, 2, 4))
    after = epilogue(chain, [bias, residual, gate], [out])
    record_contraction(
        interpreter.recorder, a, filters(weights, groups), out, epilogue=after
    )
    interpreter.run()
    wanted, size = exact(
        interpreter.read(a), interpreter.read(filters(weights, groups))
    )
    bias_, residual_, gate_ = (interpreter.read(v) for v in (bias, residual, gate))
    wanted = (wanted + bias_) * gate_ + residual_
    size = (size + np.abs(bias_)) * np.abs(gate_) + np.abs(residual_)
    assert np.all(np.abs(interpreter.read(out) - wanted) <= 1e-6 * size)


@each_isa
def test_special_values(isa: Isa) -> None:
    rng = np.random.default_rng(6)
    array, weights = normal(rng, 1, 9, 20, 17), normal(rng, 40, 17, 3, 3)
    array[0, 4, 5, 3], array[0, 7, 19, 16], array[0, 0, 0, 0] = np.inf, np.nan, 1e-42
    weights[3, 0, 2, 2], weights[39, 16, 0, 0] = -np.inf, 0
    interpreter = Interpreter(isa)
    a = windows(interpreter.input(array), (3, 3), (1, 1), (1, 1))
    b = filters(interpreter.recorder.constant(weights))
    out = interpreter.output(np.float32, (*a.shape[:4], 40))
    record_contraction(interpreter.recorder, a, b, out)
    interpreter.run()
    found = interpreter.read(out)
    wanted, _ = exact(interpreter.read(a), interpreter.read(b))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@each_isa
def test_long_sums_round_as_little_as_short_ones(isa: Isa) -> None:
    rng = np.random.default_rng(7)
    for depth in (48, 512):
        interpreter = Interpreter(isa)
        image = interpreter.input(rng.random((1, 9, 9, depth), np.float32))
        weights = interpreter.recorder.constant(
            rng.random((32, depth, 7, 7), np.float32)
        )
        a = windows(image, (7, 7), (1, 1), (1, 1))
        out = interpreter.output(np.float32, (*a.shape[:4], 32))
        record_contraction(interpreter.recorder, a, filters(weights), out)
        interpreter.run()
        wanted, _ = exact(interpreter.read(a), interpreter.read(filters(weights)))
        found = interpreter.read(out)
        assert np.linalg.norm(found - wanted) < 6e-7 * np.linalg.norm(wanted)


@each_isa
def test_nothing_to_sum_gives_zeros(isa: Isa) -> None:
    for kernel, depth in (((3, 3), 0), ((0, 3), 5)):
        interpreter = Interpreter(isa)
        image = interpreter.input(np.ones((1, 8, 20, depth), np.float32))
        a = View(image.buffer, 0, image.dtype, (1, 1, 6, 18, *kernel, depth), (0,) * 7)
        weights = interpreter.recorder.constant(
            np.ones((9, depth, *kernel), np.float32)
        )
        out = interpreter.output(np.float32, (1, 1, 6, 18, 9))
        record_contraction(interpreter.recorder, a, filters(weights), out)
        interpreter.run()
        assert not interpreter.read(out).any()


def test_new_sizes_bring_no_new_code() -> None:
    """What kernels are called depends on the heights of tiles alone."""
    seen = []
    for lines in (5, 9, 90):
        recorder = Recorder(CpuTarget(ISAS[0], 1))
        image = recorder.temporary(np.dtype(np.float32), (1, lines, 58, 32))
        a = windows(image, (3, 3), (1, 1), (1, 1))
        out = recorder.temporary(np.dtype(np.float32), (*a.shape[:4], 64))
        weights = filters(recorder.constant(np.ones((64, 32, 3, 3), np.float32)))
        record_contraction(recorder, a, weights, out)
        (command,) = recorder.commands
        codes = {word.kernel.key for word in command.words if isinstance(word, Code)}
        seen.append(codes | {command.kernel.key})
    assert seen[0] == seen[1] == seen[2]


def test_what_does_not_fit_is_refused() -> None:
    recorder = Recorder(CpuTarget(ISAS[0], 1))

    def view(*shape: int) -> View:
        return recorder.temporary(np.dtype(np.float32), shape)

    a, b = view(1, 1, 4, 5, 3, 3, 8), view(1, 1, 3, 3, 8, 16)
    for left, right, out in (
        (a, b, view(1, 1, 4, 6, 16)),
        (a, b, view(1, 1, 4, 5, 17)),
        (a, view(1, 1, 3, 2, 8, 16), view(1, 1, 4, 5, 16)),
        (a, view(1, 1, 9, 8, 16), view(1, 1, 4, 5, 16)),
        (
            view(1, 1, 4, 5, 1, 1, 1, 1, 8),
            view(1, 1, 1, 1, 1, 1, 8, 16),
            view(1, 1, 4, 5, 16),
        ),
    ):
        with pytest.raises(ValueError, match="does not give"):
            record_contraction(recorder, left, right, out)
    strided = view(1, 1, 4, 16, 5).transpose((0, 1, 2, 4, 3))
    with pytest.raises(ValueError, match="columns are strided"):
        record_contraction(recorder, a, b, strided)


def test_windows_that_take_long_are_sums_of_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 30)))
    test_random_windows(ISAS[0], np.float32, constant=True)
    test_random_windows(ISAS[0], np.float32, constant=False)
    test_epilogue(ISAS[0], 1, (3, 3))
