"""Where weights are from: the same only for the same bytes, told without reading."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.authoring import files
from onnxplug.compile.load import load
from onnxplug.ep import WeightSource
from onnxplug.graph import Model, Weight
from onnxplug.graph.load import load_model
from onnxplug.options import SessionOptions
from onnxplug.partition import GraphPartition
from onnxplug.session.ort_value import OrtValue

WEIGHTS = np.arange(1 << 19, dtype=np.float32)
SMALL = np.arange(16, dtype=np.float32)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough for their times to tell of what is written next."""
    monkeypatch.setattr(files, "_TICK", 0)


def model(weights: np.ndarray[Any, Any] = WEIGHTS, location: str = "") -> Any:
    """``y = x + w + s``; the weights *w* in another file at byte 64, if it is named."""
    stored = numpy_helper.from_array(weights, "w")
    if location:
        stored.ClearField("raw_data")
        stored.data_location = TensorProto.EXTERNAL
        stored.external_data.add(key="location", value=location)
        stored.external_data.add(key="offset", value="64")
    small = numpy_helper.from_array(SMALL[:1], "s")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(weights)])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(weights)])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["t"]),
        helper.make_node("Add", ["t", "s"], ["y"]),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], [stored, small]))


@pytest.fixture(params=["in the model", "beside it"])
def path(request: pytest.FixtureRequest, tmp_path: Path, settled: None) -> Path:
    """A model's file."""
    path = tmp_path / "m.onnx"
    if request.param == "in the model":
        onnx.save(model(), path)
    else:
        onnx.save(model(location="w.bin"), path)
        (tmp_path / "w.bin").write_bytes(b"\1" * 64 + WEIGHTS.tobytes())
    return path


def found(source: Any, name: str = "w", **given: Any) -> WeightSource | None:
    made = source if isinstance(source, Model) else load_model(source, **given)
    return GraphPartition(made.graph, made.graph.nodes).weight(name)


def key(source: Any, name: str = "w", **given: Any) -> Any:
    """What tells the weight from others, which there has to be."""
    known = found(source, name, **given)
    assert known is not None and hash(known.key) is not None
    return known.key


# files


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_says_where_the_bytes_are(path: Path, mapped: bool) -> None:
    for name, array in (("w", WEIGHTS), ("s", SMALL[:1])):
        known = found(path, name, mapped=mapped)
        assert known is not None and known.path is not None
        with known.path.open("rb") as file:
            file.seek(known.offset)
            assert file.read(known.nbytes) == array.tobytes()
        assert known == found(path, name, mapped=mapped)


def test_a_copy_of_a_file_is_not_what_may_be_written_to(path: Path) -> None:
    """Whoever has files read is not to see what happens to them."""
    mapped, read = (found(path, mapped=mapped) for mapped in (True, False))
    assert mapped is not None and read is not None
    assert mapped.key != read.key and mapped[1:] == read[1:]


def test_weights_in_files_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("it is read")

    made = load_model(path)
    monkeypatch.setattr(Weight, "raw", read)
    monkeypatch.setattr(Weight, "array", property(read))
    monkeypatch.setattr(hashlib, "sha256", read)
    assert found(made) is not None


def test_parts_of_one_file_are_different(path: Path) -> None:
    assert key(path, "w") != key(path, "s")


def test_another_file_is_another_weight(path: Path, tmp_path: Path) -> None:
    copy = tmp_path.with_name(f"{tmp_path.name} copy")
    shutil.copytree(tmp_path, copy)
    assert key(path) != key(copy / "m.onnx")


def test_a_link_leads_to_the_same(path: Path, tmp_path: Path) -> None:
    (tmp_path / "l.onnx").symlink_to(path)
    assert key(tmp_path / "l.onnx") == key(path)


def holder(path: Path) -> Path:
    """The file that the weights are in."""
    known = found(path)
    assert known is not None and known.path is not None
    return known.path


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps mapped files")
def test_what_is_written_later_is_another_weight(path: Path) -> None:
    keys = {key(path)}
    file = holder(path)
    content = bytearray(file.read_bytes())
    status = file.stat()
    for turn in range(3):
        time.sleep(0.02)  # more than a tick of the clock that times are from
        content[len(content) // 2] ^= 1 + turn  # among the weights
        file.write_bytes(content)
        # as those do who unpack or copy with times
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        keys.add(key(path))
    assert len(keys) == 4


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps mapped files")
@pytest.mark.parametrize("moved", [True, False])
def test_a_file_that_took_the_place_is_another_weight(path: Path, moved: bool) -> None:
    """Also where its inode, size and time of change are the old one's."""
    before = key(path, mapped=False)
    file = holder(path)
    status, content = file.stat(), file.read_bytes()
    gc.collect()
    time.sleep(0.02)
    if moved:
        other = file.with_name("new")
        other.write_bytes(content)
        os.replace(other, file)
    else:
        file.unlink()
        file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert key(path, mapped=False) != before


def test_a_file_that_was_just_written_is_told_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time may be the same after it is written once more."""

    def after(seconds: float, name: str) -> WeightSource:
        path = tmp_path / name
        opened = path.stat().st_ctime_ns + int(seconds * 1e9)
        monkeypatch.setattr(time, "time_ns", lambda: opened)
        known = found(path)
        assert known is not None and known.path == path
        return known

    for name, content in (("a", WEIGHTS), ("b", WEIGHTS), ("c", WEIGHTS + 1)):
        onnx.save(model(content), tmp_path / name)
        os.utime(tmp_path / name, ns=(0, 1_500_000_000))
        known = after(0.09, name)
        data = (tmp_path / name).read_bytes()
        assert data[known.offset : known.offset + known.nbytes] == content.tobytes()
        assert found(tmp_path / name, "s") is None  # too small for a digest
    one, other = ([after(s, name).key for name in "abc"] for s in (0.09, 0.11))
    assert one[0] == one[1] != one[2]
    assert len({*one, *other}) == 5
    # whole seconds are of a clock that ticks slowly
    for name in "ab":
        os.utime(tmp_path / name, (10**9, 10**9))
    assert after(1.9, "a").key == after(1.9, "b").key
    assert after(2.1, "a").key != after(2.1, "b").key


# memory


def test_bytes_are_known_by_identity() -> None:
    data = model().SerializeToString()
    first, second = load_model(data), load_model(data)
    assert key(first) == key(second) != key(first, "s")
    known = found(first)
    assert known is not None
    assert (known.path, known.offset, known.nbytes) == (None, 0, WEIGHTS.nbytes)
    assert key(load_model(bytes(bytearray(data)))) != key(first)
    assert key(load_model(memoryview(data)[:])) == key(first)


def test_the_identity_of_bytes_is_not_used_again() -> None:
    seen: set[Any] = set()
    places: set[int] = set()
    content = model().SerializeToString()
    for _ in range(20):
        data = bytes(bytearray(content))
        places.add(id(data))
        seen.add(key(load_model(data)))
        del data
        gc.collect()
    assert len(seen) == 20
    assert len(places) < 20  # the interpreter did use addresses again


def test_what_others_may_write_to_is_told_by_its_bytes() -> None:
    data = bytearray(model().SerializeToString())
    view = memoryview(data).toreadonly()
    before = key(load_model(view))
    assert before == key(load_model(view))
    place = bytes(data).index(WEIGHTS[1000:1010].tobytes())
    data[place] ^= 1
    assert key(load_model(view)) != before


def test_external_files_in_memory() -> None:
    content = b"\1" * 64 + WEIGHTS.tobytes()
    proto = model(location="w.bin").SerializeToString()

    def of(data: Any) -> Any:
        return key(load_model(proto, external_files={"w.bin": memoryview(data)}))

    assert of(content) == of(content)
    assert of(content) != of(bytes(bytearray(content)))
    assert of(bytearray(content)) == of(bytearray(content))


def replaced(path: Path, **arrays: np.ndarray[Any, Any]) -> Model:
    options = SessionOptions()
    for name, array in arrays.items():
        options.add_initializer(name, OrtValue.ortvalue_from_numpy(array))
    loaded, _ = load(path, options, ())
    return loaded


def test_replaced_initializers_are_told_by_their_bytes(path: Path) -> None:
    original = key(path)
    other = WEIGHTS + 1
    assert key(replaced(path, w=other)) == key(replaced(path, w=other.copy()))
    assert key(replaced(path, w=other)) != original
    assert key(replaced(path, s=SMALL[1:2])) == original
    assert found(replaced(path, s=SMALL[1:2]), "s") is None  # too small to be told
    before = key(replaced(path, w=other))
    other[5] = -1
    assert key(replaced(path, w=other)) != before


# what is made


def test_what_the_host_computed_is_told_by_its_bytes() -> None:
    one, same = (Weight.from_array(WEIGHTS.copy()) for _ in range(2))
    other = Weight.from_array(WEIGHTS[::-1].copy())
    assert one.source() == same.source() != other.source()
    assert Weight.from_array(SMALL.copy()).source() is None


def test_no_constant_is_from_nowhere() -> None:
    made = load_model(model())
    for name in ("x", "t", "nothing"):
        assert found(made, name) is None
    texts = Weight.from_array(np.array(["a" * 100_000], object))
    assert texts.source() is None
    assert Weight.from_array(np.empty((0, 3), np.float32)).source() is None


# large copies


def test_large_copies_are_shared(settled: None, tmp_path: Path) -> None:
    """Weights in a model's file start at any byte, and arrays do not."""
    for turn in range(8):  # whatever else is in the file
        proto = model()
        proto.producer_name = "p" * turn
        onnx.save(proto, tmp_path / f"{turn}.onnx")
        first, second = (load_model(tmp_path / f"{turn}.onnx") for _ in range(2))
        one, other = (made.graph.constants["w"].array for made in (first, second))
        assert not one.flags.writeable
        np.testing.assert_array_equal(other, WEIGHTS)
        if one.base is None:
            assert one is other
            break
    else:
        raise AssertionError("all are aligned")


def test_small_arrays_that_others_are_computed_from_are_told_by_their_content() -> None:
    def computed(small: np.ndarray[Any, Any]) -> Any:
        of = Weight.from_array(small.copy())
        assert of.source() is None
        weight = Weight.computed(
            of.dtype, (1 << 16,), lambda: np.resize(small, 1 << 16), method="m", of=[of]
        )
        source = weight.source()
        assert source is not None
        return source.key

    assert computed(SMALL) == computed(SMALL)
    assert computed(SMALL) != computed(SMALL + 1)
    assert computed(SMALL) != computed(SMALL.reshape(4, 4))
