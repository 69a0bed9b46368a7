"""Entries on disk: kept, trusted only when safe, and never in the way."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from onnxplug import ep
from onnxplug.authoring import entries as module
from onnxplug.authoring.entries import Cache, fingerprint, size_limit

DAY = 24 * 60 * 60
posix = pytest.mark.skipif(os.name != "posix", reason="about rights of POSIX")
unprivileged = pytest.mark.skipif(
    os.name == "posix" and os.geteuid() == 0, reason="root may do it all the same"
)


@pytest.fixture
def open_cache(tmp_path: Path, monkeypatch) -> Callable[..., Cache]:
    """Opens a cache below a folder of the test's."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "root"))
    monkeypatch.delenv("ONNXPLUG_CACHE_SIZE", raising=False)

    def open_it(limit: int | None = None) -> Cache:
        return Cache("made-up", limit)

    return open_it


def entry(cache: Cache, name: str) -> Path:
    assert cache.folder is not None
    return cache.folder / f"{name}.entry"


def test_what_is_stored_is_loaded_by_another(open_cache) -> None:
    content = os.urandom(10_000)
    open_cache().store("one", content)
    cache = open_cache()
    assert cache.problem is None
    assert cache.load("one") == content
    assert cache.load("two") is None
    assert cache.names() == ["one"]


def test_an_entry_is_written_anew(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"first")
    cache.store("one", b"second")
    assert cache.load("one") == b"second"
    assert len(list(cache.folder.glob("*.entry"))) == 1
    assert not list(cache.folder.glob("*.new"))


def test_an_empty_entry_is_an_entry(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"")
    assert cache.load("one") == b""


@posix
def test_nobody_else_may_look(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"content")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert entry(cache, "one").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [0, 15, 16, 20, -1])
def test_a_changed_byte_is_noticed(open_cache, place: int) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    content = bytearray(entry(cache, "one").read_bytes())
    content[place] ^= 1
    entry(cache, "one").write_bytes(content)
    assert cache.load("one") is None
    cache.store("one", b"some content")
    assert cache.load("one") == b"some content"


@pytest.mark.parametrize("size", [0, 10, 16, 20])
def test_a_missing_end_is_noticed(open_cache, size: int) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    os.truncate(entry(cache, "one"), size)
    assert cache.load("one") is None


def test_an_entry_under_another_name_is_none(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    entry(cache, "one").rename(entry(cache, "two"))
    assert cache.load("two") is None


@posix
def test_links_and_what_others_may_write_are_refused(open_cache, tmp_path) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    entry(cache, "one").chmod(0o620)
    assert cache.load("one") is None
    entry(cache, "one").chmod(0o600)
    assert cache.load("one") == b"some content"
    entry(cache, "one").rename(tmp_path / "elsewhere")
    entry(cache, "one").symlink_to(tmp_path / "elsewhere")
    assert cache.load("one") is None
    entry(cache, "one").unlink()
    entry(cache, "one").mkdir()
    assert cache.load("one") is None
    cache.store("one", b"other content")
    assert cache.load("one") is None


@posix
def test_what_belongs_to_somebody_else_is_refused(open_cache, monkeypatch) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert cache.load("one") is None
    other = open_cache()
    assert other.folder is None
    assert f"belongs to user {mine}, and this process to {mine + 1}" in other.problem
    assert other.load("one") is None
    other.store("one", b"content")
    other.prune()
    assert other.names() == []


@posix
def test_a_folder_that_is_open_to_others_is_refused(open_cache) -> None:
    cache = open_cache()
    cache.folder.chmod(0o750)
    problem = open_cache().problem
    assert "open to other users (mode 0750)" in problem
    assert f"chmod 700 {cache.folder}" in problem


def test_a_root_may_be_named(open_cache, tmp_path) -> None:
    root = tmp_path / "named/root"
    (tmp_path / "named").mkdir()
    open_cache().store("one", b"own")
    cache = Cache("made-up", None, str(root))
    assert cache.load("one") is None
    cache.store("one", b"named")
    assert cache.folder == root / "made-up"
    assert Cache("made-up", None, str(root)).load("one") == b"named"
    assert open_cache().load("one") == b"own"
    # made anew in the same place
    shutil.rmtree(root)
    cache.store("one", b"again")
    assert Cache("made-up", None, str(root)).load("one") == b"again"
    for wrong in ("relative", "", str(root) + "\0"):
        with pytest.raises(ValueError, match=r"no absolute path|null"):
            Cache("made-up", None, wrong)


def test_a_file_in_the_way_is_told(open_cache, tmp_path) -> None:
    (tmp_path / "root").write_text("")
    cache = open_cache()
    assert cache.folder is None
    assert str(tmp_path / "root") in cache.problem


@posix
@unprivileged
def test_a_folder_that_cannot_be_written_is_read(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    cache.folder.chmod(0o500)
    try:
        cache.store("two", b"more")
        assert cache.load("one") == b"some content"
        assert cache.load("two") is None
    finally:
        cache.folder.chmod(0o700)


@posix
@pytest.mark.parametrize("in_its_place", ["folder", "link"])
def test_a_folder_put_in_its_place_is_not_read(
    open_cache, tmp_path: Path, in_its_place: str
) -> None:
    """Whoever may rename it cannot have other code run."""
    cache = open_cache()
    cache.store("one", b"mine")
    evil = tmp_path / "evil"
    shutil.copytree(cache.folder, evil)
    evil.chmod(0o700)
    entry(cache, "one").rename(tmp_path / "one")
    (tmp_path / "one").rename(evil / "two.entry")
    cache.folder.rename(tmp_path / "away")
    if in_its_place == "folder":
        evil.rename(tmp_path / "root/made-up")
    else:
        (tmp_path / "root/made-up").symlink_to(evil)
    assert cache.load("one") is None
    assert cache.names() == []
    cache.store("three", b"mine")
    assert cache.load("three") == b"mine"
    assert (tmp_path / "away/three.entry").exists()
    assert not (cache.folder / "three.entry").exists()
    if in_its_place == "link":
        assert "is no folder, or a link to one" in open_cache().problem


@posix
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("pipe", "it is a pipe"),
        ("device", "it is a device"),
        ("link", "symbolic link"),
        ("second name", "it has 2 names"),
        ("folder", "Is a directory"),
        ("others may write", "may be written to by other users"),
    ],
)
def test_what_is_no_file_of_the_users_is_refused_and_told(
    open_cache, tmp_path: Path, what: str, told: str
) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    path = entry(cache, "one")
    if what == "others may write":
        path.chmod(0o622)
    elif what == "second name":
        os.link(path, tmp_path / "second")
    else:
        path.rename(tmp_path / "real")
    if what == "pipe":
        os.mkfifo(path, 0o600)
    elif what == "device":
        try:  # that of /dev/zero
            os.mknod(path, 0o600 | stat.S_IFCHR, os.stat("/dev/zero").st_rdev)
        except OSError:
            pytest.skip("only a privileged user makes devices")
    elif what == "link":
        path.symlink_to(tmp_path / "real")
    elif what == "folder":
        path.mkdir()
    assert cache.load("one") is None
    assert told in cache.refused
    assert repr(str(path)) in cache.refused
    assert cache.problem is None
    if what != "folder":
        cache.store("one", b"other content")
        assert open_cache().load("one") == b"other content"


@posix
def test_an_entry_larger_than_all_may_be_is_not_read(open_cache) -> None:
    cache = open_cache(limit=1000)
    cache.store("one", b"content")
    os.truncate(entry(cache, "one"), 1 << 40)
    assert cache.load("one") is None


@posix
def test_where_others_may_rename_nothing_is_kept(open_cache, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    cache = open_cache()
    cache.store("one", b"content")
    assert cache.load("one") is None
    assert f"chmod go-w {tmp_path}" in cache.problem
    assert not (tmp_path / "root").exists()
    tmp_path.chmod(0o1777)  # as /tmp is
    cache = open_cache()
    cache.store("one", b"content")
    assert cache.load("one") == b"content"
    assert cache.problem is None


@posix
def test_a_folder_made_anew_by_another_user_is_not_used(
    open_cache, monkeypatch
) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    shutil.rmtree(cache.folder)
    cache.folder.mkdir(mode=0o777)
    cache.folder.chmod(0o777)
    cache.store("one", b"some content")
    assert cache.load("one") is None
    assert "open to other users" in cache.problem


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists descriptors")
def test_a_program_that_closes_all_files_has_its_cache_again(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    folder = os.path.realpath(cache.folder)
    opened = [
        int(entry.name)
        for entry in Path("/proc/self/fd").iterdir()
        if os.path.realpath(entry) == folder
    ]
    assert opened
    for descriptor in opened:
        os.close(descriptor)
    assert cache.load("one") == b"some content"


@pytest.mark.parametrize("failing", ["open", "write", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_costs_the_entry_only(
    open_cache, monkeypatch, failing: str, number: int
) -> None:
    cache = open_cache()
    real = getattr(os, failing)

    def fail(*args, **more):
        if failing == "open" and not args[1] & os.O_CREAT:
            return real(*args, **more)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, failing, fail)
    cache.store("one", b"some content")
    monkeypatch.undo()
    assert not list(cache.folder.glob("one*"))
    assert cache.load("one") is None
    cache.prune()


def test_a_disk_that_takes_a_part_at_a_time(open_cache, monkeypatch) -> None:
    cache = open_cache()
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:100]))
    cache.store("one", bytes(1000))
    assert cache.load("one") == bytes(1000)


def test_a_folder_deleted_meanwhile_is_made_again(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"some content")
    for file in cache.folder.iterdir():
        file.unlink()
    cache.folder.rmdir()
    cache.folder.parent.rmdir()
    assert cache.load("one") is None
    assert cache.names() == []
    cache.prune()
    cache.store("one", b"some content")
    assert cache.load("one") == b"some content"


def test_the_folder_is_looked_at_when_much_was_stored(open_cache) -> None:
    cache = open_cache(limit=1600)
    with mock.patch.object(os, "scandir", wraps=os.scandir) as listed:
        cache.prune_if_due()
        once = listed.call_count
        assert once
        for number in range(4):  # of 40 bytes each, and 100 are a sixteenth
            cache.store(str(number), b"x" * 40)
            cache.prune_if_due()
        assert listed.call_count == 2 * once


def test_what_was_not_used_for_longest_goes_first(open_cache) -> None:
    cache = open_cache(limit=3500)
    now = time.time()
    for number in range(5):
        cache.store(str(number), bytes(1000))
        then = now - (10 - number) * DAY
        os.utime(entry(cache, str(number)), (then, then))
    assert cache.load("0") is not None  # which is then the one last used
    cache.prune()
    assert sorted(cache.names()) == ["0", "3", "4"]


def test_the_time_of_use_is_kept_to_the_day(open_cache) -> None:
    cache = open_cache()
    cache.store("one", b"content")
    recent = time.time() - DAY / 2
    os.utime(entry(cache, "one"), (recent, recent))
    cache.load("one")
    assert entry(cache, "one").stat().st_mtime == pytest.approx(recent, abs=1)
    os.utime(entry(cache, "one"), (recent - DAY, recent - DAY))
    cache.load("one")
    assert entry(cache, "one").stat().st_mtime > recent


def test_remains_of_writers_go_after_a_day(open_cache) -> None:
    cache = open_cache()
    old, new = cache.folder / "one.1.1.new", cache.folder / "one.2.2.new"
    for file in (old, new):
        file.write_bytes(b"x")
    os.utime(old, (time.time() - 2 * DAY,) * 2)
    cache.prune()
    assert not old.exists()
    assert new.exists()
    assert cache.names() == []


def test_what_others_put_there_stays(open_cache) -> None:
    cache = open_cache(limit=1)
    (cache.folder / "notes.txt").write_text("mine")
    cache.store("one", b"content")
    cache.prune()
    assert (cache.folder / "notes.txt").exists()
    assert (cache.folder / "CACHEDIR.TAG").exists()
    assert cache.names() == []


WRITER = """
import sys, time
from onnxplug.authoring.entries import Cache
cache, end = Cache("made-up"), time.time() + 1
while time.time() < end:
    for name in "abc":
        cache.store(name, name.encode() * 5000)
        content = cache.load(name)
        assert content == name.encode() * 5000, (name, content)
    cache.prune()
"""


def test_processes_that_fill_it_at_once(open_cache) -> None:
    cache = open_cache()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER]) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        for name in cache.names():
            assert cache.load(name) in (name.encode() * 5000, None)
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(cache.names()) == ["a", "b", "c"]
    assert not list(cache.folder.glob("*.new"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 256 << 20), ("0", 0), ("12345", 12345), ("3k", 3072), ("2 G", 2 << 30)],
)
def test_the_size_is_read_from_the_environment(monkeypatch, text, size) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", text)
    assert size_limit() == size


@pytest.mark.parametrize("text", ["-1", "1.5", "much", "1T"])
def test_a_size_that_is_none_is_told(monkeypatch, text: str) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", text)
    with pytest.raises(
        ep.OptionError, match=r"ONNXPLUG_CACHE_SIZE is .* number of bytes"
    ):
        size_limit()


def test_without_a_size_nothing_is_kept(open_cache, tmp_path: Path) -> None:
    cache = open_cache(limit=0)
    cache.store("one", b"content")
    assert cache.load("one") is None
    assert cache.problem is None
    assert not (tmp_path / "root").exists()


def test_fingerprints_differ() -> None:
    assert len({fingerprint(text) for text in ("", "a", "b", "ab")}) == 4
    assert module.blake2b.__name__ == "blake2b"
