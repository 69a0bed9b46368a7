"""The files of a new distribution: its templates with its own names in them.

Templates are files of an EP that works, ``AcmeExecutionProvider`` in the module
``acme_ep`` of the distribution ``acme-ep``, so that they are checked like others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed
from onnxplug_cli.new_ep.names import Names
from onnxplug_cli.new_ep.styles import STYLES

_TEMPLATES: Final = Path(__file__).parent / "templates"

_NAME: Final = re.compile(r"acme[-_]ep|Acme|\bacme\b")


def files(style: str, names: Names) -> dict[str, str]:
    """Texts of a distribution, by their paths in it, in order.

    Args:
        style: a key of ``STYLES``.
    """
    texts: dict[str, str] = {}
    for layer in STYLES[style].layers:
        root = _TEMPLATES / layer
        for template in root.rglob("*"):
            if template.is_file() and template.parent.name != "__pycache__":
                path = template.relative_to(root).as_posix()
                texts[path] = template.read_text("utf-8")
    return {_named(path, names): _named(texts[path], names) for path in sorted(texts)}


def _named(text: str, names: Names) -> str:
    own = {
        "acme-ep": names.distribution,
        "acme_ep": names.module,
        "Acme": names.stem,
        "acme": names.short,
    }
    return _NAME.sub(lambda found: own[found[0]], text)


def write(texts: Mapping[str, str], folder: Path) -> list[str]:
    """Write *texts* by their paths below *folder*, which is made if it is not there.

    Returns:
        The paths.

    Raises:
        CommandFailed: one of them exists; nothing is written.
        OSError: a file cannot be written.
    """
    for path in texts:
        if (folder / path).exists() or (folder / path).is_symlink():
            raise CommandFailed(
                f"{escape(folder / path)} exists, and is not overwritten; name another "
                "folder by --folder"
            )
    for path, text in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # which fails if it came to be meanwhile
        with open(target, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return list(texts)
