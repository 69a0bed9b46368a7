"""RoiAlign against its formula in float64, sample by sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.kernels.spatial.roi_align import record_roi_align
from onnxplug_cpu.compiler.machine.isa import AVX512, Isa

from ..interpreter import ISAS, Interpreter, assembly

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


def neighbours(point: float, size: int) -> list[tuple[int, float]]:
    if not -1 <= point <= size:
        return []
    point = min(max(point, 0.0), size - 1.0)
    first = math.floor(point)
    rest = point - first
    return [(first, 1 - rest), (min(first + 1, size - 1), rest)]


def expected(
    x: Any, regions: Any, images: Any, size: tuple[int, int], **options: Any
) -> Any:
    x = x.astype(np.float64)
    out = np.zeros((len(regions), x.shape[1], *size))
    for number, (corners, image) in enumerate(
        zip(regions.astype(np.float64), images, strict=True)
    ):
        shift = 0.5 if options["half_pixel"] else 0.0
        x1, y1, x2, y2 = corners * options["scale"] - shift
        lengths = [y2 - y1, x2 - x1]
        if not options["half_pixel"]:
            lengths = [max(length, 1.0) for length in lengths]
        fine = [
            options["samples"] or math.ceil(length / count)
            for length, count in zip(lengths, size, strict=True)
        ]
        if min(fine) <= 0:
            continue
        steps = [
            length / (count * f)
            for length, count, f in zip(lengths, size, fine, strict=True)
        ]
        for row, column in np.ndindex(*size):
            parts = []
            for i, j in np.ndindex(*fine):
                y = y1 + (row * fine[0] + i + 0.5) * steps[0]
                z = x1 + (column * fine[1] + j + 0.5) * steps[1]
                taps = [
                    x[image, :, a, b] * (v * w)
                    for a, v in neighbours(y, x.shape[2])
                    for b, w in neighbours(z, x.shape[3])
                ] or [np.zeros(x.shape[1])]
                pooled = np.sum if options["mode"] == "avg" else np.max
                parts.append(pooled(taps, axis=0))
            pooled = np.mean if options["mode"] == "avg" else np.max
            out[number, :, row, column] = pooled(parts, axis=0)
    return out


def align(
    isa: Isa,
    x: Any,
    regions: Any,
    images: Any,
    size: tuple[int, int],
    *,
    last: bool = False,
    workers: int = 1,
    **options: Any,
) -> Any:
    run = Interpreter(isa, workers)
    count, channels = len(regions), x.shape[1]
    source = run.input(x)
    out = run.output(np.float32, (count, channels, *size))
    if last:
        source = run.input(x.transpose(0, 2, 3, 1)).transpose((0, 3, 1, 2))
        out = run.output(np.float32, (count, *size, channels)).transpose((0, 3, 1, 2))
    record_roi_align(
        run.recorder, source, run.input(regions), run.input(images), out, **options
    )
    run.run()
    return run.read(out)


PLAIN: dict[str, Any] = {
    "mode": "avg",
    "samples": 2,
    "scale": 1.0,
    "half_pixel": True,
}


@isas
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_random_regions(isa: Isa, mode: str) -> None:
    generator = np.random.default_rng(len(mode))
    for turn in range(24):
        channels = int(generator.choice([1, 5, 16, 33, 80]))
        shape = (2, channels, *(int(n) for n in generator.choice([1, 4, 9, 13], 2)))
        x = generator.standard_normal(shape).astype(np.float32)
        count = int(generator.choice([0, 1, 4]))
        regions = generator.uniform(-6, 30, (count, 4)).astype(np.float32)
        if turn % 3:
            regions[:, 2:] = regions[:, :2] + abs(regions[:, 2:])
        images = generator.integers(0, 2, count)
        options = {
            "mode": mode,
            "samples": int(generator.choice([0, 0, 1, 2, 3])),
            "scale": float(generator.choice([0.5, 1.0, 0.37])),
            "half_pixel": bool(turn % 2),
        }
        size = (int(generator.integers(1, 5)), int(generator.integers(1, 8)))
        wanted = expected(x, regions, images, size, **options)
        for last in (False, True):
            found = align(
                isa, x, regions, images, size, last=last, workers=2, **options
            )
            np.testing.assert_allclose(found, wanted, 2e-5, 2e-5, err_msg=str(options))


@isas
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_huge_regions_end(isa: Isa, mode: str) -> None:
    """Samples outside the image are counted, not visited."""
    x = np.ones((1, 16, 4, 4), np.float32)
    regions = np.array(
        [[-1e5, -1e5, 1e5, 1e5], [-3e38, 0, 3e38, 3], [0, 0, 3e37, 1e37]], np.float32
    )
    images = np.zeros(3, np.int64)
    options = {**PLAIN, "mode": mode, "samples": 0}
    found = align(isa, x, regions, images, (1, 1), **options)
    assert np.isfinite(found).all()
    if mode == "avg":
        # about 6 by 6 of the elements, border included
        assert 0 < found[0].max() < 36.1 / 2e5**2
    else:
        assert 0.5 < found[0].min() <= found[0].max() <= 1


@isas
def test_what_is_outside_is_zero_also_for_the_largest(isa: Isa) -> None:
    x = np.full((1, 16, 3, 3), -2.0, np.float32)
    regions = np.array([[-9, -9, 9, 9]], np.float32)
    images = np.zeros(1, np.int64)
    for samples in (0, 8):
        options = {**PLAIN, "mode": "max", "samples": samples}
        found = align(isa, x, regions, images, (1, 1), **options)
        assert (found == 0).all()


@isas
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_special_values(isa: Isa, mode: str) -> None:
    x = np.ones((1, 16, 4, 4), np.float32)
    x[0, 3, 1, 1], x[0, 4, 1, 1], x[0, 5, 1, 1] = math.nan, math.inf, 1e-42
    regions = np.array([[0, 0, 4, 4]], np.float32)
    options = {**PLAIN, "mode": mode}
    found = align(isa, x, regions, np.zeros(1, np.int64), (1, 1), **options)
    wanted = expected(x, regions, [0], (1, 1), **options)
    np.testing.assert_allclose(found, wanted, 1e-6)


@isas
def test_corners_that_are_not_finite_fail_the_run(isa: Isa) -> None:
    x, images = np.ones((1, 2, 4, 4), np.float32), np.zeros(2, np.int64)
    for bad in (math.nan, math.inf, -math.inf):
        regions = np.array([[0, 0, 1, 1], [0, bad, 1, 1]], np.float32)
        with pytest.raises(ValueError, match="corners that are not finite"):
            align(isa, x, regions, images, (2, 2), **PLAIN)


@isas
@pytest.mark.parametrize("bad", [-1, 1, 2**62, -(2**63)])
def test_an_image_that_there_is_not_fails_the_run(isa: Isa, bad: int) -> None:
    x, regions = np.ones((1, 2, 4, 4), np.float32), np.zeros((2, 4), np.float32)
    with pytest.raises(IndexError, match=f"index {bad} is out of range"):
        align(isa, x, regions, np.array([0, bad]), (2, 2), **PLAIN)


@isas
def test_strides(isa: Isa) -> None:
    generator = np.random.default_rng(4)
    x = generator.standard_normal((2, 9, 7, 20)).astype(np.float32)
    regions = generator.uniform(0, 8, (4, 10)).astype(np.float32)
    images = generator.integers(0, 2, 9)
    run = Interpreter(isa)
    out = run.output(np.float32, (3, 2, 20, 5))
    record_roi_align(
        run.recorder,
        run.input(x).transpose((0, 3, 1, 2)),
        run.input(regions).transpose((1, 0)).slice((1, 0), (5, 4), (2, 1)),
        run.input(images).slice((8,), (5,), (-2,)),
        out.transpose((3, 2, 0, 1)),
        **PLAIN,
    )
    run.run()
    wanted = expected(
        x.transpose(0, 3, 1, 2), regions.T[1::2], images[::-2], (3, 2), **PLAIN
    )
    np.testing.assert_allclose(run.read(out), wanted.transpose(2, 3, 1, 0), 2e-5, 2e-5)


def test_what_does_not_fit_is_refused() -> None:
    x, regions = np.ones((1, 2, 4, 4), np.float32), np.zeros((2, 4), np.float32)
    images = np.zeros(2, np.int64)
    for change in (
        {"samples": -1},
        {"samples": 10**6},
        {"scale": 0.0},
        {"scale": math.nan},
        {"mode": "min"},
    ):
        with pytest.raises(ValueError, match="RoiAlign of float32"):
            align(ISAS[0], x, regions, images, (2, 2), **{**PLAIN, **change})
    with pytest.raises(ValueError, match="RoiAlign of float32"):
        align(ISAS[0], x[:0], regions, images, (2, 2), **PLAIN)
    with pytest.raises(ValueError, match="RoiAlign of float32"):
        align(ISAS[0], x[:, :, :0], regions, images, (2, 2), **PLAIN)
    with pytest.raises(ValueError, match="RoiAlign of float32"):
        align(ISAS[0], x, regions[:, :3], images, (2, 2), **PLAIN)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_no_vector_is_spilled(mode: str) -> None:
    run = Interpreter(AVX512)
    x = run.input(np.zeros((1, 8, 8, 64), np.float32)).transpose((0, 3, 1, 2))
    out = run.output(np.float32, (2, 3, 3, 64)).transpose((0, 3, 1, 2))
    regions, images = np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    options = {**PLAIN, "mode": mode}
    record_roi_align(
        run.recorder, x, run.input(regions), run.input(images), out, **options
    )
    for command in run.recorder.commands:
        lines = assembly(command.kernel, AVX512).splitlines()
        assert not [line for line in lines if "zmm" in line and "rsp)" in line]
