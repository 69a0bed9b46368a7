"""External data: what is read, and everything that is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxplug.errors import ExternalDataError, InvalidModel
from onnxplug.graph.load import load_model

CONTENT = np.arange(6, dtype=np.float32)


def model_with(dtype: int = TensorProto.FLOAT, **entries: str) -> onnx.ModelProto:
    """A model whose weight ``w`` of shape [6] has *entries* as its external data."""
    weight = TensorProto(name="w", dims=[6], data_type=dtype)
    weight.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", dtype, [6])],
        [weight],
    )
    return helper.make_model(graph)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(b"12345678" + CONTENT.tobytes() + b"tail")
    (tmp_path / "secret.bin").write_bytes(bytes(100))
    return folder


def save(folder: Path, **entries: str) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model_with(**entries).SerializeToString())
    return path


def content(path: Path) -> np.ndarray:
    weight = load_model(path).graph.weight("w")
    assert weight is not None
    return weight.array


# read


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "8", "length": "24"},
        {"offset": "8"},
        {"offset": "8", "length": "24", "checksum": "not looked at", "more": "neither"},
    ],
)
def test_data_is_found_beside_the_model(folder: Path, entries: dict[str, str]) -> None:
    assert np.array_equal(content(save(folder, location="w.bin", **entries)), CONTENT)


def test_the_content_is_a_read_only_view_of_the_file(folder: Path) -> None:
    array = content(save(folder, location="w.bin", offset="8", length="24"))
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert array.flags.aligned


def test_data_may_lie_in_a_folder_below(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "0").write_bytes(CONTENT.tobytes())
    assert np.array_equal(content(save(folder, location="parts/0")), CONTENT)
    assert np.array_equal(content(save(folder, location="./parts/0")), CONTENT)


def test_a_relative_path_of_the_model_is_enough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, location="w.bin", offset="8")
    monkeypatch.chdir(folder)
    assert np.array_equal(content(Path("m.onnx")), CONTENT)


def test_what_onnx_saves_is_read(tmp_path: Path) -> None:
    weights = {f"w{i}": np.random.default_rng(i).random(500) for i in range(4)}
    graph = helper.make_graph(
        [helper.make_node("Sum", list(weights), ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [500])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph), path, save_as_external_data=True, location="all.data"
    )
    loaded = load_model(path).graph
    for name, array in weights.items():
        assert np.array_equal(loaded.constant(name), array)


def test_each_file_is_opened_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    really_open = os.open
    model = model_with(location="w.bin", offset="8")
    for index in range(3):
        copy = model.graph.initializer.add()
        copy.CopyFrom(model.graph.initializer[0])
        copy.name = f"w{index}"
        copy.external_data[0].value = "./" * index + "w.bin"
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *a, **more: opened.append(path) or really_open(path, *a, **more),
    )
    load_model(model, external_data_folder=folder)
    assert opened.count("w.bin") == 1


def test_an_empty_tensor_may_be_at_the_end_of_its_file(folder: Path) -> None:
    (folder / "empty").write_bytes(b"")
    model = model_with(location="empty", offset="0", length="0")
    model.graph.initializer[0].dims[0] = 0
    array = load_model(model, external_data_folder=folder).graph.constant("w")
    assert array is not None and array.shape == (0,)


def test_attributes_may_be_external_too(folder: Path) -> None:
    model = model_with(location="w.bin", offset="8")
    weight = model.graph.initializer.pop()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    loaded = load_model(model, external_data_folder=folder)
    assert np.array_equal(loaded.graph.nodes[0].attributes["value"], CONTENT)


# a model from memory


def test_a_model_from_memory_needs_the_folder(folder: Path) -> None:
    model = model_with(location="w.bin", offset="8")
    with pytest.raises(ExternalDataError, match="external_data_folder"):
        load_model(model.SerializeToString())
    loaded = load_model(model.SerializeToString(), external_data_folder=folder)
    assert np.array_equal(loaded.graph.constant("w"), CONTENT)


def test_the_folder_outranks_that_of_the_path(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "w.bin").write_bytes(CONTENT.tobytes()[::-1])
    path = save(folder, location="w.bin", length="24")
    loaded = load_model(path, external_data_folder=other)
    assert loaded.graph.constant("w").tobytes() == CONTENT.tobytes()[::-1]


# refused


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "parts/../../secret.bin",
        "..\\secret.bin",
        "/etc/passwd",
        "C:\\secret.bin",
        "C:secret.bin",
        "\\\\server\\share\\secret.bin",
        "\\secret.bin",
    ],
)
def test_paths_that_leave_the_folder_are_refused(folder: Path, location: str) -> None:
    with pytest.raises(ExternalDataError, match="within the model's folder"):
        load_model(save(folder, location=location))


def test_an_absolute_path_into_the_folder_is_refused_too(folder: Path) -> None:
    with pytest.raises(ExternalDataError, match="within the model's folder"):
        load_model(save(folder, location=str(folder / "w.bin")))


@pytest.mark.parametrize("location", ["", "a\0b"])
def test_a_location_that_is_no_path_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(ExternalDataError, match="not a path"):
        load_model(save(folder, location=location))


def test_a_missing_location_is_refused(folder: Path) -> None:
    with pytest.raises(ExternalDataError, match="not a path"):
        load_model(save(folder, offset="8"))


def test_links_that_leave_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ExternalDataError, match=r"links to .*outside"):
        load_model(save(folder, location="link"))


def test_links_to_folders_that_leave_the_folder_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "up").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ExternalDataError, match=r"links to .*outside"):
        load_model(save(folder, location="up/secret.bin"))


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    (folder / "link").symlink_to("w.bin")
    assert np.array_equal(content(save(folder, location="link", offset="8")), CONTENT)


def test_a_loop_of_links_is_refused(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    with pytest.raises(ExternalDataError):
        load_model(save(folder, location="loop"))


def test_a_cache_that_links_to_model_and_data_is_read(tmp_path: Path) -> None:
    """As Hugging Face's: ``snapshots/<revision>`` links into ``blobs``."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "aa").write_bytes(model_with(location="w.bin").SerializeToString())
    (blobs / "bb").write_bytes(CONTENT.tobytes())
    (snapshot / "m.onnx").symlink_to("../../blobs/aa")
    (snapshot / "w.bin").symlink_to("../../blobs/bb")
    assert np.array_equal(content(snapshot / "m.onnx"), CONTENT)


def test_a_missing_file_is_refused(folder: Path) -> None:
    with pytest.raises(ExternalDataError, match=r"no file .*gone\.bin"):
        load_model(save(folder, location="gone.bin"))


def test_a_folder_is_refused(folder: Path) -> None:
    (folder / "sub").mkdir()
    with pytest.raises(ExternalDataError, match="cannot be read: Is a directory"):
        load_model(save(folder, location="sub"))
    with pytest.raises(ExternalDataError, match="which is the model's folder"):
        load_model(save(folder, location="."))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting_for_it(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(ExternalDataError, match="it is a pipe; expected a regular"):
        load_model(save(folder, location="pipe"))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "16", "length": "24"},
        {"offset": "36", "length": "24"},
        {"offset": "1000000", "length": "24"},
        {"offset": "9223372036854775807"},
    ],
)
def test_ranges_beyond_the_file_are_refused(
    folder: Path, entries: dict[str, str]
) -> None:
    with pytest.raises(ExternalDataError, match="has only 36 bytes"):
        load_model(save(folder, location="w.bin", **entries))


@pytest.mark.parametrize("length", ["0", "23", "25", "28", "18446744073709551"])
def test_a_length_that_does_not_fit_the_shape_is_refused(
    folder: Path, length: str
) -> None:
    with pytest.raises(ExternalDataError, match=f"has {length} bytes, .* need 24"):
        load_model(save(folder, location="w.bin", length=length))


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize(
    "number", ["-1", "-24", "+8", " 8", "8.0", "0x8", "1_0", "٨", "eight", "9" * 400]
)
def test_numbers_that_are_none_are_refused(folder: Path, key: str, number: str) -> None:
    with pytest.raises(ExternalDataError, match="expected a number of bytes"):
        load_model(save(folder, location="w.bin", **{key: number}))


def test_strings_are_refused(folder: Path) -> None:
    model = model_with(TensorProto.STRING, location="w.bin")
    with pytest.raises(InvalidModel, match="strings in external data"):
        load_model(model, external_data_folder=folder)


def test_the_error_names_the_model_and_the_tensor(folder: Path) -> None:
    path = save(folder, location="gone.bin")
    with pytest.raises(ExternalDataError) as raised:
        load_model(path)
    assert str(path) in str(raised.value)
    assert "'w'" in str(raised.value)
    assert isinstance(raised.value.__cause__, ExternalDataError)
