"""Suggests the name that was meant, to whoever wrote one that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(written: str, known: Iterable[str]) -> str:
    """A question that names the nearest of *known*; empty when none is near."""
    # imported here: it takes 2 ms, and most names are right
    import difflib

    near = difflib.get_close_matches(written, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
