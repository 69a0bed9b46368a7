"""The kit finds the planted mistakes that are said to be found, and no others."""

from __future__ import annotations

import json
import os

import pytest

from .try_mistakes import OUTCOMES, PAGE, mistakes, page_with, tried_apart

RECORDED = json.loads(OUTCOMES.read_text("utf-8"))

# each takes some 15 seconds
TRIED = list(RECORDED)
if os.environ.get("ONNXPLUG_PLANTED") != "all":
    TRIED = TRIED[::11]


def test_the_page_says_what_was_found() -> None:
    assert RECORDED.keys() == mistakes().keys()
    assert PAGE.read_text("utf-8") == page_with(RECORDED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TRIED)
def test_a_mistake_is_found_if_it_is_said_to_be(name: str) -> None:
    found = tried_apart(name)
    assert bool(found["by"]) == bool(RECORDED[name]["by"]), (
        f"{found}; run try_mistakes.py {name} if that is so for good"
    )
