"""Runs of characters that Python's own matcher finds, against RE2."""

from __future__ import annotations

import random

import pytest

from onnxplug_kernels.patterns import compile_re2, encoded, find_runs

CHARACTERS = "abzAZ019_ ,;.-:=@#%é東\t\n\v\f\r\x1c\x7f\u00a0\u2028𝄞"


def by_re2(pattern: str, text: str) -> list[str]:
    compiled, found, start = compile_re2(pattern, longest=True), [], 0
    data = encoded(text)
    while (match := compiled.search(data, start)) is not None:
        first, start = match.span()
        found.append(data[first:start].decode())
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-zA-Z]+",
        "[a-z0-9_]+",
        r"[\w]+",
        r"[\w\.]+",
        r"[\d,]+",
        r"[\s]+",
        r"[\s\w]+",
        "[é東a]+",
        "[ ]+",
        "[@#%=:;]+",
    ],
)
def test_runs_are_those_of_re2(pattern: str) -> None:
    runs = find_runs(pattern)
    assert runs is not None
    chance = random.Random(pattern)
    for length in (0, 1, 2, 9, 60):
        for characters in (CHARACTERS, CHARACTERS[:20]):
            text = "".join(chance.choices(characters, k=length))
            assert runs(text) == by_re2(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    r"[^a]+ [a-z] [a-z]* [z-a]+ [a-]+ []a]+ [[:alpha:]]+ \w+ (a|b)+ [\pL]+ [\b]+ "
    "[a&&b]+ [A-z]+".split(),
)
def test_other_patterns_are_for_re2(pattern: str) -> None:
    assert find_runs(pattern) is None
