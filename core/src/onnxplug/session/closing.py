"""Closes sessions and their models, whatever goes wrong in one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.run.profiling import Profile


def close_model(built: BuiltModel, profile: Profile | None) -> None:
    """Close what a session has, and write its trace.

    Raises:
        EpError: closing an EP or a partition failed.
    """
    try:
        if profile is not None:
            profile.hear(wait=True)  # of EPs that are open
        built.close()
    finally:
        if profile is not None:
            # nobody is there to whom it could be raised that a file cannot be written
            with contextlib.suppress(OSError):
                profile.end()


def call_each(closers: Iterable[Callable[[], object]]) -> None:
    """Close sessions and models, each whatever those before it raise.

    Raises:
        EpError: closing an EP or a partition failed.
    """
    with contextlib.ExitStack() as stack:
        for close in reversed(list(closers)):
            stack.callback(close)
