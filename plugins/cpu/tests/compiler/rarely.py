"""Which cases of many run each time, and which with ``make test-exhaustive`` only."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pytest

Param: TypeAlias = Any
"""What :func:`pytest.param` makes, whose type has no public name."""


def first(count: int, cases: Iterable[Any]) -> list[Param]:
    """Of *cases* the first run each time, others rarely."""
    return [marked(number < count, case) for number, case in enumerate(cases)]


def crossed(*lists: Sequence[Any]) -> list[Param]:
    """All combinations of what is in *lists*.

    Those that run each time have all of each list; of three lists and more they have
    each two elements of different lists together.
    """
    turns = min(map(len, lists))
    return [
        marked(
            not sum(place for place, _ in combined) % turns,
            *(value for _, value in combined),
        )
        for combined in itertools.product(*map(enumerate, lists))
    ]


def marked(often: bool, *values: Any) -> Param:
    """A case of *values*, of those that run each time or of others."""
    return pytest.param(*values, marks=() if often else pytest.mark.exhaustive)
