"""``onnxplug cache``: what distributions keep on disk, and deleting it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxplug.authoring.record import Record
from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed
from onnxplug_cli.text import (
    data_size,
    plural,
    print_json,
    print_table,
    say,
)

_PREFIX = "onnxplug-"


class FolderSummary(Record):
    """What one distribution keeps.

    Attributes:
        entries: how many files.
        oldest, newest: when one was last used, in seconds since 1970; ``None`` if
            there is none.
    """

    folder: Path
    entries: int
    nbytes: int
    oldest: float | None
    newest: float | None


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command and its two actions."""
    summary = "list or delete what is kept on disk, such as compiled kernels"
    parser = commands.add_parser(
        "cache", help=summary, description=f"{summary.capitalize()}."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser(
        "ls",
        parents=[common],
        help="list it",
        description="List what each distribution keeps on disk.",
    )
    listing.add_argument(
        "--compiled",
        action="store_true",
        help="list each compiled partition that EPs have kept",
    )
    listing.set_defaults(command=_list)
    clearing = actions.add_parser(
        "clear",
        parents=[common],
        help="delete it",
        description="Delete what is kept on disk; it is made again when needed.",
    )
    clearing.add_argument(
        "name", nargs="?", metavar="NAME", help="a distribution (default: all)"
    )
    clearing.set_defaults(command=_clear)


def _list(arguments: argparse.Namespace) -> None:
    from onnxplug.authoring.cache import cache_root

    if arguments.compiled:
        _list_compiled(as_json=arguments.json)
        return
    root = cache_root()
    kept = [_look(folder) for folder in _folders(root)]
    if arguments.json:
        print_json({"path": str(root), "distributions": [_data(each) for each in kept]})
        return
    say(escape(root))
    if not kept:
        say("Nothing is kept there.")
        return
    say()
    print_table(
        ("NAME", "ENTRIES", "SIZE", "OLDEST", "NEWEST"),
        [
            (
                each.folder.name,
                str(each.entries),
                data_size(each.nbytes),
                _time(each.oldest),
                _time(each.newest),
            )
            for each in kept
        ],
        right=("ENTRIES", "SIZE"),
    )


def _list_compiled(*, as_json: bool) -> None:
    from onnxplug.partition.cache import FOLDER, entries

    found = list(entries())
    if as_json:
        rows = [
            {
                "name": each.name,
                "bytes": each.nbytes,
                "used": _time(each.used),
                **each.facts,
            }
            for each in found
        ]
        print_json({"folder": FOLDER, "compiled": rows})
        return
    if not found:
        say("No compiled partitions are kept.")
        return
    print_table(
        ("EP", "DEVICE", "MODEL", "NODES", "INPUTS", "SIZE", "USED"),
        [
            (
                *(escape(str(each.facts.get(key, "?"))) for key in _COLUMNS),
                escape(_shapes(each.facts.get("inputs"))),
                data_size(each.nbytes),
                _time(each.used),
            )
            for each in found
        ],
        right=("NODES", "SIZE"),
    )


_COLUMNS = ("ep", "device", "model", "nodes")


def _shapes(inputs: Any) -> str:
    """``x[2,3] y[n]`` of sizes by input."""
    if not isinstance(inputs, dict):
        return "?"
    return " ".join(f"{name}[{','.join(map(str, s))}]" for name, s in inputs.items())


def _clear(arguments: argparse.Namespace) -> None:
    import shutil

    from onnxplug.authoring.cache import cache_root, require_own_way

    root = cache_root()
    if root.is_dir():
        # where others may rename folders, what is looked at need not be what is deleted
        require_own_way(str(root))
    folders = list(_folders(root))
    if arguments.name is not None:
        known = [folder.name for folder in folders]
        wanted = (arguments.name, _PREFIX + arguments.name)
        folders = [folder for folder in folders if folder.name in wanted]
        if not folders:
            raise CommandFailed(
                f"{escape(arguments.name)} keeps nothing in {escape(root)}; "
                f"found {', '.join(known) or 'nothing'}"
            )
    cleared = []
    for folder in folders:
        cleared.append(_look(folder))
        shutil.rmtree(folder)
    if arguments.json:
        print_json({"path": str(root), "cleared": [_data(each) for each in cleared]})
        return
    for each in cleared:
        entries = plural(each.entries, "file")
        say(f"{each.folder.name}: deleted {entries}, {data_size(each.nbytes)}")
    if not cleared:
        say(f"Nothing is kept in {escape(root)}.")


def _folders(root: Path) -> Iterator[Path]:
    """Folders below *root* that say of themselves to be caches of onnxplug.

    No others are touched, whatever ``ONNXPLUG_CACHE_DIR`` is.
    """
    from onnxplug.authoring.cache import TAG, TAG_TEXT
    from onnxplug.authoring.files import NO_LINK, open_regular

    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and not folder.is_symlink():
            try:
                file, _ = open_regular(folder / TAG, flags=NO_LINK)
            except OSError:
                continue
            with open(file, "rb") as opened:
                tag = opened.read(len(TAG_TEXT) + 1)
            if tag == TAG_TEXT.encode("ascii"):
                yield folder


def _look(folder: Path) -> FolderSummary:
    from onnxplug.authoring.cache import TAG

    statuses = []
    for path, _, names in os.walk(folder):  # which follows no links
        for name in names:
            if Path(path, name) != folder / TAG:
                with contextlib.suppress(FileNotFoundError):  # it is gone already
                    statuses.append(os.lstat(os.path.join(path, name)))
    times = [status.st_mtime for status in statuses]
    return FolderSummary(
        folder,
        len(statuses),
        sum(status.st_size for status in statuses),
        min(times, default=None),
        max(times, default=None),
    )


def _data(summary: FolderSummary) -> dict[str, Any]:
    return {
        "name": summary.folder.name,
        "entries": summary.entries,
        "bytes": summary.nbytes,
        "oldest": _time(summary.oldest) or None,
        "newest": _time(summary.newest) or None,
    }


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    from datetime import datetime

    local = datetime.fromtimestamp(seconds).astimezone()
    return local.isoformat(" ", "minutes")
