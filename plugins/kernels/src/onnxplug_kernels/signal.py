"""Fourier transforms, windows, and the mel scale.

Which results an infinity or NaN in a signal reaches depends on the order of the
algorithm's sums, here those of NumPy's fast transform.
"""

from __future__ import annotations

import math
from typing import Any

from onnxplug.authoring.bounds import at_least, normal_axis, sizes
from onnxplug_kernels.arrays import element_dtype
from onnxplug_kernels.registry import PORTABLE, operator


@operator("DFT", since=20)
def dft(
    xp: Any,
    x: Any,
    dft_length: Any = None,
    axis: Any = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Any:
    along = -2 if axis is None else int(xp.item(axis))
    return _dft(xp, x, dft_length, along, inverse=inverse, onesided=onesided)


@operator("DFT", since=17, until=19)
def dft_17(
    xp: Any,
    x: Any,
    dft_length: Any = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Any:
    return _dft(xp, x, dft_length, axis, inverse=inverse, onesided=onesided)


def _dft(
    xp: Any, x: Any, dft_length: Any, axis: int, *, inverse: int, onesided: int
) -> Any:
    along = normal_axis(axis, x.ndim)
    if along == x.ndim - 1:
        raise ValueError(
            f"DFT: axis is {axis}, but an input of rank {x.ndim} has signal axes "
            f"0 to {x.ndim - 2}; the last one holds real and imaginary parts"
        )
    length = None if dft_length is None else int(xp.item(dft_length))
    if length is not None:
        at_least(1, [length], "dft_length")
        shape = (*x.shape[:along], length, *x.shape[along + 1 : -1], 2)
        sizes(shape, itemsize=16, what="the shape of the transform")
    signal = _signal(xp, xp.astype(x, xp.computing_dtype(x.dtype)))
    if inverse and onesided:
        values = xp.library.fft.irfft(signal, n=length, axis=along)
        return xp.astype(values[..., None], x.dtype)
    if inverse:
        return _parts(xp, xp.library.fft.ifft(signal, n=length, axis=along), x.dtype)
    spectrum = _spectrum(xp, signal, length, along, onesided)
    return _parts(xp, spectrum, x.dtype)


@operator("STFT", since=17, portable=PORTABLE)
def stft(
    xp: Any,
    signal: Any,
    frame_step: Any,
    window: Any = None,
    frame_length: Any = None,
    *,
    onesided: int = 1,
) -> Any:
    if frame_length is not None:
        length = int(xp.item(frame_length))
    else:
        length = signal.shape[1] if window is None else window.shape[0]
    at_least(1, [length], "frame_length")
    if window is not None and window.shape != (length,):
        raise ValueError(
            f"STFT: the window has shape {window.shape}, "
            f"but frames of length {length} take one of shape {(length,)}"
        )
    dtype = xp.computing_dtype(signal.dtype)
    values = xp.astype(signal, dtype)
    values = _signal(xp, values) if signal.ndim == 3 else values
    if signal.ndim not in (2, 3):
        raise ValueError(
            f"STFT of a signal of shape {signal.shape}; expected [batch, length], or "
            f"[batch, length, 1 or 2]"
        )
    (step,) = at_least(1, [int(xp.item(frame_step))], "frame_step")
    if length > signal.shape[1]:
        raise ValueError(
            f"STFT: frames of length {length} do not fit into a signal of "
            f"{signal.shape[1]}"
        )
    count = (signal.shape[1] - length) // step + 1
    sizes((signal.shape[0], count, length), itemsize=16, what="the shape of all frames")
    positions = xp.arange(count)[:, None] * step + xp.arange(length)
    frames = xp.take(values, positions, axis=1)
    if window is not None:
        frames = frames * xp.astype(window, dtype)
    return _parts(xp, _spectrum(xp, frames, None, -1, onesided), signal.dtype)


def _signal(xp: Any, x: Any) -> Any:
    """The real or complex numbers whose parts are along the last axis."""
    match x.shape[-1]:
        case 1:
            return x[..., 0]
        case 2:
            return xp.complex_of(x[..., 0], x[..., 1])
    raise ValueError(
        f"the last axis holds real and imaginary parts, so its size is 1 or 2, "
        f"not {x.shape[-1]}"
    )


def _parts(xp: Any, values: Any, dtype: Any) -> Any:
    return xp.astype(xp.stack((xp.real(values), xp.imag(values)), axis=-1), dtype)


def _spectrum(
    xp: Any, signal: Any, length: int | None, axis: int, onesided: int
) -> Any:
    if not onesided:
        return xp.spectrum(signal, length, axis)
    if xp.kind(signal.dtype) != "c":
        return xp.library.fft.rfft(signal, n=length, axis=axis)
    spectrum = xp.moveaxis(xp.spectrum(signal, length, axis), axis, -1)
    half = spectrum[..., : spectrum.shape[-1] // 2 + 1]
    return xp.moveaxis(half, -1, axis)


@operator("HannWindow", since=17, portable=PORTABLE)
def hann_window(
    xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1
) -> Any:
    return _cosine_window(xp, size, (0.5, 0.5), output_datatype, periodic)


@operator("HammingWindow", since=17, portable=PORTABLE)
def hamming_window(
    xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1
) -> Any:
    # the exact coefficients, of which 0.54 and 0.46 are roundings
    return _cosine_window(xp, size, (25 / 46, 21 / 46), output_datatype, periodic)


@operator("BlackmanWindow", since=17, portable=PORTABLE)
def blackman_window(
    xp: Any, size: Any, *, output_datatype: int = 1, periodic: int = 1
) -> Any:
    return _cosine_window(xp, size, (0.42, 0.5, 0.08), output_datatype, periodic)


def _cosine_window(
    xp: Any,
    size: Any,
    coefficients: tuple[float, ...],
    output_datatype: int,
    periodic: int,
) -> Any:
    """A sum of cosines with alternating signs.

    Source: F. J. Harris, On the use of windows for harmonic analysis with the
    discrete Fourier transform, 1978 (https://ieeexplore.ieee.org/document/1455106).
    """
    length = int(xp.item(size))
    sizes([length], itemsize=8, what="the shape of the window")
    dtype = element_dtype(xp, output_datatype)
    if length == 1 and not periodic:
        # the formula divides by zero; the limit of a symmetric window is its peak
        return xp.ones(1, dtype=dtype)
    period = length if periodic else length - 1
    angles = xp.arange(length, dtype=xp.float64) * (2 * math.pi / max(period, 1))
    window = xp.zeros(length, dtype=xp.float64)
    for order, coefficient in enumerate(coefficients):
        window += (-1) ** order * coefficient * xp.cos(order * angles)
    return xp.astype(window, dtype)


@operator("MelWeightMatrix", since=17, portable=PORTABLE)
def mel_weight_matrix(
    xp: Any,
    num_mel_bins: Any,
    dft_length: Any,
    sample_rate: Any,
    lower_edge_hertz: Any,
    upper_edge_hertz: Any,
    *,
    output_datatype: int = 1,
) -> Any:
    """Triangles over the bins of a one-sided spectrum, evenly apart in mel."""
    bands, length = int(xp.item(num_mel_bins)), int(xp.item(dft_length))
    at_least(1, (bands, length), "num_mel_bins and dft_length")
    sizes((length // 2 + 1, bands), itemsize=8)
    hertz_given = float(xp.item(lower_edge_hertz)), float(xp.item(upper_edge_hertz))
    rate = xp.item(sample_rate)
    if not 0 <= hertz_given[0] <= hertz_given[1] < math.inf or rate <= 0:
        raise ValueError(
            f"MelWeightMatrix from {hertz_given[0]} to {hertz_given[1]} hertz at "
            f"{rate} samples a second: expected positive numbers in order"
        )
    lowest, highest = map(_mel, hertz_given)
    # dividing by the number of edges, not of gaps, is what ONNX's tests expect
    edges = (
        xp.arange(bands + 2, dtype=xp.float64) * ((highest - lowest) / (bands + 2))
        + lowest
    )
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = xp.floor((length + 1) * hertz / rate)
    left, center, right = bins[:-2], bins[1:-1], bins[2:]
    position = xp.arange(length // 2 + 1, dtype=xp.float64)[:, None]
    rising = (position - left) / xp.maximum(center - left, 1)
    falling = (right - position) / xp.maximum(right - center, 1)
    weights = xp.where(position < center, rising, falling)
    inside = (position >= left) & (position < right)
    weights = xp.where(inside, weights, 0)
    # a triangle may be narrower than a bin, and still peaks at one
    weights = xp.where(position == center, 1, weights)
    return xp.astype(weights, element_dtype(xp, output_datatype))


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)
