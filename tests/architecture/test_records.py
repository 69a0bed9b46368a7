"""Records are of two kinds: what the library makes, and what authors of EPs make."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .floors import CORE, ROOT
from .test_layout import PLUGINS, sources


def classes(folder: Path) -> Iterator[tuple[str, str]]:
    """Where each class is, and its bases and decorators; of files without records
    none, as to parse them takes long."""
    for path in sources(folder):
        text = path.read_text("utf-8")
        if not any(word in text for word in ("NamedTuple", "dataclass")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                kinds = map(ast.unparse, (*node.bases, *node.decorator_list))
                yield f"{path.relative_to(ROOT)}: {node.name}", " ".join(kinds)


def test_what_the_core_makes_is_a_record() -> None:
    """A dataclass, which takes long to define, is what authors of EPs make, whose
    fields may become more."""
    contract = f"{(CORE / 'ep').relative_to(ROOT)}/"
    assert not [
        where
        for where, kinds in classes(CORE)
        if "NamedTuple" in kinds
        or ("dataclass(" in kinds and not where.startswith(contract))
    ]


def test_dataclasses_cannot_be_changed() -> None:
    assert not [
        where
        for folder in (CORE, *sorted(PLUGINS.glob("*/src")))
        for where, kinds in classes(folder)
        if "dataclass" in kinds.replace("dataclass_transform", "")
        and "frozen=True" not in kinds
    ]
