"""Whether the times that an EP records can be believed.

What it records of a run is asked by hand in :mod:`.profiled_runs`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx

import onnxplug
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import profiled_runs
from onnxplug_testing.conformance.groups.recorders import (
    BEGAN,
    DETAILS,
    LASTED,
    NODE,
    OF_A_RUN,
)
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.trial import Trial, in_words

__all__ = ["profiled_runs"]

_RUNS: Final = 5
_MANY: Final = 100_000
"""Rows of which computing takes longer than what is around it."""

_LEAST: Final = 0.002
"""Share of a run that nodes take at least; less is no time of computing."""

_CLOCK: Final = 1e3
"""µs by which events may be outside of what the host saw."""


@check("profiling", share=0.4)
def node_times(trial: Trial) -> None:
    """Times of nodes are within the run, none is counted twice, and operators are those
    of the model."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(2 if trial.quick else 8)):
        rows = 64 if number % 2 == 0 else _MANY
        network = draw_network(words, trial.draw(number), nodes=10, rows=rows)
        case = network.case(trial.numbers(number), rows, f"network {number}")
        if not trial.attempt(case):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                seen = _profiled(trial, case, Path(folder))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
                text = f"with profiling, {in_words(error)}"
                trial.find(DETAILS, text, case=case, kind="raised")
                continue
        _look_at(trial, case, *seen, rows)


def _profiled(
    trial: Trial, case: Case, folder: Path
) -> tuple[Sequence[Mapping[str, Any]], int, float]:
    """The events, how many nodes the EP has, and how long the runs took, in µs."""
    settings = onnxplug.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "trace")
    session = trial.subject.session(case.model, settings=settings)
    try:
        nodes = session.explain().nodes
        count = sum(node.ep == trial.subject.name for node in nodes)
        began = time.perf_counter_ns()
        for _ in range(_RUNS):
            found = session.run(None, dict(case.feeds))
        took = (time.perf_counter_ns() - began) / 1e3
        path = session.end_profiling()
    finally:
        session.close()
    wrong, _ = contradiction(found, case, trial.subject)
    if wrong:
        trial.find(OF_A_RUN, f"with profiling, {wrong}", case=case, kind="wrong")
    return json.loads(Path(path).read_text("utf-8")), count, took


def _look_at(
    trial: Trial,
    case: Case,
    events: Sequence[Mapping[str, Any]],
    count: int,
    took: float,
    rows: int,
) -> None:
    runs = [each for each in events if each["name"] == "model_run"]
    own = [
        each
        for each in events
        if each["cat"] == "Node"
        and each.get("args", {}).get("provider") == trial.subject.name
    ]
    if not own:
        trial.take_back("the EP records no times of nodes")
        return
    operators = {
        node.op_type for node in onnx.load_model_from_string(case.model).graph.node
    }
    begin = min(run["ts"] for run in runs)
    end = max(run["ts"] + run["dur"] for run in runs)
    for event in own:
        name = event["name"]
        if event["dur"] < 0:
            trial.find(LASTED, f"{name} lasted {event['dur']} µs", case=case, kind="<0")
        elif event["dur"] > took + _CLOCK:
            text = f"{name} lasted {event['dur']:.0f} µs, and all runs {took:.0f} µs"
            trial.find(LASTED, text, case=case, kind="long")
        if not begin - _CLOCK <= event["ts"] <= end + _CLOCK:
            text = f"{name} began {event['ts'] - begin:.0f} µs after the first run"
            trial.find(
                BEGAN, f"{text}; runs lasted {took:.0f} µs", case=case, kind="ts"
            )
        operator = event.get("args", {}).get("op_name")
        if operator is not None and not any(each in operator for each in operators):
            text = f"an event is of {operator!r}, which is no operator of the model"
            trial.find(NODE, text, case=case, kind="operator")
    if len(own) > count * len(runs):
        text = f"{len(own)} events of nodes in {len(runs)} runs of {count} nodes"
        trial.find(NODE, text, case=case, kind="twice")
    total = sum(each["dur"] for each in own if each["dur"] >= 0)
    threads = len({each["tid"] for each in own})
    if total > threads * took * 1.05 + _CLOCK:
        text = f"nodes took {total:.0f} µs together, and all runs {took:.0f} µs"
        trial.find(LASTED, text, case=case, kind="total")
    _same_in_each_run(trial, case, own, runs)
    best = min(runs, key=lambda run: run["dur"])
    within = [
        each["dur"]
        for each in own
        if best["ts"] <= each["ts"] <= best["ts"] + best["dur"]
    ]
    # of few rows a run on a busy machine is a thousand times what they take
    if rows == _MANY and within and sum(within) < _LEAST * best["dur"]:
        text = f"nodes took {sum(within):.3f} µs of a run of {best['dur']:.0f} µs"
        trial.find(LASTED, f"{text}, of {rows} rows", case=case, kind="short")


def _same_in_each_run(
    trial: Trial,
    case: Case,
    own: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
) -> None:
    counts: Counter[int] = Counter()
    for event in own:
        for number, run in enumerate(runs):
            if run["ts"] <= event["ts"] <= run["ts"] + run["dur"]:
                counts[number] += 1
    if len(counts) == len(runs) and len(set(counts.values())) > 1:
        found = [counts[number] for number in range(len(runs))]
        text = f"runs of the same feeds have {found} events of nodes"
        trial.find(NODE, text, case=case, kind="counts")
