"""Writes the page of which versions go together, from what the distributions declare.

python tests/docs/versions.py
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from onnxplug.ep import SPI_VERSION

ROOT: Final = Path(__file__).parents[2]

PAGE: Final = ROOT / "docs" / "reference" / "versions.md"

MARK: Final = "\n## The distributions of this state\n"
"""What stands on the page before it is written by hand."""

NOT_SHOWN: Final = {"numpy", "ml_dtypes"}
"""What all have, whose versions the core decides."""

PARTS_OF_THE_HOST: Final = {
    "onnxplug-cli",
    "onnxplug-onnxruntime",
    "onnxplug-ray",
    "onnxplug-serve",
}
"""Those that are for one version of the core."""


@dataclass
class Distribution:
    """What a distribution declares.

    Attributes:
        ours: the distributions of this repository that it needs.
        engines: the others that it needs, or can with an extra, whose name follows.
        spi: the version of the SPI that its EPs or operators were written for.
    """

    name: str
    version: str
    python: str
    ours: list[Requirement]
    engines: list[tuple[Requirement, str]]
    spi: str


def distributions() -> list[Distribution]:
    """Those of this repository, the core first."""
    paths = [ROOT / "core", *sorted((ROOT / "plugins").iterdir())]
    return [read(path) for path in paths if (path / "pyproject.toml").exists()]


def read(folder: Path) -> Distribution:
    about = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [(Requirement(line), "") for line in about["dependencies"]]
    for extra, lines in about.get("optional-dependencies", {}).items():
        needed += [(Requirement(line), extra) for line in lines]
    return Distribution(
        about["name"],
        about["version"],
        about["requires-python"],
        [each for each, extra in needed if is_ours(each) and not extra],
        [pair for pair in needed if not is_ours(pair[0])],
        spi_of(folder),
    )


def is_ours(requirement: Requirement) -> bool:
    return re.fullmatch(r"onnxplug(-\w+)?", requirement.name) is not None


def spi_of(folder: Path) -> str:
    """What the sources of a distribution say in ``spi_version``; empty if nothing."""
    found = set()
    for path in sorted((folder / "src").rglob("*.py")):
        # a template is of a distribution to come, and a toy shows an older one
        if "templates" not in path.parts and path.name != "toy.py":
            text = path.read_text("utf-8")
            found |= set(re.findall(r"\bspi_version ?= ?\((\d+), (\d+)\)", text))
    return ", ".join(".".join(pair) for pair in sorted(found))


def write() -> str:
    """The text of the page."""
    head = PAGE.read_text("utf-8").partition(MARK)[0]
    major, minor = SPI_VERSION
    all_of_them = distributions()
    core = all_of_them[0]
    lines = [
        f"{head}{MARK}",
        f"onnxplug {core.version} speaks SPI {major}.{minor}. "
        f"All need Python {core.python}.",
        "",
        "| distribution | version | SPI | needs of these | needs besides |",
        "| --- | --- | --- | --- | --- |",
        *map(row, all_of_them),
    ]
    return "\n".join(lines) + "\n"


def row(found: Distribution) -> str:
    ours = ", ".join(shown(each) for each in found.ours)
    engines = ", ".join(besides(found))
    return (
        f"| `{found.name}` | {found.version} | {found.spi or '–'} | {ours or '–'} "
        f"| {engines or '–'} |"
    )


def besides(found: Distribution) -> Iterator[str]:
    for requirement, extra in found.engines:
        if requirement.name not in NOT_SHOWN or found.name == "onnxplug":
            yield shown(requirement) + (f" (`[{extra}]`)" if extra else "")


def shown(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    # as a person writes it: from the lower bound to the upper
    bounds = sorted(map(str, requirement.specifier), key=lambda text: text[0] != ">")
    where = f"; {requirement.marker}" if requirement.marker else ""
    return f"`{requirement.name}{extras}{','.join(bounds)}{where}`".replace('"', "'")


if __name__ == "__main__":
    PAGE.write_text(write(), "utf-8")
