"""Regular expressions of RE2, which match in time proportional to the text.

They work on UTF-8, whose bytes are what RE2 reads; places in a text are of its bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from onnxplug_kernels.registry import UnsupportedAttribute

_KEPT: Final = 64
"""Patterns that stay compiled; RE2 lets each have 8 MiB."""


class Match(Protocol):
    """Where a pattern matches."""

    def span(self) -> tuple[int, int]:
        """The first byte, and the one after the last."""


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: bytes) -> Match | None:
        """The match of the whole text, if there is one."""

    def search(self, text: bytes, pos: int = 0) -> Match | None:
        """The first match from a byte on."""


@functools.lru_cache(maxsize=_KEPT)
def compile_re2(pattern: str, *, longest: bool = False) -> Pattern:
    """The pattern as RE2 understands it.

    Source: https://github.com/google/re2/wiki/Syntax.

    Args:
        longest: of several matches at a place, the longest counts and not the one of
            the first alternative.

    Raises:
        ValueError: *pattern* is not valid, or larger than RE2 allows.
    """
    import re2 as untyped

    re2: Any = untyped
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        compiled: Pattern = re2.compile(encoded(pattern), options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        if isinstance(said, bytes):
            said = said.decode(errors="replace")
        raise ValueError(f"the pattern {pattern!r} is not valid: {said}") from error
    return compiled


_CLASS: Final = re.compile(
    r"\[((?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]"
    r"|[^\W\d]|[0-9_ ,;:=@#%]|\\[wds.])+)\]\+"
)
"""One or more of a class that means the same to Python: of ranges and of single
characters that are not special, and of some that are written with a backslash."""


class Runs:
    """Finds runs of characters of a class, each as long as it can be.

    Nothing is searched that could take longer than the text is, and no run is longer
    than another at the same place, so that it need not be RE2 that looks for them.

    Args:
        characters: between brackets, in Python's syntax.
    """

    def __init__(self, characters: str) -> None:
        self._pattern = re.compile(f"[{characters}]+", re.ASCII)
        found = re.compile(f"[{characters}]", re.ASCII).fullmatch
        kept = [bool(found(chr(code))) for code in range(128)]
        # others become what texts are split at
        self._spaced: Mapping[int, str | int] | None = {
            code: code if kept[code] else " " for code in range(128)
        }
        if any(kept[ord(space)] for space in " \t\n\v\f\r\x1c\x1d\x1e\x1f"):
            self._spaced = None

    def __call__(self, text: str) -> list[str]:
        """The runs in *text*, which is to have a form in UTF-8."""
        if self._spaced is not None and text.isascii():
            return text.translate(self._spaced).split()
        return self._pattern.findall(text)


@functools.lru_cache(maxsize=_KEPT)
def find_runs(pattern: str) -> Runs | None:
    """What finds the longest matches of *pattern* if that is one or more of a class of
    characters; ``None`` of others."""
    found = _CLASS.fullmatch(pattern)
    if found is None:
        return None
    # Python's has the vertical tab, too
    characters = found[1].replace(r"\s", r"\t\n\f\r ")
    try:
        return Runs(characters)
    except re.error:  # a range that ends before it begins
        return None


def encoded(text: Any) -> bytes:
    """*text* in UTF-8.

    Raises:
        ValueError: it is no text, or has half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not UTF-8, as texts of ONNX have to be")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{text!r} has half of a surrogate pair, which UTF-8 has no form for"
        ) from error


def check_patterns(*names: str, longest: bool = False) -> Any:
    """A check of a node's attributes *names*: patterns, or tuples of them."""

    def check(attributes: Mapping[str, Any]) -> None:
        for name in names:
            given = attributes.get(name, ())
            for pattern in (given,) if isinstance(given, str | bytes) else given:
                try:
                    compile_re2(pattern, longest=longest)
                except ValueError as error:
                    raise UnsupportedAttribute(f"{name}: {error}") from error

    return check
