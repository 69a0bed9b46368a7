"""Mistakes of EPs' authors, six times forty: each breaks the contract, and is seen.

That a mistake can be seen at all is to be known before it is asked who finds it.
"""

from __future__ import annotations

import importlib
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from .planted.compile_ep import GeneratedFactory
from .planted.device_ep import DeviceFactory
from .planted.exhibit import EXHIBITS
from .planted.mistake import MISTAKES, SETS, Group

for module in (
    *itertools.chain.from_iterable(SETS),
    "exhibits_of_results",
    "exhibits_of_runs",
    "second.exhibits_of_results",
    "second.exhibits_of_runs",
    "third.exhibits_of_results",
    "third.exhibits_of_runs",
    "fourth.exhibits_of_results",
    "fourth.exhibits_of_runs",
    "fifth.exhibits_of_results",
    "fifth.exhibits_of_runs",
    "sixth.exhibits_of_results",
    "sixth.exhibits_of_runs",
):
    importlib.import_module(f".planted.{module}", __package__)

ROOT = Path(__file__).parents[4]
CLEAN = {factory.name: factory for factory in (DeviceFactory, GeneratedFactory)}


def test_half_of_each_forty_are_of_each_ep() -> None:
    found = Counter(
        (mistake.set, mistake.factory().name) for mistake in MISTAKES.values()
    )
    sets = range(1, len(SETS) + 1)
    assert found == dict.fromkeys(itertools.product(sets, CLEAN), 20)
    assert {mistake.group for mistake in MISTAKES.values()} == {*get_args(Group)}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_broken_stands_in_the_contract(name: str) -> None:
    mistake = MISTAKES[name]
    assert plain(mistake.breaks) in plain((ROOT / mistake.source).read_text("utf-8"))


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen_and_only_where_it_is(name: str) -> None:
    mistake = MISTAKES[name]
    assert EXHIBITS[name](mistake.factory())
    assert not EXHIBITS[name](CLEAN[mistake.factory().name]())
