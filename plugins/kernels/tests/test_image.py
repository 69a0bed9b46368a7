"""Image decoding; the images are made by Pillow."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pytest

from .node_oracles import run

Image = pytest.importorskip("PIL.Image")

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14


def encoded(pixels: Any, kind: str, **options: Any) -> Any:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_formats_without_loss(kind: str) -> None:
    stream = encoded(PIXELS, kind)
    result = run("ImageDecoder", stream)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, PIXELS)
    reverse = run("ImageDecoder", stream, pixel_format="BGR")
    np.testing.assert_array_equal(reverse, PIXELS[..., ::-1])
    gray = run("ImageDecoder", stream, pixel_format="Grayscale")
    luma = PIXELS.astype(float) @ [0.299, 0.587, 0.114]
    assert gray.shape == (2, 3, 1)
    assert abs(gray[..., 0] - luma).max() < 1


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_formats_with_loss(kind: str) -> None:
    smooth = np.linspace(0, 200, 32 * 32).astype(np.uint8).reshape(32, 32)
    pixels = np.stack([smooth] * 3, axis=2)
    result = run("ImageDecoder", encoded(pixels, kind, quality=95))
    assert abs(result.astype(int) - pixels).max() < 12


def test_other_modes_become_three_channels() -> None:
    gray = PIXELS[..., 0]
    expected = np.stack([gray] * 3, axis=2)
    alpha = np.concatenate([PIXELS, PIXELS[..., :1]], axis=2)
    np.testing.assert_array_equal(run("ImageDecoder", encoded(gray, "PNG")), expected)
    np.testing.assert_array_equal(run("ImageDecoder", encoded(alpha, "PNG")), PIXELS)


def test_sixteen_bits_are_scaled_to_eight() -> None:
    deep = PIXELS[..., 0].astype(np.uint16) << 8 | 255
    result = run("ImageDecoder", encoded(deep, "PNG"), pixel_format="Grayscale")
    np.testing.assert_array_equal(result[..., 0], PIXELS[..., 0])


def test_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = encoded(PIXELS, "PNG", exif=exif)
    np.testing.assert_array_equal(run("ImageDecoder", stream), PIXELS)


def test_damaged_streams_have_no_pixels() -> None:
    for stream in (encoded(PIXELS, "PNG")[:50], np.zeros(9, np.uint8)):
        result = run("ImageDecoder", stream, pixel_format="Grayscale")
        assert (result.shape, result.dtype) == ((0, 0, 1), np.uint8)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'CMYK'"):
        run("ImageDecoder", encoded(PIXELS, "PNG"), pixel_format="CMYK")


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"onnxplug-kernels\[image\]"):
        run("ImageDecoder", np.zeros(1, np.uint8))
