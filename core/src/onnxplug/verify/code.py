"""The code of an EP, as far as a change of it can be seen without reading it."""

from __future__ import annotations

import contextlib
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
    folder_or_file = _home(str(type(factory).__module__))
    if folder_or_file is None:
        return None
    files = sorted(_files(folder_or_file))
    return fingerprint(json.dumps(files)).hex() if files else None


def _home(module: str) -> str | None:
    """The folder of the outermost package around *module* that is no namespace; of a
    module in namespaces only its folder, and of one in no package its file."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        found = sys.modules.get(".".join(parts[:count]))
        file = _file(found)
        if file is not None:
            is_alone = count == 1 and not hasattr(found, "__path__")
            return file if is_alone else os.path.dirname(file)
    return None


def _file(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and os.path.isfile(file) else None


def _files(folder_or_file: str) -> Iterator[tuple[str, int, int]]:
    if os.path.isfile(folder_or_file):
        yield from _facts(folder_or_file, "")
        return
    seen: set[str] = set()
    for folder, inner, names in os.walk(folder_or_file, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder around it
            inner.clear()
            continue
        seen.add(real)
        # importing writes there
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in names:
            path = os.path.join(folder, name)
            yield from _facts(path, os.path.relpath(path, folder_or_file))


def _facts(path: str, name: str) -> Iterator[tuple[str, int, int]]:
    """The facts of a file, if there is one: editors leave links that lead nowhere."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        yield name, status.st_size, status.st_mtime_ns
