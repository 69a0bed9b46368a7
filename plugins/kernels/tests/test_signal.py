"""Signal operators against numpy's FFT, ONNX Runtime and ONNX's reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .node_oracles import onnx_runtime, reference, run

RANDOM = np.random.default_rng(3)


def scalar(value: int) -> Any:
    return np.array(value, dtype=np.int64)


def parts(values: Any) -> Any:
    return np.stack((values.real, values.imag), axis=-1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("length", [None, 4, 5, 9])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -4])
def test_dft(axis: int, length: int | None, dtype: Any) -> None:
    real = RANDOM.standard_normal((5, 6, 7, 1)).astype(dtype)
    both = RANDOM.standard_normal((5, 6, 7, 2)).astype(dtype)
    wide = both.astype(np.float64)
    signal, numbers = real[..., 0].astype(np.float64), wide[..., 0] + 1j * wide[..., 1]
    along = axis if axis >= 0 else axis + 4
    cases: list[tuple[Any, dict[str, Any], Any]] = [
        (real, {}, parts(np.fft.fft(signal, length, along))),
        (both, {}, parts(np.fft.fft(numbers, length, along))),
        (real, {"onesided": 1}, parts(np.fft.rfft(signal, length, along))),
        (both, {"inverse": 1}, parts(np.fft.ifft(numbers, length, along))),
        (
            both,
            {"inverse": 1, "onesided": 1},
            np.fft.irfft(numbers, length, along)[..., None],
        ),
    ]
    size = None if length is None else scalar(length)
    tolerance = 2e-2 if dtype == np.float16 else 1e-5
    for x, attributes, expected in cases:
        result = run("DFT", x, size, scalar(axis), **attributes)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
        older = run("DFT", x, size, axis=axis, version=17, **attributes)
        np.testing.assert_array_equal(older, result)


def test_dft_defaults_to_another_axis_since_20() -> None:
    x = RANDOM.standard_normal((2, 3, 4, 1))
    assert run("DFT", x, onesided=1).shape == (2, 3, 3, 2)
    assert run("DFT", x, onesided=1, version=17).shape == (2, 2, 4, 2)


def test_dft_of_bfloat16() -> None:
    x = np.ones((1, 8, 1), dtype=ml_dtypes.bfloat16)
    result = run("DFT", x)
    assert result.dtype == x.dtype
    assert result[0, :, 0].tolist() == [8, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("axis", [-1, 2, 3, -4])
def test_dft_refuses_an_axis(axis: int) -> None:
    with pytest.raises(ValueError, match=f"axis is {axis}"):
        run("DFT", np.zeros((2, 3, 1)), None, scalar(axis))


def test_dft_refuses_three_parts() -> None:
    with pytest.raises(ValueError, match="not 3"):
        run("DFT", np.zeros((2, 3, 3)))


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("complex_signal", [False, True])
@pytest.mark.parametrize(("window", "length"), [(8, None), (8, 8), (None, 7)])
def test_stft(
    window: int | None, length: int | None, complex_signal: bool, onesided: int
) -> None:
    signal = RANDOM.standard_normal((2, 30, 1 + complex_signal)).astype(np.float32)
    weights: Any = None
    if window is not None:
        weights = np.hanning(window).astype(np.float32)
    frame_length = None if length is None else scalar(length)
    result = run(
        "STFT", signal, scalar(3), weights, frame_length, onesided=onesided, version=17
    )
    size = window or length or 30
    numbers = signal[..., 0] + (1j * signal[..., 1] if complex_signal else 0)
    frames = [
        np.fft.fft(
            numbers[:, start : start + size] * (1 if window is None else weights)
        )
        for start in range(0, 30 - size + 1, 3)
    ]
    expected = parts(np.stack(frames, axis=1))
    if onesided:
        expected = expected[:, :, : size // 2 + 1]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_stft_of_the_whole_signal() -> None:
    signal = RANDOM.standard_normal((1, 10, 1))
    result = run("STFT", signal, scalar(1), version=17)
    expected = parts(np.fft.rfft(signal[:, None, :, 0]))
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_stft_refuses_a_window_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\).*length 5"):
        run("STFT", np.zeros((1, 9, 1)), scalar(1), np.ones(4), scalar(5), version=17)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [2, 5, 64])
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(name: str, size: int, periodic: int) -> None:
    for element_type, dtype in (
        (1, np.float32),
        (11, np.float64),
        (10, np.float16),
        (16, ml_dtypes.bfloat16),
    ):
        result = run(
            name, scalar(size), periodic=periodic, output_datatype=element_type
        )
        assert (result.dtype, result.shape) == (dtype, (size,))
        tolerance = {2: 1e-2, 4: 1e-6, 8: 1e-6}[result.itemsize]
        (expected,) = onnx_runtime(name, scalar(size), periodic=periodic)
        np.testing.assert_allclose(result.astype(float), expected, atol=tolerance)
    integers = run(name, scalar(size), periodic=periodic, output_datatype=2)
    assert integers.dtype == np.uint8
    assert set(integers.tolist()) <= {0, 1}


def test_windows_without_width() -> None:
    assert run("HannWindow", scalar(1), periodic=0).tolist() == [1]
    assert run("HannWindow", scalar(0)).shape == (0,)


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"),
    [(8, 16, 8192, 0, 4096), (40, 512, 16000, 20, 7600), (3, 64, 8000, 300, 3000)],
)
def test_mel_weight_matrix(
    bands: int, length: int, rate: int, low: float, high: float
) -> None:
    inputs = (
        *map(scalar, (bands, length, rate)),
        *(np.array(edge, dtype=np.float32) for edge in (low, high)),
    )
    result = run("MelWeightMatrix", *inputs)
    (expected,) = reference("MelWeightMatrix", *inputs)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-6)
    assert run("MelWeightMatrix", *inputs, output_datatype=11).dtype == np.float64
