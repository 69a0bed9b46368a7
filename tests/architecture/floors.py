"""The floors of distributions, and the tables of them in the documentation.

``python tests/architecture/floors.py`` writes these tables anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CORE: Final = ROOT / "core" / "src" / "onnxplug"
NEUTRAL: Final = ROOT / "plugins" / "compiler" / "src" / "onnxplug_compiler"
PAGE: Final = ROOT / "docs" / "explanation" / "architecture.md"

FLOORS: Final = (
    {
        "as_onnxruntime",
        "cancellation",
        "duration",
        "escape",
        "foreign",
        "forks",
        "interruption",
        "levels",
        "paths",
        "search_path",
    },
    {"errors", "ep", "authoring"},
    {
        "attached",
        "guard",
        "hardware",
        "log",
        "names",
        "page",
        "plugins",
        "strictness",
        "suggest",
        "tolerances",
        "warn",
        "weights",
    },
    {"graph"},
    {"shapes", "channels_last", "domains", "layout", "operators", "selection"},
    {
        "compatibility",
        "context_data",
        "custom_operators",
        "prepare",
        "replacements",
        "entries",
        "options",
        "queries",
        "process",
    },
    {"partition"},
    {"run"},
    {"specialise"},
    {"compile"},
    {"calibration", "session", "verify"},
    {"backend", "__main__"},
)
"""A module may import from its own floor and those above it in this list."""

NEUTRAL_FLOORS: Final = (
    {"ir"},
    {"frontend"},
    {"layout"},
    {"schedule"},
    {"segmentation"},
    {"linear_codes", "widening"},
    {"sinking"},
    {"gpu"},
)
"""The same of what compilers have in common; rooms of one floor do not import each
other."""

TABLES: Final = ((CORE, FLOORS), (NEUTRAL, NEUTRAL_FLOORS))
"""In the order of the page."""

HEAD: Final = "| floor | room | what is there |\n| --- | --- | --- |\n"


def rows(folder: Path, floors: Sequence[set[str]]) -> Iterator[str]:
    """The rows of a table, the highest floor first."""
    for number, rooms in reversed([*enumerate(floors, 1)]):
        for position, room in enumerate(sorted(rooms)):
            floor = number if position == 0 else ""
            yield f"| {floor} | `{room}` | {purpose(folder, room)} |"


def purpose(folder: Path, room: str) -> str:
    """The first sentence of what a package or module says of itself."""
    path = folder / room / "__init__.py"
    if not path.exists():
        path = folder / f"{room}.py"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text, f"{path} does not say what is in it"
    return " ".join(text.split("\n\n")[0].split()).rstrip(".").replace("``", "`")


def written() -> str:
    """The page with the tables as they have to be."""
    page, *parts = PAGE.read_text("utf-8").split(HEAD)
    for (folder, floors), part in zip(TABLES, parts, strict=True):
        _, after = re.split(r"\n\n", f"\n{part}", maxsplit=1)
        page += HEAD + "\n".join(rows(folder, floors)) + f"\n\n{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
