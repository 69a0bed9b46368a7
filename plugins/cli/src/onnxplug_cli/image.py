"""Pictures as model inputs: size, channels, scale.

A picture becomes ``pixel * scale`` with pixels from 0 to 255 (255 - pixel when
inverted), resized to the model's size without keeping its proportions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

SUFFIXES: Final = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"}
)
"""File names that end so are taken for pictures."""

_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The pictures that an input takes.

    Attributes:
        channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        height, width: in pixels; ``None`` when any will do.
        channels_last: NHWC rather than NCHW.
    """

    channels: int
    height: int | None
    width: int | None
    channels_last: bool

    @classmethod
    def of(cls, name: str, shape: Sequence[int | str | None] | None) -> Layout:
        """The layout of an input of *shape*, whose channels are 1, 3 or 4.

        Raises:
            UsageError: pictures do not fit the input.
        """
        if shape is not None and len(shape) == 4:
            sizes = [size if isinstance(size, int) else None for size in shape]
            for position, rest in ((1, sizes[2:]), (3, sizes[1:3])):
                channels = sizes[position]
                if channels in _MODES:
                    return cls(channels, rest[0], rest[1], position == 3)
        from onnxplug_cli.text import shape_text

        raise UsageError(
            f"input {name!r} is {shape_text(shape)}, which does not take a picture: "
            "that needs [N, C, H, W] or [N, H, W, C] with C of 1, 3 or 4"
        )


@dataclass(frozen=True, slots=True)
class Scaling:
    """What becomes of a pixel from 0 to 255.

    Attributes:
        scale: the factor; model metadata ``input_scale``, by default 1/255.
        invert: take 255 - pixel first; model metadata ``input_invert``, by default no.
    """

    scale: float
    invert: bool

    @classmethod
    def of(
        cls, metadata: Mapping[str, str], scale: float | None, invert: bool | None
    ) -> Scaling:
        """*scale* and *invert* where given, else what the model's *metadata* say.

        Raises:
            CommandFailed: the metadata are not a number, or not true or false.
        """
        if scale is None and "input_scale" in metadata:
            scale = _parse(metadata, "input_scale", parse_factor, "a number")
        if invert is None and "input_invert" in metadata:
            invert = _parse(metadata, "input_invert", _parse_flag, "true or false")
        return cls(1 / 255 if scale is None else scale, bool(invert))


def parse_factor(text: str) -> float:
    """A number, which may be written as a fraction: ``1/255``."""
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator or 1)
    except ZeroDivisionError:
        raise ValueError(f"{text} divides by zero") from None


def _parse_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _parse(metadata: Mapping[str, str], key: str, parse: Any, what: str) -> Any:
    try:
        return parse(metadata[key])
    except (ValueError, KeyError):
        raise CommandFailed(
            f"the model's metadata say {key} = {metadata[key]!r}, "
            f"which is not {what}; say it yourself, with --{key.split('_')[1]}"
        ) from None


def read_picture(
    path: Path, layout: Layout, scaling: Scaling, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], str]:
    """A batch of one picture, and the picture in words: ``160×160, grey``.

    Raises:
        CommandFailed: *path* is no picture, or a damaged one.
        OSError: it is not there, or no regular file.
    """
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    from onnxplug.authoring.files import opened

    damaged = (OSError, ValueError, SyntaxError, OverflowError, MemoryError)
    with opened(path) as file:
        try:
            with Image.open(file) as stored:
                picture, words = _fitted(stored, layout)
        except UnidentifiedImageError as error:  # whose text names the open file
            raise CommandFailed(
                f"cannot read {escape(path)}: it begins as no picture that pillow knows"
            ) from error
        # each of pillow's readers raises errors of its own choice
        except (*damaged, Image.DecompressionBombError) as error:
            raise CommandFailed(f"cannot read {escape(path)}: {error}") from error
    pixels = np.asarray(picture, np.float64)
    if scaling.invert:
        pixels = 255 - pixels
    scaled = (pixels * scaling.scale).astype(dtype)
    scaled = scaled.reshape(*scaled.shape[:2], layout.channels)
    if not layout.channels_last:
        scaled = scaled.transpose(2, 0, 1)
    return np.ascontiguousarray(scaled[None]), words


def _fitted(stored: Image.Image, layout: Layout) -> tuple[Image.Image, str]:
    """A picture of *layout*, and the one it is made of in words."""
    import numpy as np
    from PIL import Image, ImageOps

    colours = "grey" if stored.mode == "L" else stored.mode
    words = f"{stored.width}×{stored.height}, {colours}"
    # phones store pictures lying on their side, with a note to turn them
    picture = ImageOps.exif_transpose(stored)
    if picture.mode.startswith("I"):  # 16 bits, which pillow would clip to 8
        picture = Image.fromarray((np.asarray(picture) // 256).astype(np.uint8))
    if picture.has_transparency_data and layout.channels != 4:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    picture = picture.convert(_MODES[layout.channels])
    size = (layout.width or picture.width, layout.height or picture.height)
    return picture.resize(size, Image.Resampling.BILINEAR), words


def read_labels(path: str | None, metadata: Mapping[str, str]) -> list[str]:
    """Names of classes: a file's lines or JSON list, or the model's; may be empty.

    Raises:
        CommandFailed: the labels are not readable.
    """
    if path is None:
        text, source = metadata.get("labels", ""), "the model's metadata"
    else:
        text, source = _read_text(Path(path)), path
    if not text.lstrip().startswith("["):
        return text.splitlines()
    try:
        return [str(label) for label in json.loads(text)]
    except ValueError as error:
        raise CommandFailed(
            f"the labels of {escape(source)} are not JSON: {error}"
        ) from error


def _read_text(path: Path) -> str:
    from onnxplug.authoring.files import read_file

    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{escape(path)} is not text in UTF-8: {error}") from error
