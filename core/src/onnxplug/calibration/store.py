"""Verdicts on disk: once for all processes, until something that matters changes."""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.entries import Cache
from onnxplug.calibration.verdict import Verdict

_DISTRIBUTION: Final = "onnxplug"


def load(name: str) -> Verdict | None:
    """The verdict of an entry; ``None`` if there is none that can be trusted."""
    content = Cache(_DISTRIBUTION).load(name)
    if content is None:
        return None
    try:
        return Verdict.from_bytes(content)
    # of a version that wrote it otherwise
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def store(name: str, verdict: Verdict) -> str:
    """Keep *verdict*; returns why it cannot be kept, empty if it is."""
    cache = Cache(_DISTRIBUTION)
    problem = cache.store(name, verdict.to_bytes())
    cache.prune_if_due()
    return problem
