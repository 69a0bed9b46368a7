"""The process that Core AI works in, which its threads do not leave by a fork."""

from __future__ import annotations

import os
from typing import Final

_used_by: Final[list[int]] = []
"""The process that used it first; the children of its forks have this, too."""


def enter() -> None:
    """Be the process that uses Core AI.

    Raises:
        RuntimeError: a process that this one was forked from is; calls would not end.
    """
    if not _used_by:
        _used_by.append(os.getpid())
    elif _used_by[0] != os.getpid():
        raise RuntimeError(
            "Core AI was used before this process was forked, and its threads are not "
            "here; start processes by spawn, or by fork before the first session on "
            "Core AI"
        )
