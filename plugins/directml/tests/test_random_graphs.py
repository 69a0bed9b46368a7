"""Random graphs across the EP, on the stand-in, and the CPU EP, against arrays of
numpy.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from onnxplug_directml.factory import DmlFactory

from ...compiler.tests.gpu.random_graphs import OnGpu
from ...cpu.tests.compiler.random_graphs import RandomGraph
from ...cpu.tests.compiler.random_nodes import MAKERS
from .conftest import EP
from .standin import Windows

DIRECTML = OnGpu(
    ep=EP,
    space="dml",
    exact={},
    captures={"enable_graph_capture": "1"},
    threads=4,
    replays_in_place=False,
)
_OFTEN = 12
_FIRST, _LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:200").split(":"))
SEEDS = [
    pytest.param(
        seed, marks=[] if seed < _OFTEN or _FIRST else [pytest.mark.exhaustive]
    )
    for seed in range(_FIRST, _LAST)
]

LEVELS = ((6, 4), (6, 0), (5, 0))
"""Feature levels, the least that the EP takes among them."""


# of some graphs all is float64, or without elements
@pytest.mark.filterwarnings("ignore::onnxplug.errors.EpWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph(
    seed: int,
    make_windows: Callable[..., Windows],
    register: Callable[[Windows], DmlFactory],
) -> None:
    register(make_windows(directml_level=LEVELS[seed % len(LEVELS)]))
    DIRECTML.check(seed)


def test_random_graphs_are_captured(factory: DmlFactory) -> None:
    """Which the tests of each leave open."""
    captured = 0
    for seed in range(0, 24, 2):
        case = RandomGraph(seed).make(4, MAKERS)
        captured += DIRECTML.check_captured(random.Random(seed), case)
    assert captured
