"""No two files of a distribution import each other, not even by a detour."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Final

import pytest

from .floors import CORE
from .test_layout import PLUGINS, imports_within, name_of, parsed, sources

PACKAGES: Final = [
    CORE,
    *sorted(each.parent for each in PLUGINS.glob("*/src/*/py.typed")),
]

ANNOTATED: Final = {"onnxplug_cpu", "onnxplug_native", "onnxplug_testing"}
"""Where files may import each other for annotations."""

MUTUAL: Final = {
    # a graph has nodes, whose bodies are graphs
    ("functions.graph", "functions.node"),
    # what writes kernels is imported when there is one to write
    ("elementwise.commands", "elementwise.generator"),
    # either computes what the other divides
    ("normalization.softmax", "normalization.long_rows"),
}
"""Files of which the first imports the second in functions, by the ends of their names,
and is imported by it."""


def imports_at_run_time(node: ast.AST) -> Iterator[str]:
    """What is imported below *node*, but for annotations."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports_at_run_time(child)


def run_time_imports_within(folder: Path) -> dict[str, set[str]]:
    """As :func:`imports_within`, without those for annotations."""
    paths = {name_of(path): path for path in sources(folder)}
    return {
        name: {
            other
            for other in imports_at_run_time(parsed(path))
            if other in paths and other != name
        }
        for name, path in paths.items()
    }


def in_circles(imported: Mapping[str, Set[str]]) -> dict[str, list[str]]:
    """The modules that import each other, and of these the ones that each imports.

    A package is its ``__init__`` here, which its files may import, as it does them.
    """
    left = {
        name: {other for other in others if not name.startswith(f"{other}.")}
        for name, others in imported.items()
    }
    while done := [
        name
        for name, others in left.items()
        if not others & left.keys()
        or not any(name in each for other, each in left.items() if other != name)
    ]:
        for name in done:
            del left[name]
    return {name: sorted(others & left.keys()) for name, others in left.items()}


def are_mutual(name: str, other: str) -> bool:
    return any(
        name.endswith(f".{first}") and other.endswith(f".{second}")
        for first, second in MUTUAL
    )


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_no_files_import_each_other(folder: Path) -> None:
    imported = run_time_imports_within(folder)
    assert not in_circles(
        {
            name: {other for other in others if not are_mutual(name, other)}
            for name, others in imported.items()
        }
    )


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_no_files_import_each_other_for_annotations(folder: Path) -> None:
    if folder.name in ANNOTATED:
        assert in_circles(imports_within(folder)), f"take {folder.name} off the list"
    else:
        assert not in_circles(imports_within(folder))
