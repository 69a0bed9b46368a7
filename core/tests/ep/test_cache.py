"""Folders for what can be made again: where they are, and that they are safe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from onnxplug import ep
from onnxplug.ep.cache import TAG, TAG_TEXT, cache_root

posix = pytest.mark.skipif(os.name != "posix", reason="about rights of POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="about XDG")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch) -> None:
    """No variable but the home folder says where caches are."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("ONNXPLUG_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@linux
def test_the_users_folder_for_caches_is_the_default(tmp_path, monkeypatch) -> None:
    assert cache_root() == tmp_path / "home/.cache/onnxplug"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg/onnxplug"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / "home/.cache/onnxplug"


@posix
def test_other_systems_have_other_folders(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_root() == tmp_path / "home/Library/Caches/onnxplug"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_root() == tmp_path / "local/onnxplug/cache"


def test_the_variable_comes_first(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "chosen"))
    assert ep.cache_directory("made-up") == tmp_path / "chosen/made-up"
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "")
    assert cache_root() != tmp_path / "chosen"


@posix
def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "~/chosen")
    assert cache_root() == tmp_path / "home/chosen"


def test_a_relative_path_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "here")
    with pytest.raises(OSError, match="ONNXPLUG_CACHE_DIR gives no absolute path"):
        ep.cache_directory("made-up")


@posix
def test_a_user_without_a_home_is_told_what_to_do(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(OSError, match=r"home folder .* set ONNXPLUG_CACHE_DIR"):
        ep.cache_directory("made-up")


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_folder_is_the_users_alone(mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = ep.cache_directory("made-up")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert ep.cache_directory("made-up") == folder


def test_it_is_marked_as_a_cache() -> None:
    tag = ep.cache_directory("made-up") / TAG
    assert tag.read_text() == TAG_TEXT
    assert TAG_TEXT.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    tag.unlink()
    ep.cache_directory("made-up")
    assert tag.exists()


@posix
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_what_others_may_enter_is_refused(mode: int) -> None:
    folder = ep.cache_directory("made-up")
    folder.chmod(mode)
    with pytest.raises(OSError, match=rf"\(mode {mode:04o}\).*chmod 700 {folder}"):
        ep.cache_directory("made-up")


@posix
def test_what_belongs_to_somebody_else_is_refused(monkeypatch) -> None:
    ep.cache_directory("made-up")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(OSError, match=f"belongs to user {mine}, and this process to"):
        ep.cache_directory("made-up")


@posix
def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = ep.cache_directory("made-up")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is no folder, or a link to one"):
        ep.cache_directory("made-up")


@posix
def test_the_root_may_be_a_link(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "link"))
    ep.cache_directory("made-up")
    assert (tmp_path / "disk/made-up").is_dir()


def test_a_file_in_the_way_is_an_error(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        ep.cache_directory("made-up")


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "a\0"])
def test_only_names_of_distributions_name_folders(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a distribution"):
        ep.cache_directory(name)
