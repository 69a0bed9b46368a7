"""Random graphs across the EP, on the stand-in, and the CPU EP, against arrays of
numpy.

``ONNXPLUG_FUZZ=1000:2000`` in the environment tries those seeds instead of the usual.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
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
from .standin import Windows

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
    if seed % 8 in (0, 6):
        check_captured(case, expected)
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


def check_captured(case: Case, expected: onnxplug.InferenceSession) -> bool:
    """Runs that are captured, and replayed for other feeds, by 4 threads, each with
    memory of its own.

    Returns:
        Whether the whole graph is on the EP, and so is captured.
    """
    wanted = [expected.run(None, feeds) for feeds in turned(case)]
    if not all(has_numbers(expected, feeds) for feeds in turned(case)):
        return False
    options = {"enable_graph_capture": "1"}
    try:
        found = onnxplug.InferenceSession(case.model, providers=[(EP, options)])
    except (onnxplug.errors.SessionRefused, onnxplug.errors.UnassignedNode):
        return False

    def replay(_: int) -> None:
        binding, values = found.io_binding(), {}
        for arg in found.get_inputs():
            value = onnxplug.OrtValue.ortvalue_from_numpy(case.feeds[arg.name], "dml")
            values[arg.name] = value
            binding.bind_ortvalue_input(arg.name, value)
        for arg, right in zip(found.get_outputs(), wanted[0], strict=True):
            room = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros_like(right), "dml")
            binding.bind_ortvalue_output(arg.name, room)
        for feeds, results in zip(turned(case), wanted, strict=True):
            for name, value in values.items():
                value.update_inplace(feeds[name])
            found.run_with_iobinding(binding)
            for name, value, right in zip(
                case.errors, binding.get_outputs(), results, strict=True
            ):
                array = np.asarray(value.numpy())
                assert not difference(right, array, case.errors[name] * 8), name

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(replay, range(4)))
    return True


def turned(case: Case) -> list[dict[str, Any]]:
    """The feeds, and then those with floats in other places: no sizes change, and no
    index is out of range."""

    def moved(x: np.ndarray[Any, Any], by: int) -> np.ndarray[Any, Any]:
        return np.roll(x.reshape(-1), by).reshape(x.shape) if x.dtype.kind == "f" else x

    return [
        {name: moved(x, by) for name, x in case.feeds.items()} for by in (0, 0, 1, 2)
    ]


def test_random_graphs_are_captured(factory: DmlFactory) -> None:
    """Which the tests of each leave open."""
    captured = 0
    for seed in range(0, 24, 2):
        case = RandomGraph(seed).make(4, MAKERS)
        expected = session(case.model, compiled=False)
        captured += check_captured(case, expected)
    assert captured
