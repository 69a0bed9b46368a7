"""Tests stand with the distribution that they test, or here if they need several."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .floors import ROOT
from .test_layout import PLUGINS, imports, parsed, sources, statements

FOLDERS: Final = {
    "onnxplug": ROOT / "core",
    **{f"onnxplug_{each.name}": each for each in sorted(PLUGINS.iterdir())},
}
"""The folder of each distribution, by its package."""

EVERYWHERE: Final = {"onnxplug", "onnxplug_testing"}
"""What all tests may use."""

OF_THE_REPOSITORY: Final = {
    "architecture", "benchmarks", "ci", "demo", "docs", "packaging", "robustness",
}  # fmt: skip
"""Rooms of tests of what is no distribution's: scripts, pages, wheels."""


def needed(folder: Path) -> set[str]:
    """The packages of onnxplug's distributions that the one in *folder* depends on."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split(r"[^\w.-]", each)[0] for each in project["dependencies"]]
    return {name.replace("-", "_") for name in names} & FOLDERS.keys()


@pytest.mark.parametrize("package", FOLDERS)
def test_tests_of_a_distribution_use_it_and_what_it_needs(package: str) -> None:
    folder = FOLDERS[package]
    others = FOLDERS.keys() - EVERYWHERE - needed(folder) - {package}
    assert not [
        f"{path.relative_to(ROOT)} imports {name}; move it to tests/"
        for path in sources(folder / "tests")
        for name in imports(path)
        if name.split(".")[0] in others
    ]


@functools.cache
def imported_beside(path: Path) -> frozenset[Path]:
    """Where the modules of its own folder lie that *path* imports."""
    return frozenset(
        path.with_name(f"{name}.py")
        for node in statements(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in ([node.module] if node.module else [a.name for a in node.names])
    )


def with_helpers(path: Path) -> Iterator[Path]:
    """*path*, what gives it fixtures, and what it imports of the modules beside it."""
    seen, left = set[Path](), [path, path.with_name("conftest.py")]
    while left:
        each = left.pop()
        if each in seen or not each.exists():
            continue
        seen.add(each)
        yield each
        left += imported_beside(each)


@functools.cache
def used_in(path: Path) -> frozenset[str]:
    """The packages that the file *path* uses by itself."""
    text = path.read_text("utf-8")
    found = {name.split(".")[0] for name in imports(path)}
    found |= {
        package
        for package in FOLDERS
        if re.search(rf"\b{package.replace('_', '[-_]')}\b", text)
    }
    if re.search(r"Session\b|ModelCompiler|backend|CPUExecutionProvider", text):
        found.add("onnxplug_cpu")
    return frozenset(found & FOLDERS.keys())


def used(path: Path) -> set[str]:
    """The packages that a test uses: by imports, by name, or, as the EP that takes what
    no other does, in a session."""
    return {package for each in with_helpers(path) for package in used_in(each)}


def test_tests_that_need_one_distribution_stand_with_it() -> None:
    wrong = []
    for path in sources(ROOT / "tests"):
        room = path.relative_to(ROOT / "tests").parts[0]
        if path.name.startswith("test_") and room not in OF_THE_REPOSITORY:
            uses = used(path) - {"onnxplug_testing"}
            if len(uses) < 2:
                wrong.append(f"{path.relative_to(ROOT)} uses {uses or 'none'}")
    assert not wrong
