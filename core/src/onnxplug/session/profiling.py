"""The trace of a session: which session owns it, and the stages of its runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from onnxplug.options import SessionOptions
from onnxplug.run.profiling import Profile, stage

_EXECUTE: Final = "SequentialExecutor::Execute"
"""What ONNX Runtime's traces call a run without the checks around it."""


@contextlib.contextmanager
def new_profile(options: SessionOptions) -> Iterator[Profile | None]:
    """A profile if *options* want one, discarded when making the session fails.

    Raises:
        OptionError: the trace cannot be written.
    """
    if not options.enable_profiling:
        yield None
        return
    profile = Profile(options.profile_file_prefix)
    try:
        yield profile
    except BaseException:
        profile.discard()
        raise


def recorded_run(profile: Profile | None) -> AbstractContextManager[None]:
    """A run with the checks around it, recorded if there is a profile."""
    return nullcontext() if profile is None else profile.run()


def recorded_execution(profile: Profile | None) -> AbstractContextManager[None]:
    """A run without the checks around it, recorded if there is a profile."""
    return stage(profile, _EXECUTE)
