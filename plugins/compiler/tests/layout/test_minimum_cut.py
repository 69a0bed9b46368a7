"""Divisions are the cheapest of all."""

from __future__ import annotations

import itertools
import random

import pytest

from onnxplug_compiler.layout.minimum_cut import FOREVER, MOST_ROUNDS, Division


@pytest.mark.parametrize("seed", range(60))
def test_no_division_is_cheaper(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randint(1, 8)
    division = Division(count)
    first = [choose.choice([0, 0, 1, 2, FOREVER]) for _ in range(count)]
    second = [
        0 if cost == FOREVER else choose.choice([0, 0, 1, 3, FOREVER]) for cost in first
    ]
    pairs = [
        (choose.randrange(count), choose.randrange(count), choose.randint(0, 3))
        for _ in range(choose.randint(0, 20))
    ]
    for vertex in range(count):
        division.prefer_first(vertex, first[vertex])
        division.prefer_second(vertex, second[vertex])
    for one, other, cost in pairs:
        division.keep_together(one, other, cost)

    def costs(sides: tuple[bool, ...] | list[bool]) -> int:
        return sum(
            second[vertex] if side else first[vertex]
            for vertex, side in enumerate(sides)
        ) + sum(cost for one, other, cost in pairs if sides[one] != sides[other])

    best = min(map(costs, itertools.product((True, False), repeat=count)))
    found = division.first()
    assert found is not None and costs(found) == best < FOREVER


def test_long_chains_take_no_longer_than_they_are() -> None:
    count = 19_999
    division = Division(count)
    for vertex in range(count):
        if vertex % 3 == 0:
            division.prefer_first(vertex, 2)
        elif vertex % 3 == 1:
            division.prefer_second(vertex, 1)
        if vertex:
            division.keep_together(vertex - 1, vertex, 1)
    # to be cut off from both neighbours costs twice what it saves
    assert division.first() == [True] * count


def test_who_does_not_care_is_on_the_first_side() -> None:
    assert Division(3).first() == [True] * 3
    assert Division(0).first() == []


def test_what_takes_too_long_is_given_up() -> None:
    division = Division(2 * MOST_ROUNDS)
    # each path is longer than the one before
    for vertex in range(MOST_ROUNDS + 1):
        division.prefer_first(0, 1)
        division.prefer_second(vertex, 1)
        if vertex:
            division.keep_together(vertex - 1, vertex, FOREVER)
    assert division.first() is None
