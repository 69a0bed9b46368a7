"""Decoding of image files."""

from __future__ import annotations

import io
from typing import Any, Final

from onnxplug.ep import raise_interruption
from onnxplug_kernels.registry import operator

_CHANNELS: Final = {"RGB": 3, "BGR": 3, "Grayscale": 1}


@operator("ImageDecoder", since=20, host_only=True)
def image_decoder(xp: Any, encoded_stream: Any, *, pixel_format: str = "RGB") -> Any:
    """The pixels as (height, width, channels); no pixels if decoding fails.

    The orientation that a file's EXIF data ask for is not applied.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "ImageDecoder needs Pillow, which is not installed; "
            'install it with: pip install "onnxplug-kernels[image]"'
        ) from error
    if pixel_format not in _CHANNELS:
        raise ValueError(
            f"ImageDecoder: pixel_format is {pixel_format!r}, "
            f"not one of {', '.join(map(repr, _CHANNELS))}"
        )
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = _pixels(xp, image, "L" if pixel_format == "Grayscale" else "RGB")
    # ONNX asks for an empty result whatever the reason, and Pillow's decoders
    # raise many kinds of exceptions on damaged files
    except Exception as error:  # noqa: BLE001
        raise_interruption(error)
        return xp.zeros((0, 0, _CHANNELS[pixel_format]), dtype=xp.uint8)
    if pixel_format == "BGR":
        pixels = pixels[:, :, ::-1]
    return xp.ascontiguousarray(pixels)


def _pixels(xp: Any, image: Any, mode: str) -> Any:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit gray to 8 bits instead of scaling it
        from PIL import Image

        image = Image.fromarray((xp.asarray(image) >> 8).astype(xp.uint8))
    pixels = xp.asarray(image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)
