"""The compiled tier against the array tier, and numpy in float64, on random graphs.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from onnxplug_cpu.compiler.kernels.winograd import division

from .differential import (
    disagreement,
    of_any_size,
    other_sizes,
    refusing,
    refusing_nothing_more,
    session,
    shrunk,
    special,
)
from .on_numpy import session_on_numpy
from .random_graphs import RandomGraph
from .random_nodes import MAKERS, VIEWS
from .rarely import first
from .replanning import compared_with_fresh_plans

_NAMED = os.environ.get("ONNXPLUG_FUZZ")
_SEEDS = range(*map(int, (_NAMED or "0:70").split(":")))


@contextmanager
def transforming(always: bool) -> Iterator[None]:
    """Convolutions are computed by transforms wherever they can be, if *always*."""
    if not always:
        yield
        return
    with mock.patch.multiple(division, LEAST_CHANNELS=1, WORTHWHILE=math.inf):
        yield


@pytest.mark.parametrize("seed", first(len(_SEEDS) if _NAMED else 24, _SEEDS))
def test_tiers_agree(seed: int) -> None:
    choose = random.Random(seed)
    case = RandomGraph(seed).make(
        choose.randint(5, 40), choose.choice([MAKERS, MAKERS, VIEWS])
    )
    threads, share = choose.choice([1, 2]), choose.choice([0, 0, 0.15])
    with refusing(share, seed), transforming(seed % 2 == 1):
        expected = session(case.model, compiled=False)
        with refusing_nothing_more():
            try:
                found = session(case.model, compiled=True, threads=threads)
            except Exception:  # noqa: BLE001
                pytest.fail(shrunk(case, threads))
        for feeds in (case.feeds, special(case, seed), case.feeds):
            if disagreement(case, feeds, expected, found):
                pytest.fail(shrunk(case._replace(feeds=feeds), threads))
        oracle = session_on_numpy(case.model)
        assert not disagreement(case, case.feeds, oracle, found)
        model = of_any_size(case.model)
        with compared_with_fresh_plans():
            found = session(model, compiled=True, threads=threads)
            assert not disagreement(case, case.feeds, expected, found)
            resized, oracle = session(model, compiled=False), session_on_numpy(model)
            for number in range(3):
                feeds = other_sizes(case, 3 * seed + number)
                # errors grow with the sizes, which are at most twice as large
                assert not disagreement(case, feeds, resized, found, slack=8)
                assert not disagreement(case, feeds, oracle, found, slack=8)
            assert not disagreement(case, case.feeds, expected, found)
