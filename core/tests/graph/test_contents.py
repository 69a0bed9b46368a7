"""Files that change, or are none, while a model is loaded from them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.authoring import files
from onnxplug.errors import (
    ExternalDataError,
    InvalidModel,
    ModelError,
    ModelForbidden,
    ModelIsFolder,
    ModelNotFound,
    ModelUnreadable,
)
from onnxplug.graph import contents, external, load
from onnxplug.graph import folder as beside
from onnxplug.graph.load import load_model

WEIGHTS = np.arange(1 << 19, dtype=np.float32)  # twice as large as what is mapped

posix = pytest.mark.skipif(os.name != "posix", reason="about files of POSIX")


def model(**external_data: str) -> onnx.ModelProto:
    weight = numpy_helper.from_array(WEIGHTS, "w")
    if external_data:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in external_data.items():
            weight.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(WEIGHTS)])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(WEIGHTS)])
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [x], [y], [weight]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with its weights in it."""
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    return path


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A model with its weights beside it."""
    path = tmp_path / "split.onnx"
    onnx.save(model(location="w.bin"), path)
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    return path


# no regular files


@posix
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/tty", "/dev/null"])
def test_a_device_is_no_model(device: str) -> None:
    with pytest.raises(ModelUnreadable, match="cannot read the model at '/dev/"):
        load_model(device)


@posix
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelUnreadable, match="it is a pipe; expected a regular file"):
        load_model(tmp_path / "pipe")


@posix
def test_a_link_to_a_device_is_one(tmp_path: Path, split: Path) -> None:
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("/dev/zero")
    with pytest.raises(ExternalDataError, match="outside the model's folder"):
        load_model(split)
    with pytest.raises(ModelUnreadable, match="it is a device"):
        load_model(tmp_path / "w.bin")


def test_what_cannot_be_opened_is_told_in_builtin_errors_too(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder") as folder:
        load_model(tmp_path)
    assert type(folder.value) is ModelIsFolder
    with pytest.raises(FileNotFoundError) as missing:
        load_model(tmp_path / "gone")
    assert type(missing.value) is ModelNotFound
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="found 0 graphs in its 0 bytes"):
        load_model(tmp_path / "empty")
    with pytest.raises(OSError, match=r"cannot read the model .* too long") as loop:
        load_model(tmp_path / ("x" * 300))
    assert isinstance(loop.value, ModelError)


def test_a_file_that_may_not_be_read_is_a_permission_error(path, monkeypatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:  # as root may read anything
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(load, "open_regular", refuse)
    with pytest.raises(PermissionError, match="Permission denied") as raised:
        load_model(path)
    assert type(raised.value) is ModelForbidden


@pytest.mark.parametrize("given", ["text", None, 3, [b"bytes"]])
def test_a_file_object_that_gives_no_bytes_is_refused(given: Any) -> None:
    file = io.BytesIO()
    file.read = lambda: given  # type: ignore[method-assign]
    with pytest.raises(InvalidModel, match="expected a path, bytes"):
        load_model(file)


def test_buffers_without_bytes_are_refused() -> None:
    released = memoryview(b"1")
    released.release()
    with pytest.raises(InvalidModel, match="no bytes to be read"):
        load_model(released)
    with pytest.raises(InvalidModel, match="0 bytes"):
        load_model(np.empty((0, 3), np.uint8))


# files that change


def read_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Call *change* once when a file has been opened."""
    really_open = files.open_regular

    def open_it(*arguments: Any, **more: Any) -> tuple[int, os.stat_result]:
        opened = really_open(*arguments, **more)
        monkeypatch.undo()
        change()
        return opened

    monkeypatch.setattr(load, "open_regular", open_it)
    monkeypatch.setattr(beside, "open_regular", open_it)


@posix
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size", [0, 1000, (2 << 20) - 1])
def test_a_file_cut_off_after_it_was_opened_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, size: int
) -> None:
    read_with(monkeypatch, lambda: os.truncate(path, size))
    with pytest.raises(ModelUnreadable, match=r"written to while it was|be mapped"):
        load_model(path, mapped=mapped)


@posix
@pytest.mark.parametrize("mapped", [False, True])
def test_weights_cut_off_while_a_model_is_loaded_are_refused(
    split: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    weights = split.parent / "w.bin"
    # of the model, which is opened first
    read_with(monkeypatch, lambda: os.truncate(weights, 100))
    with pytest.raises(ExternalDataError, match="has only 100 bytes"):
        load_model(split, mapped=mapped)
    weights.write_bytes(WEIGHTS.tobytes())
    really_read = external.ExternalData.read

    def read(*arguments: Any) -> memoryview:
        found = really_read(*arguments)
        os.truncate(weights, 100)
        return found

    monkeypatch.setattr(external.ExternalData, "read", read)
    if mapped:
        with pytest.raises(InvalidModel, match="had 2097152 bytes, and has 100"):
            load_model(split)
    else:
        loaded = load_model(split, mapped=False)
        assert np.array_equal(loaded.graph.constant("w"), WEIGHTS)


@posix
def test_a_file_written_to_in_place_is_refused(path, monkeypatch) -> None:
    def write() -> None:
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"other")
        os.utime(path, ns=(1, 1))

    read_with(monkeypatch, write)
    with pytest.raises(InvalidModel, match="written to while it was loaded"):
        load_model(path)


@posix
@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_another_is_moved_over_stays_as_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    (tmp_path / "other").write_bytes(b"short")
    read_with(monkeypatch, lambda: os.replace(tmp_path / "other", path))
    loaded = load_model(path, mapped=mapped)
    assert np.array_equal(loaded.graph.constant("w"), WEIGHTS)
    assert path.read_bytes() == b"short"


def test_a_file_larger_than_memory_is_refused(path, monkeypatch) -> None:
    def open_it(path: Path) -> tuple[int, os.stat_result]:
        descriptor, status = files.open_regular(path)
        return descriptor, os.stat_result((*status[:6], 1 << 62, *status[7:]))

    monkeypatch.setattr(load, "open_regular", open_it)
    with pytest.raises(ModelUnreadable, match="more than there is memory"):
        load_model(path, mapped=False)
    with pytest.raises(ModelUnreadable, match="cannot be mapped"):
        load_model(path)


@posix
def test_what_was_read_does_not_change_with_its_file(path: Path) -> None:
    loaded = load_model(path, mapped=False)
    os.truncate(path, 0)
    assert np.array_equal(loaded.graph.constant("w"), WEIGHTS)


def test_small_files_are_read_and_large_ones_mapped(
    split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    really_read = contents.read_descriptor

    def note(descriptor: int, status: os.stat_result) -> memoryview:
        read.append(status.st_size)
        return really_read(descriptor, status)

    monkeypatch.setattr(contents, "read_descriptor", note)
    load_model(split)
    assert read == [split.stat().st_size]
    load_model(split, mapped=False)
    assert read[1:] == [split.stat().st_size, WEIGHTS.nbytes]


# links that appear between a look and the opening


@posix
@pytest.mark.parametrize("by_folders", [True, False])
@pytest.mark.parametrize("swapped", ["w.bin", "."])
def test_a_link_put_in_place_of_a_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, by_folders: bool
) -> None:
    """Between the look at the names and the opening, however narrow that is."""
    folder, outside = tmp_path / "model", tmp_path / "outside"
    for each in (folder / "below", outside):
        each.mkdir(parents=True)
        (each / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = folder / "m.onnx"
    onnx.save(model(location="below/w.bin"), path)
    really_resolve = beside.ModelFolder._resolve

    def resolve(*arguments: Any) -> tuple[Path, Path]:
        found = really_resolve(*arguments)
        victim = folder / "below" / swapped
        victim.rename(tmp_path / "away")
        victim.symlink_to(outside / swapped)
        return found

    monkeypatch.setattr(beside.ModelFolder, "_resolve", resolve)
    monkeypatch.setattr(beside, "_BY_FOLDERS", by_folders)
    with pytest.raises(ExternalDataError, match="cannot be read"):
        load_model(path)
    monkeypatch.setattr(beside.ModelFolder, "_resolve", really_resolve)
    (folder / "below" / swapped).unlink()
    (tmp_path / "away").rename(folder / "below" / swapped)
    assert np.array_equal(load_model(path).graph.constant("w"), WEIGHTS)


@pytest.mark.parametrize("by_folders", [True, False])
def test_folders_below_are_searched_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_folders: bool
) -> None:
    if by_folders and not beside._BY_FOLDERS:
        pytest.skip("the system opens nothing relative to a folder")
    monkeypatch.setattr(beside, "_BY_FOLDERS", by_folders)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = tmp_path / "m.onnx"
    onnx.save(model(location="a/b/w.bin"), path)
    assert np.array_equal(load_model(path).graph.constant("w"), WEIGHTS)
    assert set(load_model(path).files) == {
        str(path),
        str((tmp_path / "a/b/w.bin").resolve()),
    }
