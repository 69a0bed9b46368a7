"""Random graphs across the EP, on the stand-in, and the CPU EP, against arrays of
numpy.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug_directml.factory import DmlFactory

from ...cpu.tests.compiler.differential import (
    Case,
    difference,
    disagreement,
    of_any_size,
    other_sizes,
    outcome,
    session,
)
from ...cpu.tests.compiler.random_graphs import RandomGraph
from ...cpu.tests.compiler.random_nodes import MAKERS, VIEWS
from .conftest import EP

_OFTEN = 12
_FIRST, _LAST = map(int, os.environ.get("ONNXPLUG_FUZZ", "0:200").split(":"))
SEEDS = [
    pytest.param(
        seed, marks=[] if seed < _OFTEN or _FIRST else [pytest.mark.exhaustive]
    )
    for seed in range(_FIRST, _LAST)
]


# of some graphs all is float64, or without elements
@pytest.mark.filterwarnings("ignore::onnxplug.errors.EpWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph(seed: int, factory: DmlFactory) -> None:
    choose = random.Random(seed)
    case = RandomGraph(seed).make(
        choose.randint(5, 25), choose.choice([MAKERS, MAKERS, VIEWS])
    )
    fixed = seed % 2 == 0
    model = case.model if fixed else of_any_size(case.model)
    expected = session(model, compiled=False)
    found = onnxplug.InferenceSession(model, providers=[EP, "CPUExecutionProvider"])
    feeds = [case.feeds]
    if not fixed:
        # errors grow with the sizes, which are at most twice as large
        feeds += [other_sizes(case, 2 * seed + number) for number in range(2)]
    for each in feeds:
        if has_numbers(expected, each):
            assert not disagreement(case, each, expected, found, slack=8)
    if seed % 4 == 2:
        check_bound(choose, case, expected, found)
    if seed % 8 == 4:
        with ThreadPoolExecutor(4) as threads:
            again = threads.map(
                lambda _: disagreement(case, case.feeds, expected, found, slack=8),
                range(8),
            )
            assert set(again) == {None}


def has_numbers(expected: onnxplug.InferenceSession, feeds: Any) -> bool:
    """Whether no result is NaN, as of sizes of 0: drivers may take it that none is."""
    results = outcome(expected, feeds)
    if isinstance(results, Exception):
        return True
    return not any(x.dtype.kind == "f" and np.isnan(x).any() for x in results)


def check_bound(
    choose: random.Random,
    case: Case,
    expected: onnxplug.InferenceSession,
    found: onnxplug.InferenceSession,
) -> None:
    """Runs on what is bound: on the host or on the device, also to one that is fed."""
    wanted = expected.run(None, case.feeds)
    for _ in range(2):
        binding = found.io_binding()
        fed = {}
        for arg in found.get_inputs():
            x = case.feeds[arg.name].copy()
            place = choose.choice(["cpu", "dml"])
            fed[arg.name] = onnxplug.OrtValue.ortvalue_from_numpy(x, place)
            binding.bind_ortvalue_input(arg.name, fed[arg.name])
        for arg, right in zip(found.get_outputs(), wanted, strict=True):
            fits = [
                name
                for name, x in case.feeds.items()
                if (x.dtype, x.shape) == (right.dtype, right.shape) and name in fed
            ]
            if fits and choose.random() < 0.5:
                binding.bind_ortvalue_output(arg.name, fed.pop(fits[0]))
            else:
                binding.bind_output(arg.name, choose.choice(["cpu", "dml"]))
        found.run_with_iobinding(binding)
        for name, value, right in zip(
            case.errors, binding.get_outputs(), wanted, strict=True
        ):
            array = np.asarray(value.numpy())
            assert not difference(right, array, case.errors[name] * 8), name
