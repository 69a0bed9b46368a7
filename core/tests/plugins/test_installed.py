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
from onnxplug.plugins.installed import InstalledDistribution, installed_distributions

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
        for plugin in find_plugins()
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


def test_the_working_directory_is_a_folder_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, "x-1.dist-info")
    monkeypatch.setattr(sys, "path", ["", *sys.path[1:]])
    assert found() == []
    monkeypatch.chdir(folder)
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
