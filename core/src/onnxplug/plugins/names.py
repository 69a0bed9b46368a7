"""How names of EPs and of distributions are spelled, and compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SUFFIX: Final = "executionprovider"
PREFIX: Final = "onnxplug-"
"""What the names of onnxplug's own distributions begin with."""


def short_name(ep: str) -> str:
    """An EP's name in lower case and without its suffix."""
    return ep.lower().removesuffix(_SUFFIX)


def normal_distribution(distribution: str) -> str:
    """A distribution's name, spelled as the package index compares it."""
    return distribution.lower().replace("_", "-").replace(".", "-")


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of *known*; empty when none is near."""
    import difflib

    names = dict.fromkeys(map(short_name, known))
    near = difflib.get_close_matches(short_name(name), names, n=2)
    return f"  Did you mean {' or '.join(map(repr, near))}?" if near else ""
