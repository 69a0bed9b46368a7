"""``onnxplug cache ls`` and ``onnxplug cache clear``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from onnxplug.authoring.cache import cache_directory


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    """Where two distributions keep things, and somebody else, too."""
    root = tmp_path / "root"
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(root))
    first = cache_directory("onnxplug-first")
    (first / "a").write_bytes(bytes(1000))
    (first / "deep").mkdir()
    (first / "deep/b").write_bytes(bytes(234))
    os.utime(first / "a", (0, 1_000_000_000))
    os.utime(first / "deep/b", (0, 1_600_000_000))
    cache_directory("second")
    (root / "precious").mkdir()
    (root / "precious/thesis.txt").write_text("years of work")
    return root


def test_ls_shows_what_each_distribution_keeps(cli, root: Path) -> None:
    outcome = cli("cache", "ls")
    assert outcome.code == 0
    path, _, header, first, second = outcome.out.splitlines()
    assert path == str(root)
    assert header.split() == ["NAME", "ENTRIES", "SIZE", "OLDEST", "NEWEST"]
    assert re.fullmatch(
        r"onnxplug-first +2 +1.23 KB +2001-09-\d\d \S+ +2020-09-\d\d \S+", first
    )
    assert re.fullmatch(r"second +0 +0 B", second)


def test_ls_as_json(cli, root: Path) -> None:
    found = cli("cache", "ls", "--json").json
    assert found["path"] == str(root)
    first, second = found["distributions"]
    assert first["oldest"].startswith("2001-09-")
    assert first["newest"].startswith("2020-09-")
    del first["oldest"], first["newest"]
    assert first == {"name": "onnxplug-first", "entries": 2, "bytes": 1234}
    assert second == {
        "name": "second", "entries": 0, "bytes": 0, "oldest": None, "newest": None,
    }  # fmt: skip


def test_clear_deletes_all_but_what_is_not_ours(cli, root: Path) -> None:
    outcome = cli("cache", "clear")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "onnxplug-first: deleted 2 files, 1.23 KB",
        "second: deleted 0 files, 0 B",
    ]
    assert [path.name for path in root.iterdir()] == ["precious"]
    assert (root / "precious/thesis.txt").exists()
    assert cli("cache", "clear").out == f"Nothing is kept in {root}.\n"


@pytest.mark.parametrize("name", ["first", "onnxplug-first"])
def test_clear_can_be_of_one_distribution(cli, root: Path, name: str) -> None:
    found = cli("cache", "clear", name, "--json").json
    assert [each["name"] for each in found["cleared"]] == ["onnxplug-first"]
    assert not (root / "onnxplug-first").exists()
    assert (root / "second").exists()


@pytest.mark.parametrize("name", ["third", "precious", "..", ""])
def test_clear_of_what_is_not_there_is_told(cli, root: Path, name: str) -> None:
    outcome = cli("cache", "clear", name)
    assert outcome.code == 1
    assert f"keeps nothing in {root}; found onnxplug-first, second" in outcome.err
    assert (root / "precious/thesis.txt").exists()


@pytest.mark.skipif(os.name != "posix", reason="makes a link")
def test_links_are_not_followed(cli, root: Path, tmp_path: Path) -> None:
    (root / "second").rename(tmp_path / "elsewhere")
    (root / "second").symlink_to(tmp_path / "elsewhere")
    assert "second" not in cli("cache", "ls").out
    cli("cache", "clear")
    assert (tmp_path / "elsewhere/CACHEDIR.TAG").exists()


def test_no_folder_is_an_empty_one(cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "none"))
    assert cli("cache", "ls").out.endswith("Nothing is kept there.\n")
    assert cli("cache", "ls", "--json").json["distributions"] == []
    assert not (tmp_path / "none").exists()


def test_a_folder_that_makes_no_sense_is_told(cli, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "here")
    outcome = cli("cache", "ls")
    assert outcome.code == 1
    assert "ONNXPLUG_CACHE_DIR gives no absolute path" in outcome.err


def test_an_action_is_needed(cli) -> None:
    assert cli("cache").code == 2


@pytest.mark.skipif(os.name != "posix", reason="about files of POSIX")
def test_what_only_looks_like_a_cache_is_left_alone(cli, root: Path) -> None:
    (root / "piped").mkdir()
    os.mkfifo(root / "piped/CACHEDIR.TAG")
    (root / "linked").mkdir()
    (root / "linked/CACHEDIR.TAG").symlink_to(root / "second/CACHEDIR.TAG")
    (root / "endless").mkdir()
    (root / "endless/CACHEDIR.TAG").symlink_to("/dev/zero")
    os.symlink(root / "precious", root / "onnxplug-first/deep/link")
    names = [line.split()[0] for line in cli("cache", "ls").out.splitlines()[3:]]
    assert names == ["onnxplug-first", "second"]
    assert cli("cache", "clear").code == 0
    assert sorted(path.name for path in root.iterdir()) == [
        "endless", "linked", "piped", "precious",
    ]  # fmt: skip
    assert (root / "precious/thesis.txt").exists()


@pytest.mark.skipif(os.name != "posix", reason="about rights of POSIX")
def test_nothing_is_deleted_where_others_may_rename(cli, root: Path) -> None:
    root.chmod(0o777)
    outcome = cli("cache", "clear")
    assert outcome.code == 1
    assert f"chmod go-w {root}" in outcome.err
    assert (root / "onnxplug-first/a").exists()
    assert cli("cache", "ls").code == 0
