"""Regular expressions in RE2's syntax, translated to Python's.

Source: https://github.com/google/re2/wiki/Syntax.  Only what the two spell or mean
differently is rewritten.  Python accepts more than RE2 (lookaround, references to
groups); that is not refused.
"""

from __future__ import annotations

import functools
import re
import string
import sys
import unicodedata
from typing import Final

# Perl's classes, which are of ASCII only in RE2
_ESCAPES: Final = {
    "d": "0-9",
    "s": r"\t\n\f\r ",
    "w": "0-9A-Za-z_",
}
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": re.escape(string.punctuation),
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_WORD_BOUNDARY: Final = (
    r"(?:(?<![0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?![0-9A-Za-z_]))"
)
_REPEAT: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_CLASS_NAME: Final = re.compile(r"\[:(\^?)(\w+):\]")
_CATEGORY: Final = re.compile(r"\{(\^?)(\w+)\}|(\w)")
_HEXADECIMAL: Final = re.compile(r"x\{([0-9A-Fa-f]+)\}")


@functools.lru_cache(maxsize=64)
def compile_re2(pattern: str) -> re.Pattern[str]:
    """The Python pattern that matches what *pattern* matches in RE2.

    Raises:
        ValueError: *pattern* is not understood.
    """
    try:
        return re.compile(_Translation(pattern).result)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is not valid: {error}") from error


class _Translation:
    """One pass over a pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        # of each open group: whether $ matches at line ends, and how many groups
        # were opened in it for flags that hold until its end
        self._multiline = [False]
        self._scopes = [0]
        parts = []
        while self._position < len(pattern):
            parts.append(self._next())
        self.result = "".join(parts) + ")" * self._scopes[0]

    def _next(self) -> str:
        pattern, start = self._pattern, self._position
        if flags := _FLAGS.match(pattern, start):
            self._position = flags.end()
            return self._flags(flags)
        self._position += 1
        match pattern[start]:
            case "\\":
                return self._escape()
            case "[":
                return self._set()
            case "$":
                # Python's would match before a line end that ends the text, too
                return "$" if self._multiline[-1] else r"\Z"
            case "(":
                self._multiline.append(self._multiline[-1])
                self._scopes.append(0)
                named = re.match(r"\?<(?=\w)", pattern[self._position :])
                if named:
                    self._position += named.end()
                    return "(?P<"
                return "("
            case ")":
                if len(self._scopes) == 1:
                    return ")"
                self._multiline.pop()
                return ")" * (self._scopes.pop() + 1)
            case "{" if not _REPEAT.match(pattern, start):
                return r"\{"
        return pattern[start]

    def _flags(self, flags: re.Match[str]) -> str:
        on, off, end = flags[1], flags[2] or "", flags[3]
        if "U" in on + off:
            raise ValueError(
                f"the pattern {self._pattern!r} swaps greedy and lazy repetition "
                f"with the flag U, which is not supported; write *? instead of *"
            )
        multiline = "m" in on or (self._multiline[-1] and "m" not in off)
        opening = f"(?{on}-{off}:" if off else f"(?{on}:"
        if end == ":":
            self._multiline.append(multiline)
            self._scopes.append(0)
        else:
            # Python allows flags without a group only at the start of a pattern
            self._multiline[-1] = multiline
            self._scopes[-1] += 1
        return opening

    def _escape(self, *, in_set: bool = False) -> str:
        pattern = self._pattern
        if self._position == len(pattern):
            return "\\"
        letter = pattern[self._position]
        self._position += 1
        if letter == "Q":
            end = pattern.find(r"\E", self._position)
            literal = pattern[self._position : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(pattern)
            return re.escape(literal)
        if letter in "pP":
            return self._category(negated=letter == "P", in_set=in_set)
        if hexadecimal := _HEXADECIMAL.match(pattern, self._position - 1):
            self._position = hexadecimal.end()
            return rf"\U{int(hexadecimal[1], 16):08X}"
        if letter.lower() in _ESCAPES:
            return _members(
                _ESCAPES[letter.lower()], negated=letter.isupper(), in_set=in_set
            )
        match letter:
            case "z":
                return r"\Z"
            case "b" if not in_set:
                return _WORD_BOUNDARY
            case "B" if not in_set:
                return f"(?!{_WORD_BOUNDARY})"
        return "\\" + letter

    def _category(self, *, negated: bool, in_set: bool) -> str:
        name = _CATEGORY.match(self._pattern, self._position)
        if name is None:
            raise ValueError(f"the pattern {self._pattern!r} has \\p without a name")
        self._position = name.end()
        members = _category_members(name[2] or name[3])
        return _members(members, negated=negated ^ bool(name[1]), in_set=in_set)

    def _set(self) -> str:
        pattern = self._pattern
        parts = ["["]
        if pattern.startswith("^", self._position):
            parts.append("^")
            self._position += 1
        first = True
        while self._position < len(pattern):
            if named := _CLASS_NAME.match(pattern, self._position):
                self._position = named.end()
                parts.append(self._posix(named))
            else:
                character = pattern[self._position]
                self._position += 1
                if character == "\\":
                    parts.append(self._escape(in_set=True))
                elif character == "]" and not first:
                    return "".join(parts) + "]"
                # Python reserves some of these for operations on sets
                elif character in "[]&|~":
                    parts.append("\\" + character)
                else:
                    parts.append(character)
            first = False
        raise ValueError(f"the pattern {pattern!r} has a [ without its ]")

    def _posix(self, named: re.Match[str]) -> str:
        if named[2] not in _POSIX:
            raise ValueError(
                f"the pattern {self._pattern!r} names the character class "
                f"{named[2]!r}; the known ones are: {', '.join(_POSIX)}"
            )
        return _members(_POSIX[named[2]], negated=bool(named[1]), in_set=True)


def _members(members: str, *, negated: bool, in_set: bool) -> str:
    if not in_set:
        return f"[^{members}]" if negated else f"[{members}]"
    return _complement(members) if negated else members


@functools.cache
def _complement(members: str) -> str:
    outside = re.compile(f"[^{members}]")
    return _ranges(
        [code for code in range(sys.maxunicode + 1) if outside.match(chr(code))]
    )


@functools.cache
def _category_members(name: str) -> str:
    codes = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)).startswith(name)
    ]
    if not codes:
        raise ValueError(
            f"{name!r} is not a general category of Unicode; "
            f"scripts are not supported in patterns"
        )
    return _ranges(codes)


def _ranges(codes: list[int]) -> str:
    """The members of a set in Python's syntax, from sorted code points."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(rf"\U{first:08X}-\U{last:08X}" for first, last in ranges)
