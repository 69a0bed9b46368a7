"""The code of an EP, as far as a change of it can be seen without reading it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxplug.authoring.entries import fingerprint

if TYPE_CHECKING:
    from types import ModuleType

    from onnxplug.ep import EpFactory


def code_digest(factory: EpFactory) -> str | None:
    """What changes with a file of the package that has the class of *factory*.

    A version does not, where a package is installed to be edited.  Names, sizes and
    times of files are taken; ``None`` if there are none, as of a class typed into an
    interpreter.
    """
    folder_or_file = _home(type(factory).__module__)
    if folder_or_file is None:
        return None
    try:
        files = sorted(_files(folder_or_file))
    except OSError:
        return None
    return fingerprint(json.dumps(files)).hex() if files else None


def _home(module: str) -> str | None:
    """The folder of the outermost package around *module* that is no namespace, or the
    file of a module that is in none."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        found = sys.modules.get(".".join(parts[:count]))
        file = _file(found)
        if file is not None:
            return os.path.dirname(file) if hasattr(found, "__path__") else file
    return None


def _file(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and os.path.isfile(file) else None


def _files(folder_or_file: str) -> Iterator[tuple[str, int, int]]:
    if os.path.isfile(folder_or_file):
        yield _facts(folder_or_file, "")
        return
    for folder, inner, names in os.walk(folder_or_file):
        # importing writes there
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in names:
            path = os.path.join(folder, name)
            yield _facts(path, os.path.relpath(path, folder_or_file))


def _facts(path: str, name: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return name, status.st_size, status.st_mtime_ns
