"""Folders for what can be made again: where they are, and that they are safe."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnxplug.authoring import cache
from onnxplug.authoring.cache import (
    TAG,
    TAG_TEXT,
    CacheFolder,
    cache_directory,
    cache_root,
)

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
    assert cache_directory("made-up") == tmp_path / "chosen/made-up"
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "")
    assert cache_root() != tmp_path / "chosen"


@posix
def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "~/chosen")
    assert cache_root() == tmp_path / "home/chosen"


def test_a_relative_path_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "here")
    with pytest.raises(OSError, match="ONNXPLUG_CACHE_DIR gives no absolute path"):
        cache_directory("made-up")


@posix
def test_a_user_without_a_home_is_told_what_to_do(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(OSError, match=r"home folder .* set ONNXPLUG_CACHE_DIR"):
        cache_directory("made-up")


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_folder_is_the_users_alone(mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = cache_directory("made-up")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache_directory("made-up") == folder


def test_it_is_marked_as_a_cache() -> None:
    tag = cache_directory("made-up") / TAG
    assert tag.read_text() == TAG_TEXT
    assert TAG_TEXT.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    tag.unlink()
    cache_directory("made-up")
    assert tag.exists()


@posix
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_what_others_may_enter_is_refused(mode: int) -> None:
    folder = cache_directory("made-up")
    folder.chmod(mode)
    with pytest.raises(OSError, match=rf"\(mode {mode:04o}\).*chmod 700 {folder}"):
        cache_directory("made-up")


@posix
def test_what_belongs_to_somebody_else_is_refused(monkeypatch) -> None:
    cache_directory("made-up")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(OSError, match=f"belongs to user {mine}, and this process to"):
        cache_directory("made-up")


@posix
def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = cache_directory("made-up")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is no folder, or a link to one"):
        cache_directory("made-up")


@posix
def test_the_root_may_be_a_link(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "link"))
    cache_directory("made-up")
    assert (tmp_path / "disk/made-up").is_dir()


def test_a_file_in_the_way_is_an_error(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        cache_directory("made-up")


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "a\0"])
def test_only_names_of_distributions_name_folders(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a distribution"):
        cache_directory(name)


# who may put another folder in its place


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o702])
@pytest.mark.parametrize("above", ["shared", "shared/one", "shared/one/two"])
def test_a_way_on_which_others_may_rename_is_refused(
    tmp_path: Path, monkeypatch, above: str, mode: int
) -> None:
    root = tmp_path / "shared/one/two"
    root.mkdir(parents=True)
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(root))
    cache_directory("made-up")
    (tmp_path / above).chmod(mode)
    remedy = rf"\(mode {mode:04o}\); .*chmod go-w {tmp_path / above}, or name"
    with pytest.raises(PermissionError, match=remedy):
        cache_directory("made-up")
    # in a sticky folder nobody renames what is not his
    (tmp_path / above).chmod(mode | 0o1000)
    assert cache_directory("made-up") == root / "made-up"


@posix
def test_a_way_is_made_for_the_user_alone(tmp_path: Path, monkeypatch) -> None:
    before = os.umask(0o777)
    try:
        monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "a/b"))
        folder = CacheFolder("made-up")
        os.close(folder.create("file"))
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a/b", folder.path):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / "file").stat().st_mode & 0o777 == 0o600


@posix
def test_nothing_is_made_where_others_may_rename(tmp_path: Path, monkeypatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "a"))
    with pytest.raises(PermissionError, match="above the cache's lets other users"):
        cache_directory("made-up")
    tmp_path.chmod(0o700)
    assert not (tmp_path / "a").exists()


@posix
def test_a_folder_of_another_user_on_the_way_is_refused(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "theirs/root"))
    folder = cache_directory("made-up")
    theirs, really_look = tmp_path / "theirs", os.lstat

    def look(path, **more):
        found = really_look(path, **more)
        if Path(path) != theirs:
            return found
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "lstat", look)
    with pytest.raises(PermissionError, match="above the cache's belongs to user"):
        cache_directory("made-up")
    monkeypatch.setattr(os, "lstat", really_look)
    assert cache_directory("made-up") == folder


@posix
@pytest.mark.parametrize("in_its_place", ["folder", "link"])
def test_what_is_put_in_its_place_is_not_used(
    tmp_path: Path, monkeypatch, in_its_place: str
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    folder = CacheFolder("made-up")
    os.close(folder.create("mine"))
    evil = tmp_path / "evil"
    evil.mkdir(mode=0o700)
    (evil / "mine").write_bytes(b"evil")
    folder.path.rename(tmp_path / "away")
    if in_its_place == "folder":
        evil.rename(folder.path)
    else:
        folder.path.symlink_to(evil)
    file, status = folder.open("mine")
    os.close(file)
    assert status.st_size == 0
    os.close(folder.create("new"))
    folder.replace("new", "newer")
    assert {name for name, _ in folder.files()} == {TAG, "mine", "newer"}
    folder.remove("mine")
    assert sorted(os.listdir(tmp_path / "away")) == [TAG, "newer"]
    assert (folder.path / "mine").read_bytes() == b"evil"


@posix
def test_a_folder_is_not_used_by_another_descriptor(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    folder = CacheFolder("made-up")
    number = folder._descriptor
    assert folder.is_there
    assert not os.get_inheritable(number)
    os.close(number)
    assert not folder.is_there
    other = os.open(tmp_path, os.O_RDONLY)
    assert other == number
    assert not folder.is_there
    del folder
    os.close(other)  # which is still open


@posix
def test_a_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    folder = CacheFolder("made-up")
    shutil.rmtree(folder.path)
    assert not folder.is_there
    assert folder.files() == []
    with pytest.raises(FileNotFoundError):
        folder.create("one")
    number = folder._descriptor
    del folder
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@posix
def test_only_files_that_the_user_alone_wrote_are_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    folder = CacheFolder("made-up")
    os.close(folder.create("file"))
    path = folder.path / "file"
    os.close(folder.open("file")[0])
    path.chmod(0o620)
    with pytest.raises(PermissionError, match="may be written to by other users"):
        folder.open("file")
    path.chmod(0o600)
    os.link(path, tmp_path / "second")
    with pytest.raises(PermissionError, match="it has 2 names"):
        folder.open("file")
    (tmp_path / "second").unlink()
    (folder.path / "link").symlink_to(path)
    (folder.path / "folder").mkdir()
    os.mkfifo(folder.path / "pipe")
    for name, told in (("link", "symbolic"), ("folder", "direc"), ("pipe", "a pipe")):
        with pytest.raises(OSError, match=told):
            folder.open(name)
    with pytest.raises(FileExistsError):
        folder.create("link")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(PermissionError, match=f"belongs to user {mine}"):
        folder.open("file")


def test_names_serve_where_there_are_no_folders_to_hold(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cache, "_BY_DESCRIPTOR", False)
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    folder = CacheFolder("made-up")
    file = folder.create("one")
    os.write(file, b"content")
    os.close(file)
    folder.replace("one", "two")
    file, status = folder.open("two")
    folder.touch(file, "two")
    os.close(file)
    assert status.st_size == 7
    assert {name for name, _ in folder.files()} == {TAG, "two"}
    folder.remove("two")
    assert folder.is_there
    shutil.rmtree(folder.path)
    assert not folder.is_there


@posix
def test_programs_that_are_started_do_not_have_the_folder() -> None:
    program = """
import os, sys
from onnxplug.authoring.cache import CacheFolder
folder = CacheFolder("made-up")
child = os.fork()
if not child:  # a fork has it
    os.close(folder.create("by the fork"))
    os.execv(sys.executable, [sys.executable, "-c", f'''
import os
try:
    os.fstat({folder._descriptor})
except OSError:
    os._exit(0)
os._exit(1)
'''])
assert os.waitpid(child, 0)[1] == 0
os.close(folder.open("by the fork")[0])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@posix
def test_links_on_the_way_are_followed_to_where_they_lead(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "disk/below").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/link").symlink_to("../disk/below")
    for root, made in (
        ("home/link", "disk/below"),
        ("home/link/new", "disk/below/new"),
        ("home/link/..", "disk"),  # and not home
    ):
        monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / root))
        cache_directory("made-up")
        assert (tmp_path / made / "made-up" / TAG).exists()
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(PermissionError, match=f"chmod go-w {tmp_path}/disk"):
        cache_directory("made-up")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "loop"))
    with pytest.raises(OSError, match="loop"):
        cache_directory("made-up")
