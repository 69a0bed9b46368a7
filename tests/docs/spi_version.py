"""Writes the version of the interface where pages show it, as it is.

    python tests/docs/spi_version.py

Pages name it nowhere else.  Those that tell its history name older ones, and are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onnxplug.ep import SPI_VERSION

ROOT: Final = Path(__file__).parents[2]

HISTORY: Final = {
    "docs/explanation/decisions.md",
    "docs/how-to/move-an-ep-to-a-newer-spi.md",
    "docs/reference/authoring.md",
    "docs/reference/spi-changelog.md",
    "docs/reference/spi-promise.md",
    "docs/reference/spi.md",
    "docs/reference/versions.md",
}
"""Pages that tell what each version has changed, or are generated."""

_SHOWN: Final = re.compile(r"(spi_version ?= ?\(|\bSPI )(\d+)(, |\.)(\d+)")


def pages() -> Iterator[Path]:
    """The pages that may show the version."""
    patterns = ("README.md", "*/README.md", "plugins/*/README.md", "docs/**/*.md")
    for pattern in patterns:
        for page in sorted(ROOT.glob(pattern)):
            if page.relative_to(ROOT).as_posix() not in HISTORY:
                yield page


def written(text: str) -> str:
    """*text* with the version as it is."""
    major, minor = SPI_VERSION
    return _SHOWN.sub(rf"\g<1>{major}\g<3>{minor}", text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text("utf-8")), "utf-8")
