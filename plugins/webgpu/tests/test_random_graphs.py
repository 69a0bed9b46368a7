"""Random graphs across the EP and the CPU EP, against arrays of numpy.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from ...compiler.tests.gpu.random_graphs import OnGpu
from ...cpu.tests.compiler.random_graphs import RandomGraph
from ...cpu.tests.compiler.random_nodes import MAKERS

WEBGPU = OnGpu(
    ep="WebGpuExecutionProvider",
    space="webgpu",
    exact={},
    captures={"enableGraphCapture": "1"},
)
_OFTEN = 12
_FIRST, _LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:400").split(":"))
SEEDS = [
    pytest.param(
        seed, marks=[] if seed < _OFTEN or _FIRST else [pytest.mark.exhaustive]
    )
    for seed in range(_FIRST, _LAST)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph(seed: int, adapter: Any) -> None:
    WEBGPU.check(seed)


def test_random_graphs_are_captured(adapter: Any) -> None:
    """Which the tests of each leave open."""
    cases = [RandomGraph(seed).make(6, MAKERS) for seed in range(4)]
    assert any(
        WEBGPU.check_captured(random.Random(seed), case)
        for seed, case in enumerate(cases)
    )
