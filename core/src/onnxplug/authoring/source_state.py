"""The state of source code on disk, by which what it made is told from what it would
make now."""

from __future__ import annotations

import os

from onnxplug.interruption import raise_interruption


def state_of(*folders: str) -> str:
    """What changes whenever source in these folders does.

    Names, sizes and times of the files; reading them all would take ten times as long.
    """
    found: list[str] = []
    left = list(folders)
    try:
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    name = entry.name
                    if name.endswith((".py", ".pyc")):
                        status = entry.stat()
                        found.append(f"{name} {status.st_size} {status.st_mtime_ns}")
                    elif name != "__pycache__" and entry.is_dir():
                        left.append(entry.path)
    except OSError as error:
        raise_interruption(error)
        return ""  # it is in an archive, which has the version of the distribution
    return "\n".join(sorted(found))
