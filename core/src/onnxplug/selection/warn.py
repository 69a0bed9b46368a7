"""Warns where the user's code called, however deep in onnxplug the reason is."""

from __future__ import annotations

import sys
import warnings

from onnxplug.errors import EpWarning

_PACKAGE = __name__.partition(".")[0]


def warn_user(text: str, kind: type[Warning] = EpWarning) -> None:
    """Issue a warning at the first caller outside onnxplug."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(text, kind, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
