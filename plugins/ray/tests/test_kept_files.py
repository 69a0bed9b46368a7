"""Files of shared models on a node, without a cluster."""

from __future__ import annotations

import os
import time

import pytest

from onnxplug_ray import ModelNotShared
from onnxplug_ray.kept_files import KeptFiles


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    return tmp_path / "onnxplug-ray"


def writing(calls, size=100):
    def write(folder) -> None:
        calls.append(folder)
        (folder / "model.onnx").write_bytes(bytes(size))

    return write


def test_files_are_written_once() -> None:
    calls = []
    first, second = KeptFiles("a", 1), KeptFiles("a", 1)
    for each in (first, second):
        each.fill(writing(calls))
        assert (each.folder / "model.onnx").stat().st_size == 100
    assert len(calls) == 1
    first.close()
    second.close()


def test_who_comes_while_they_are_written_waits_and_gives_up_in_words() -> None:
    def write(folder) -> None:
        with pytest.raises(ModelNotShared, match="waited 0 s for another process"):
            KeptFiles("a", 0.2).fill(writing([]))
        (folder / "model.onnx").write_bytes(b"")

    KeptFiles("a", 1).fill(write)


def test_what_fails_leaves_nothing_and_is_tried_again(cache) -> None:
    def fail(folder) -> None:
        (folder / "model.onnx").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    kept = KeptFiles("a", 1)
    with pytest.raises(ModelNotShared, match=r"cannot keep .*No space left"):
        kept.fill(fail)
    kept.close()
    assert not [each for each in cache.iterdir() if each.is_dir()]
    calls = []
    KeptFiles("a", 1).fill(writing(calls))
    assert calls


def test_what_a_process_left_that_was_killed_is_written_anew(cache) -> None:
    KeptFiles("b", 1).fill(writing([]))
    (cache / "a.new").mkdir()
    (cache / "a.new" / "model.onnx").write_bytes(b"half")
    kept = KeptFiles("a", 1)
    kept.fill(writing([]))
    assert os.listdir(kept.folder) == ["model.onnx"]
    assert (kept.folder / "model.onnx").stat().st_size == 100
    assert not (cache / "a.new").exists()


def test_the_least_used_are_deleted_but_for_those_in_use(cache, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "250")
    held = KeptFiles("held", 1)
    held.fill(writing([]))
    for name in ("old", "newer", "newest"):
        time.sleep(0.01)
        kept = KeptFiles(name, 1)
        kept.fill(writing([]))
        kept.close()
    folders = {each.name for each in cache.iterdir() if each.is_dir()}
    assert folders == {"held", "newer", "newest"}
    held.close()


def test_a_folder_that_is_not_the_users_own_is_refused(tmp_path, monkeypatch) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(open_to_all))
    with pytest.raises(ModelNotShared, match="ONNXPLUG_CACHE_DIR"):
        KeptFiles("a", 1)
