"""What is read by hand is what ``importlib_metadata`` finds; the rest is left to it."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from onnxplug.plugins.find import GROUP, find_plugins
from onnxplug.plugins.metadata import InstalledDistribution, installed_distributions

EP = "XExecutionProvider"
TEXT = f"[{GROUP}]\n{EP} = x_module\n"


def add(folder: Path, name: str, text: str | None = TEXT, meta: str = "x") -> None:
    info = folder / name
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {meta}\nVersion: 1.2\n")
    if text is not None:
        (info / "entry_points.txt").write_text(text, "utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def found() -> list[tuple[str, str, str]]:
    return [
        (plugin.name, plugin.module, plugin.distribution)
        for plugin in find_plugins(GROUP)
        if plugin.name == EP
    ]


def found_by_the_library(path: Path, *more: Path) -> list[tuple[str, str, str]]:
    """The same in a process of its own, since the library changes ``sys.meta_path``."""
    program = (
        "import importlib_metadata as m\n"
        f"for e in m.entry_points(group={GROUP!r}):\n"
        f"    if e.name == {EP!r}: print(e.name, e.value, e.dist.name, sep='|')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [path, *more]))}
    output = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        env=environment,
    ).stdout
    return [tuple(line.split("|")) for line in output.decode().splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"[other]\na = b\n\n# told below\n[{GROUP}]\n  {EP}=x_module  \n[last]\nc = d",
        f"# {GROUP}\n[other]\n{EP} = x_module\n",
        f"[{GROUP}]\n# {EP} = x_module\n",
        f"[{GROUP}]\n{EP} = x_module:attribute [extra]\n",
        f"[{GROUP}]\n\n[console_scripts]\n{EP} = x:main\n[{GROUP}]\n{EP} = a=b\n",
        "",
        None,
    ],
)
@pytest.mark.parametrize("name", ["x-1.2.dist-info", "x.egg-info", "X-1-py3.egg-info"])
def test_entry_points_are_those_of_the_library(
    folder: Path, name: str, text: str | None
) -> None:
    add(folder, name, text)
    assert found() == found_by_the_library(folder)


def test_of_one_name_the_first_on_the_path_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    add(first, "X_y-2.dist-info", TEXT.replace("x_module", "newer"), "x.y")
    add(folder, "x.y-1.dist-info", meta="x.y")
    assert [module for _, module, _ in found()] == ["x_module"]
    monkeypatch.syspath_prepend(str(first))
    assert found() == found_by_the_library(first, folder) == [(EP, "newer", "x.y")]
    (first / "X_y-2.dist-info" / "entry_points.txt").unlink()
    assert found() == found_by_the_library(first, folder) == []


def test_folders_that_do_not_exist_or_are_no_text_do_not_matter(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "missing"))
    add(folder, "x-1.dist-info")
    add(folder, "y-1.dist-info", meta="y")
    (folder / "y-1.dist-info" / "entry_points.txt").write_bytes(b"\xff" + TEXT.encode())
    (folder / "z-1.dist-info").touch()
    assert found() == [(EP, "x_module", "x")]


PRINT = (
    "import sys; from onnxplug.plugins.find import GROUP, find_plugins;"
    f"print(sum(plugin.name == {EP!r} for plugin in find_plugins(GROUP)))"
)
SPAWN = """
import multiprocessing, sys

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=exec, args=(sys.argv[1],))
    process.start()
    process.join()
"""
"""Runs its argument in a process of its own."""


def started(arguments: list[str], cwd: Path, python_path: str | None = None) -> bool:
    """Whether a program that is started in *cwd* finds the plugin.

    Args:
        python_path: what ``PYTHONPATH`` begins with.
    """
    items = [
        item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([python_path, *(items or [""])])
    elif items:
        environment["PYTHONPATH"] = os.pathsep.join(items)
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )
    assert done.stderr == ""
    return {"0": False, "1": True}[done.stdout.strip()]


@pytest.fixture
def current(tmp_path: Path) -> Path:
    """A folder with a plugin's metadata, and a module and script that look for it."""
    folder = tmp_path / "current"
    add(folder, "x-1.dist-info")
    (folder / "looks.py").write_text(PRINT)
    (folder / "spawns.py").write_text(SPAWN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "looks.py").write_text(PRINT)
    return folder


def test_the_current_folder_counts_only_if_it_is_named(current: Path) -> None:
    here, elsewhere = current, current.parent
    script = str(here / "looks.py")
    # Python puts it on the path, and nobody asked for that
    assert not started(["-c", PRINT], here)
    assert not started(["-m", "looks"], here)
    assert not started(["-c", PRINT], here, "")  # an empty item of PYTHONPATH
    assert not started([str(elsewhere / "bin" / "looks.py")], here)
    # the user names it
    for python_path in (str(here), os.pathsep.join(["", str(here)])):
        assert started(["-c", PRINT], here, python_path)
        assert started(["-m", "looks"], here, python_path)
        assert started(["-c", PRINT], elsewhere, str(here))
    # the folder of a script is where the program is
    assert started([script], here)
    assert started([script], elsewhere)
    # the program names it
    insert = f"import sys; sys.path.insert(0, {str(here)!r});"
    assert started(["-c", insert + PRINT], here)


def test_nor_does_it_count_in_a_process_that_was_spawned(current: Path) -> None:
    assert not started(["-m", "spawns", PRINT], current)
    assert started(["spawns.py", PRINT], current)
    prompt = SPAWN.replace("sys.argv[1]", repr(PRINT))
    assert not started(["-c", prompt], current)
    assert started(["-c", prompt], current, str(current))


def test_entries_that_are_no_text_are_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, "x-1.dist-info")
    monkeypatch.setattr(sys, "path", [folder, None, *sys.path])
    assert found() == [(EP, "x_module", "x")]


def test_what_is_no_file_of_a_distribution_is_none(tmp_path: Path) -> None:
    add(tmp_path, "x-1.dist-info")
    distribution = InstalledDistribution(str(tmp_path / "x-1.dist-info"))
    assert distribution.read_text("METADATA") == "Name: x\nVersion: 1.2\n"
    assert distribution.read_text("PKG-INFO") is None
    assert distribution.read_text("") is None


class Finder(importlib.abc.MetaPathFinder):
    """Knows distributions that lie nowhere."""

    def find_distributions(self, context: Any = None) -> list[Any]:
        return []


@pytest.mark.parametrize("how", ["archive", "egg", "finder"])
def test_what_lies_elsewhere_is_left_to_the_library(
    how: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("importlib_metadata")  # adds its finder to those copied now
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    assert installed_distributions() is not None
    if how == "archive":
        archive = tmp_path / "site.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("x-1.dist-info/METADATA", "Name: x\n")
            file.writestr("x-1.dist-info/entry_points.txt", TEXT)
        monkeypatch.syspath_prepend(str(archive))
    elif how == "egg":
        add(tmp_path / "x-1.egg", "EGG-INFO")
        monkeypatch.syspath_prepend(str(tmp_path / "x-1.egg"))
    else:
        add(folder, "x-1.dist-info")
        sys.meta_path.append(Finder())
    assert installed_distributions() is None
    assert found() == [(EP, "x_module", "x")]
