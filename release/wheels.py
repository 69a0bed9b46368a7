"""Builds the wheels and source distributions of a release, twice, and compares them.

    python release/wheels.py [--dirty] FOLDER

The second time it builds copies, elsewhere, whose files are younger and only their
owner's, in another time zone.  Who builds the same commit with the same hatchling gets
the same bytes, and can compare them with ``SHA256SUMS``, which is written beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

SUMS: Final = "SHA256SUMS"

AGAIN: Final = "again"
"""The folder of what is built a second time, until it was compared."""


class ReleaseError(Exception):
    """The release cannot be built; the text says what to do."""


def folders(root: Path = ROOT) -> dict[str, Path]:
    """The folder of each distribution, by its name; the core first."""
    found = [
        root / "core",
        *sorted(path.parent for path in root.glob("plugins/*/pyproject.toml")),
    ]
    return {project(folder)["name"]: folder for folder in found}


def project(folder: Path) -> Mapping[str, str]:
    """The table ``project`` of a distribution."""
    text = (folder / "pyproject.toml").read_text("utf-8")
    table: Mapping[str, str] = tomllib.loads(text)["project"]
    return table


def epoch(root: Path = ROOT, *, dirty: bool = False) -> int:
    """The time that files in archives have: SOURCE_DATE_EPOCH, or that of the commit.

    Args:
        dirty: build what is there, though the commit has something else.

    Raises:
        ReleaseError: what is there is not what was committed, or nothing was.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    try:
        changed = _git(root, "status", "--porcelain", "--", "core", "plugins")
        time = _git(root, "log", "-1", "--format=%ct")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(
            f"{root} has no commit to take the time from; set SOURCE_DATE_EPOCH to "
            "that of the release, in seconds since 1970"
        ) from error
    if changed and not dirty:
        raise ReleaseError(
            "core and plugins are not as they were committed, so nobody could build "
            f"the same; commit, or build with --dirty:\n{changed}"
        )
    return int(time)


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip()


def build(
    folder: Path, out: Path, time: int, environment: Mapping[str, str] | None = None
) -> None:
    """Build the wheel and the source distribution of *folder* into *out*.

    Raises:
        ReleaseError: hatchling fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel",
         "-d", str(out.resolve())],
        cwd=folder,
        env={**os.environ, **(environment or {}), "SOURCE_DATE_EPOCH": str(time)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(f"hatchling cannot build {folder}:\n{done.stderr}")


def build_elsewhere(folder: Path, out: Path, time: int) -> None:
    """Build a copy of *folder* that differs in all that should not matter."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "in", "another", "place")
        shutil.copytree(
            folder,
            copy,
            ignore=shutil.ignore_patterns("__pycache__", "dist", "*.egg-info"),
        )
        # which hatchling looks for above, and heeds
        shutil.copyfile(ROOT / ".gitignore", copy.with_name(".gitignore"))
        for path in copy.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (2_000_000_000, 2_000_000_000))
        build(
            copy, out, time, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
        )


def sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each archive in *folder*, by its name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.suffix in (".whl", ".gz")
    }


def check(first: Path, second: Path) -> None:
    """Compare what was built twice.

    Raises:
        ReleaseError: something differs.
    """
    ours, theirs = sums(first), sums(second)
    different = [
        name
        for name in ours.keys() | theirs.keys()
        if ours.get(name) != theirs.get(name)
    ]
    if different or not ours:
        names = ", ".join(sorted(different)) or "nothing"
        raise ReleaseError(
            f"built twice, these are not the same: {names}; compare {first} and "
            f"{second}, for instance with diffoscope"
        )


def clear(out: Path) -> None:
    """Make *out* a folder with nothing in it.

    Raises:
        ReleaseError: something is there that no release has; nothing is deleted.
    """
    if out.exists():
        others = [
            path.name
            for path in sorted(out.iterdir())
            if path.suffix not in (".whl", ".gz")
            and path.name not in (AGAIN, SUMS, ".gitignore")
        ]
        if others:
            raise ReleaseError(
                f"{out} has {others[0]}, which is not of a release, and would be "
                "deleted; name a folder that is for releases only"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)


def release(out: Path, *, dirty: bool) -> None:
    """Build everything into *out*, which is made anew, twice, and write the sums."""
    time = epoch(dirty=dirty)
    clear(out)
    again = out / AGAIN
    for name, folder in folders().items():
        print(f"building {name} {project(folder)['version']} …", flush=True)
        build(folder, out, time)
        build_elsewhere(folder, again, time)
    check(out, again)
    shutil.rmtree(again)
    lines = [f"{digest}  {name}\n" for name, digest in sums(out).items()]
    (out / SUMS).write_text("".join(lines), "utf-8")
    print(f"{len(lines)} archives in {out}, each built twice with the same bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dirty", action="store_true")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        release(arguments.folder, dirty=arguments.dirty)
    except ReleaseError as error:
        sys.exit(str(error))
