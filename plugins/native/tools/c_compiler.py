"""Which C compiler there is."""

from __future__ import annotations

import importlib.util
import shutil
import sys


def c_compiler() -> list[str] | None:
    """The system's, or else that of the distribution ``ziglang``, if it is there."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang") is None:
        return None
    # it would end the process where C does not say what happens
    return [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined"]
