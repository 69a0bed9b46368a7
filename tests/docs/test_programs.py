"""The guide names what ``make test-programs`` runs, with the versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "move-from-onnxruntime.md"


def test_the_guide_names_the_programs_that_are_tested() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    alone = re.findall(
        r"^ALONE_OF_PROGRAMS := (.*)$", (ROOT / "Makefile").read_text(), re.M
    )
    # what is pinned to the last number, but PyTorch, is a program
    pinned = re.compile(r"(?!torch)([\w-]+)(?:\[.*\])?==([\d.]+)")
    words = " ".join(alone).split()
    programs = [
        found.groups()
        for found in map(pinned.fullmatch, [*groups["programs"], *words])
        if found
    ]
    assert len(programs) >= 9
    guide = GUIDE.read_text()
    for name, version in programs:
        assert f" {name} {version} " in guide.replace(",", " "), name
