"""Where distributions are looked for, and in which state those places are.

Invariant: what lies in the folder that the program was started in counts only if the
user named that folder, for it may hold anything, a downloaded model's files, say.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from onnxplug.interruption import raise_interruption

METADATA: Final = (".dist-info", ".egg-info")
"""What the names of folders with a distribution's metadata end in."""

_SITES: Final = ("site-packages", "dist-packages")
"""Folders in which nobody but installers writes."""

_USUAL_FINDERS: Final = (
    "_frozen_importlib_external",
    "importlib_metadata",
    "onnxplug_onnxruntime.stand_in",
)
"""Modules of the finders that find no plugin but in the folders of ``sys.path``."""


def finders_are_usual() -> bool:
    """Whether nothing finds distributions but in the folders of ``sys.path``."""
    return not any(
        hasattr(finder, "find_distributions")
        and finder.__module__ not in _USUAL_FINDERS
        for finder in sys.meta_path
    )


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


_STARTED_IN: Final = _current_folder()


def search_path() -> list[str]:
    """``sys.path`` without the current folder where nobody named it.

    Python puts it there by itself: as ``""`` for ``-c`` and at the prompt, by its name
    for ``-m``, and by its name for an empty item of ``PYTHONPATH``.  Where it stands a
    second time, it was named: in ``PYTHONPATH``, in a ``.pth`` file, or by the program.
    """
    # others are no folders to Python either
    paths = [path for path in sys.path if path and isinstance(path, str)]
    for folder in (_put_by_python(), _put_by_an_empty_item()):
        if folder in paths:
            paths.remove(folder)
    return paths


def _put_by_python() -> str:
    """The folder that stands on ``sys.path`` because the program was started there."""
    if sys.flags.safe_path:
        return ""
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:  # python -m, python archive.zip
        return _STARTED_IN
    process = sys.modules.get("multiprocessing.process")
    if (
        process is not None
        and process.parent_process() is not None
        and "" not in sys.path
        and not hasattr(main, "__file__")
    ):
        # what was "" to the parent of a process that was spawned
        return str(process.ORIGINAL_DIR)
    return ""


def _put_by_an_empty_item() -> str:
    variable = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    items = variable.split(os.pathsep)
    named = [os.path.abspath(item) for item in items if item]
    if variable and "" in items and _STARTED_IN not in named:
        return _STARTED_IN
    return ""


def surroundings() -> tuple[Any, ...] | None:
    """What is installed, and the variables that onnxplug and its plugins read, as plain
    values; ``None`` where :func:`installed_state` tells nothing."""
    installed = installed_state()
    if installed is None:
        return None
    ours = [each for each in os.environ.items() if each[0].startswith("ONNXPLUG_")]
    return installed, tuple(sorted(ours))


def installed_state() -> tuple[Any, ...] | None:
    """What changes when a distribution is installed, upgraded or removed, as plain
    values; ``None`` where that cannot be told without looking for all of them."""
    if not finders_are_usual():
        return None
    found: list[tuple[Any, ...]] = []
    for path in search_path():
        if path.endswith(".egg"):
            return None
        try:
            if path.endswith(_SITES):
                found.append((path, os.stat(path).st_mtime_ns))
                continue
            names = [n for n in os.listdir(path) if n.lower().endswith(METADATA)]
            times = [os.stat(os.path.join(path, n)).st_mtime_ns for n in sorted(names)]
            found.append((path, sorted(names), times))
        except OSError as error:
            raise_interruption(error)
            if isinstance(error, NotADirectoryError):  # an archive
                return None
    return tuple(found)
