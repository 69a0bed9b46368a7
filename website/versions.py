"""Puts what was built beside the sites of other versions, and lists them.

    python website/versions.py BUILT FOLDER VERSION

moves BUILT to FOLDER/VERSION, then writes ``versions.json``, from which pages offer
the others, and ``index.html``, which leads to the newest release.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Final

DEVELOPMENT: Final = "development"
"""The version of what is not released."""

LEADING: Final = """\
<!doctype html>
<html lang="en">
  <meta charset="utf-8">
  <title>onnxplug</title>
  <meta http-equiv="refresh" content="0; url={target}/index.html">
  <a href="{target}/index.html">onnxplug {target}</a>
</html>
"""


def add(built: Path, folder: Path, version: str) -> None:
    """Make *built* the site of *version* in *folder*, in place of what it had.

    Raises:
        ValueError: *version* is none.
    """
    _numbers(version)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.move(built, folder / version)
    versions = found(folder)
    newest = latest(versions)
    listed = [
        {
            "version": each,
            "title": each,
            "aliases": ["latest"] if each == newest else [],
        }
        for each in versions
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
    (folder / "index.html").write_text(LEADING.format(target=newest), "utf-8")


def found(folder: Path) -> list[str]:
    """The versions that *folder* has: what is not released, then the newest first."""
    names = [each.parent.name for each in folder.glob("*/sitemap.xml")]
    return sorted(names, key=_numbers, reverse=True)


def latest(versions: list[str]) -> str:
    """The newest release; what is not released, if nothing is."""
    return next((each for each in versions if each != DEVELOPMENT), DEVELOPMENT)


def _numbers(version: str) -> tuple[float, ...]:
    if version == DEVELOPMENT:
        return (float("inf"),)
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise ValueError(
            f"{version!r} is no version of the site; expected {DEVELOPMENT!r} or "
            "numbers, such as 0.1: make site VERSION=0.1"
        )
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    add(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
