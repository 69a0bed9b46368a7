"""What is written after options: whole numbers, seconds, names, ``NAME=VALUE``.

Each function is the ``type`` of an argument, and says what does not fit.
"""

from __future__ import annotations

import argparse
import math


def names(text: str) -> list[str]:
    """``cuda,cpu``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} has an empty name; expected names separated by single commas"
        )
    return found


def assignment(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, neither of them empty."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def size(text: str) -> tuple[str, int]:
    """``NAME=SIZE``."""
    name, value = assignment(text)
    return name, count(value)


def count(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    number = count(text)
    if not number:
        raise argparse.ArgumentTypeError("0 is too few; expected 1 or more")
    return number


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0, such as 2 or 0.5"
        )
    return number


def bound(text: str) -> float:
    """A number from 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number from 0, such as 1e-3"
        )
    return number
