"""Warns where the user's code called, however deep in onnxplug the reason is."""

from __future__ import annotations

import sys
import warnings

from onnxplug.errors import EpWarning

given = 0
"""How many warnings this process has issued."""


def warn_user(
    text: str,
    kind: type[Warning] = EpWarning,
    *,
    cause: BaseException | None = None,
) -> None:
    """Issue a warning at the first caller outside onnxplug.

    Args:
        cause: the error that it is about, which becomes its ``__cause__``.
    """
    global given
    given += 1
    warning = kind(text)
    warning.__cause__ = cause
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(warning, stacklevel=level)


def _is_ours(module: str) -> bool:
    # those of other distributions are called in place of the core, or call it
    package = module.partition(".")[0]
    return package.partition("_")[0] == "onnxplug"
