"""Lists of names that a program gives."""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from typing import Any

from onnxplug.errors import InvalidArgument


def as_names(given: Any, what: str, kind: type[InvalidArgument]) -> list[str]:
    """Names in the order in which they are given; a text is a single one.

    What can be read once, an iterator, or has no order, a set, is refused, as whoever
    reads it again, or reads results by it, would go wrong.

    Args:
        given: a text, a sequence or one-dimensional array of texts, or the keys of a
            dict.
        what: what they are, for errors.
        kind: the class of errors.

    Raises:
        InvalidArgument: it is nothing like that, or one is no text.
    """
    if isinstance(given, str):
        return [given]
    is_array = getattr(given, "ndim", None) == 1
    if isinstance(given, bytes) or not (
        isinstance(given, Sequence | KeysView) or is_array
    ):
        raise kind(
            f"{what} is given as a value of type {type(given).__name__}; expected a "
            "list of names"
        )
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise kind(f"{what} has {name!r}; expected names, each a text")
    return names
