"""One-sided Fourier transforms of real signals."""

from __future__ import annotations

from typing import Any, Final

from onnxplug_microsoft.kernels import KERNELS

_ALLOWED: Final = {"onesided": (1,), "normalized": (0,)}


@KERNELS.operator("Rfft", since=1, allowed=_ALLOWED)
def rfft(
    xp: Any, x: Any, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
) -> Any:
    """[…, n] to real and imaginary parts […, n // 2 + 1, 2], over the last axes."""
    signal = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    axes = _last_axes(signal_ndim, x.ndim)
    spectrum = xp.library.fft.rfftn(signal, axes=axes)
    return xp.astype(xp.stack((xp.real(spectrum), xp.imag(spectrum)), axis=-1), x.dtype)


@KERNELS.operator("Irfft", since=1, allowed=_ALLOWED)
def irfft(
    xp: Any, x: Any, *, normalized: int = 0, onesided: int = 1, signal_ndim: int
) -> Any:
    """The inverse of Rfft of a signal of even length."""
    if not x.ndim or x.shape[-1] != 2:
        raise ValueError(
            f"Irfft of shape {x.shape}; expected real and imaginary parts in the last "
            f"axis"
        )
    parts = xp.astype(x, xp.computing_dtype(x.dtype), copy=False)
    spectrum = xp.complex_of(parts[..., 0], parts[..., 1])
    axes = _last_axes(signal_ndim, spectrum.ndim)
    return xp.astype(xp.library.fft.irfftn(spectrum, axes=axes), x.dtype)


def _last_axes(count: int, rank: int) -> tuple[int, ...]:
    if not 1 <= count <= rank:
        raise ValueError(f"signal_ndim is {count}; expected from 1 to {rank}")
    return tuple(range(rank - count, rank))
