"""The floors of the core, and the table of them in the documentation.

``python tests/architecture/floors.py`` writes that table anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CORE: Final = ROOT / "core" / "src" / "onnxplug"
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
    },
    {"errors", "ep", "authoring"},
    {
        "guard",
        "hardware",
        "log",
        "names",
        "plugins",
        "strictness",
        "suggest",
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
    {"session", "verify"},
    {"backend", "__main__"},
)
"""A module may import from its own floor and those above it in this list."""

HEAD: Final = "| floor | room | what is there |\n| --- | --- | --- |\n"


def rows() -> Iterator[str]:
    """The rows of the table, the highest floor first."""
    for number, rooms in reversed([*enumerate(FLOORS, 1)]):
        for position, room in enumerate(sorted(rooms)):
            floor = number if position == 0 else ""
            yield f"| {floor} | `{room}` | {purpose(room)} |"


def purpose(room: str) -> str:
    """The first sentence of what a package or module says of itself."""
    path = CORE / room / "__init__.py"
    if not path.exists():
        path = CORE / f"{room}.py"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text, f"{path} does not say what is in it"
    return " ".join(text.split("\n\n")[0].split()).rstrip(".").replace("``", "`")


def written() -> str:
    """The page with the table as it has to be."""
    before, table = PAGE.read_text("utf-8").split(HEAD)
    _, after = re.split(r"\n\n", f"\n{table}", maxsplit=1)
    return f"{before}{HEAD}" + "\n".join(rows()) + f"\n\n{after}"


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
