"""Pictures as model inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onnxplug_cli.failure import CommandFailed, UsageError
from onnxplug_cli.image import (
    Layout,
    Scaling,
    parse_factor,
    read_labels,
    read_picture,
)

PIXELS = Scaling(scale=1, invert=False)
FLOAT32 = np.dtype("float32")


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ([1, 3, 224, 200], Layout(3, 224, 200, False)),
        (["N", 1, 8, 8], Layout(1, 8, 8, False)),
        ([None, 224, 200, 3], Layout(3, 224, 200, True)),
        (["N", "H", "W", 4], Layout(4, None, None, True)),
        (["N", 3, "H", "W"], Layout(3, None, None, False)),
    ],
)
def test_layouts_are_told_by_the_place_of_the_channels(shape, layout) -> None:
    assert Layout.of("x", shape) == layout


@pytest.mark.parametrize("shape", [None, [3, 8, 8], [1, 8, 8, 8], [1, "C", 8, 8]])
def test_an_input_that_takes_no_picture_is_refused(shape) -> None:
    with pytest.raises(UsageError, match="does not take a picture"):
        Layout.of("x", shape)


def save(folder: Path, pixels: np.ndarray, **more) -> Path:
    path = folder / "picture.png"
    Image.fromarray(pixels).save(path, **more)
    return path


def test_a_picture_becomes_planes_of_its_colours(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[..., 0], pixels[0, 0] = 200, (1, 2, 3)
    layout = Layout(3, None, None, channels_last=False)
    array, words = read_picture(save(tmp_path, pixels), layout, PIXELS, FLOAT32)
    assert words == "4×2, RGB"
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array[0], pixels.transpose(2, 0, 1))


def test_channels_may_come_last(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    layout = Layout(3, None, None, channels_last=True)
    array, _ = read_picture(save(tmp_path, pixels), layout, PIXELS, FLOAT32)
    np.testing.assert_array_equal(array[0], pixels)


def test_a_picture_is_resized_and_greyed(tmp_path: Path) -> None:
    pixels = np.full((30, 50, 3), 90, np.uint8)
    layout = Layout(1, 8, 6, channels_last=False)
    array, _ = read_picture(save(tmp_path, pixels), layout, PIXELS, FLOAT32)
    np.testing.assert_array_equal(array, np.full((1, 1, 8, 6), 90, np.float32))


def test_pixels_are_inverted_before_they_are_scaled(tmp_path: Path) -> None:
    pixels = np.array([[0, 255], [55, 155]], np.uint8)
    layout, scaling = Layout(1, 2, 2, False), Scaling(scale=0.5, invert=True)
    array, _ = read_picture(save(tmp_path, pixels), layout, scaling, FLOAT32)
    np.testing.assert_array_equal(array[0, 0], [[127.5, 0], [100, 50]])


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (10, 20, 30, 255)
    layout = Layout(3, 2, 2, channels_last=True)
    array, _ = read_picture(save(tmp_path, pixels), layout, PIXELS, FLOAT32)
    assert array[0].tolist() == [[[10, 20, 30], [255] * 3], [[255] * 3, [255] * 3]]


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    pixels = np.array([[0, 65535], [256, 32768]], np.uint16)
    layout = Layout(1, 2, 2, channels_last=False)
    array, _ = read_picture(save(tmp_path, pixels), layout, PIXELS, FLOAT32)
    assert array[0, 0].tolist() == [[0, 255], [1, 128]]


def test_a_picture_that_lies_on_its_side_is_turned(tmp_path: Path) -> None:
    pixels = np.array([[10, 20]], np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned clockwise
    path = save(tmp_path, pixels, exif=exif)
    layout = Layout(1, None, None, channels_last=False)
    array, _ = read_picture(path, layout, PIXELS, FLOAT32)
    assert array[0, 0].tolist() == [[10], [20]]


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("1/255", 1 / 255), ("1e-3", 1e-3)]
)
def test_factors_may_be_fractions(text: str, value: float) -> None:
    assert parse_factor(text) == value


@pytest.mark.parametrize("text", ["", "x", "1/0", "1/2/3"])
def test_other_factors_are_errors(text: str) -> None:
    with pytest.raises(ValueError):
        parse_factor(text)


def test_the_command_line_outranks_the_metadata() -> None:
    metadata = {"input_scale": "2", "input_invert": "true"}
    assert Scaling.of({}, None, None) == Scaling(1 / 255, False)
    assert Scaling.of(metadata, None, None) == Scaling(2, True)
    assert Scaling.of(metadata, 1.0, False) == Scaling(1, False)


@pytest.mark.parametrize(
    "metadata", [{"input_scale": "much"}, {"input_invert": "perhaps"}]
)
def test_metadata_that_make_no_sense_are_errors_with_a_remedy(metadata) -> None:
    with pytest.raises(CommandFailed, match="say it yourself, with --"):
        Scaling.of(metadata, None, None)


def test_labels_are_lines_or_a_list(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("cat\ndog\n", encoding="utf-8")
    assert read_labels(str(path), {"labels": '["x"]'}) == ["cat", "dog"]
    path.write_text(json.dumps(["Käse", "dog"]), encoding="utf-8")
    assert read_labels(str(path), {}) == ["Käse", "dog"]
    assert read_labels(None, {"labels": '["x"]'}) == ["x"]
    assert read_labels(None, {}) == []


def test_labels_that_are_not_json_are_an_error() -> None:
    with pytest.raises(CommandFailed, match="the model's metadata are not JSON"):
        read_labels(None, {"labels": "[cat"})


def test_labels_that_are_not_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(CommandFailed, match="is not text in UTF-8"):
        read_labels(str(path), {})
