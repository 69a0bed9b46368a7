"""Archives of a release: the same bytes, whoever builds them, wherever."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load_script() -> ModuleType:
    path = ROOT / "release" / "wheels.py"
    spec = importlib.util.spec_from_file_location("release_wheels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


wheels = load_script()

TIME = 1_800_000_000
"""15 January 2027."""


def built_twice(name: str, folder: Path) -> Path:
    wheels.build(wheels.folders()[name], folder, TIME)
    wheels.build_elsewhere(wheels.folders()[name], folder / "again", TIME)
    wheels.check(folder, folder / "again")
    return folder


def test_an_ep_is_built_twice_with_the_same_bytes(tmp_path: Path) -> None:
    folder = built_twice("onnxplug-testing", tmp_path)
    (wheel,) = folder.glob("*.whl")
    times = {entry.date_time for entry in zipfile.ZipFile(wheel).infolist()}
    assert times == {(2027, 1, 15, 8, 0, 0)}
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert {member.mtime for member in archive.getmembers()} == {TIME}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", wheels.folders())
def test_each_is_built_twice_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    built_twice(name, tmp_path)


def test_a_difference_is_told(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in ((first, "a"), (second, "b")):
        folder.mkdir()
        (folder / "same.whl").write_text("")
        (folder / "other.tar.gz").write_text(text)
    (first / "alone.whl").write_text("")
    with pytest.raises(wheels.ReleaseError, match=r": alone\.whl, other\.tar\.gz;"):
        wheels.check(first, second)


def test_only_an_earlier_release_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "dist"
    wheels.clear(out)
    for name in ("a.whl", "a.tar.gz", "SHA256SUMS", "again/a.whl"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("")
    wheels.clear(out)
    assert not list(out.iterdir())
    (out / "notes.md").write_text("mine")
    with pytest.raises(wheels.ReleaseError, match=r"notes\.md, which is not"):
        wheels.clear(out)
    assert (out / "notes.md").read_text() == "mine"


def test_nothing_built_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(wheels.ReleaseError, match="nothing"):
        wheels.check(tmp_path, tmp_path)


def test_what_is_not_committed_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git")
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        command = ["git", "-C", str(tmp_path), *who, *words]
        subprocess.run(command, check=True, capture_output=True)

    git("init")
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a").write_text("a")
    git("add", ".")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "@1700000000 +0000")
    git("commit", "-m", "a")
    assert wheels.epoch(tmp_path) == 1_700_000_000
    (tmp_path / "core" / "b").write_text("b")
    with pytest.raises(wheels.ReleaseError, match=r"commit, or .*\n\?\? core/b"):
        wheels.epoch(tmp_path)
    assert wheels.epoch(tmp_path, dirty=True) == 1_700_000_000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    assert wheels.epoch(tmp_path) == 5


def test_without_a_commit_there_has_to_be_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(wheels.ReleaseError, match="set SOURCE_DATE_EPOCH"):
        wheels.epoch(tmp_path)
