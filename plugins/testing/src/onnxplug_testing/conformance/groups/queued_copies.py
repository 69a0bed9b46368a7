"""Whether copies on a stream wait for the runs before them.

Runs may be right, and their results wrong where a copy takes them too early: what it
took is held against what is there when all is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    wait_for_all,
)
from onnxplug_testing.conformance.late import fetch, hold_against, queued
from onnxplug_testing.conformance.specimens import agrees
from onnxplug_testing.conformance.trial import Trial

_ROUNDS: Final = 3


@check("time", share=0.3)
def copies_behind_runs(trial: Trial) -> None:
    """A copy that is queued behind a run takes what the run leaves, and leaves alone
    what the run reads."""
    for lab, specimen, case in queued(trial, "copies behind a run"):
        with asking(trial, said.COPY_QUEUED, case):
            for number in range(_ROUNDS):
                feeds = specimen.feeds(trial.numbers(number))
                others = specimen.feeds(trial.numbers(number, "others"))
                expected = specimen.expected(feeds)
                if not _all_agree(_left_by_a_run(lab, feeds)[0], expected):
                    return  # of which others tell
                trial.count(2)
                left, taken = _left_by_a_run(lab, feeds)
                if _all_agree(left, expected):
                    what = "copies of results, queued behind the run that makes them"
                    hold_against(trial, taken, expected, said.COPY_QUEUED, what, case)
                left, _ = _left_by_a_run(lab, feeds, others)
                what = "a run, behind which copies to its inputs were queued"
                hold_against(trial, left, expected, said.COPY_QUEUED, what, case)


def _left_by_a_run(
    lab: Laboratory,
    feeds: Mapping[str, Array],
    others: Mapping[str, Array] | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What a run of *feeds* leaves, looked at when all is done, and what copies took
    that were queued behind it.

    Args:
        others: are copied to its inputs behind it.
    """
    bench = lab.on_device
    with bench.stream() as stream:
        placed = lab.put(feeds)
        bench.burden(stream)
        given = lab.run(placed, None, stream)
        taken = fetch(lab, given, stream)
        for name, array in (others or {}).items():
            if not isinstance(placed[name], np.ndarray):
                bench.copy(array, placed[name], stream)
        wait_for_all(stream)
    return {name: lab.get(name, array) for name, array in given.items()}, taken


def _all_agree(found: Mapping[str, Any], expected: Mapping[str, Array]) -> bool:
    return all(agrees(array, expected[name]) for name, array in found.items())
