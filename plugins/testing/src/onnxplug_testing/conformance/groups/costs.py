"""Whether what an EP says that work costs can be weighed."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Final

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial, in_words

FINITE: Final = Sentence("Costs", "All are finite and not less than 0.")
KNOWN: Final = Sentence(
    "CostModel.estimate",
    "finite and not less than 0; ``None`` if that is not known, such as without the "
    "shapes.",
)
PURE: Final = Sentence(
    "CostModel.estimate", "Pure and quick: nothing is compiled or run."
)
SECONDS: Final = Sentence(
    "CostModel.estimate",
    "How long *nodes* of *graph* take, in seconds, without copies.",
)

PER_BYTE: Final = Sentence("Costs", "of each byte that is copied, besides.")

_SLOWEST: Final = 1e-3
"""Seconds to copy a byte that no link takes."""

_QUICK: Final = 0.25
"""Processor time of one estimate that is not quick any more."""

_YEAR: Final = 3e7

_MANY: Final = 200_000
"""Rows of which computing takes longer than what is around it."""

_ABSURD: Final = 100.0
"""So many times what a whole run takes no estimate of its nodes can be."""


@check("costs", share=0.1)
def of_pairs(trial: Trial) -> None:
    """The costs of each device are finite, not less than 0, and such as there are."""
    for pair in trial.subject.pairs:
        if pair.costs is None:
            trial.leave_out(f"{pair} states none, and the host's are taken")
            continue
        trial.count()
        for name in (
            "seconds_per_copy",
            "seconds_per_byte",
            "seconds_gained_per_node",
        ):
            seconds = getattr(pair.costs, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                trial.find(FINITE, f"{name} of {pair} is {seconds}")
        if _SLOWEST < pair.costs.seconds_per_byte < math.inf:
            text = f"seconds_per_byte of {pair} is {pair.costs.seconds_per_byte}"
            trial.find(PER_BYTE, f"{text}: less than a thousand bytes in a second")


@check("costs", share=0.4)
def estimates(trial: Trial) -> None:
    """Estimates are finite, the same again, quick, and grow with nodes and rows."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(3 if trial.quick else 10)):
        seconds = []
        for rows in (2, 200, _MANY, "n"):
            draw = trial.draw(number)
            network = draw_network(words, draw, nodes=8, rows=rows)
            case = network.case(trial.numbers(number), 2, f"network {number}")
            if not trial.attempt(case):
                return
            with listening(trial.subject) as talk:
                try:
                    session = trial.subject.session(case.model, alone=False)
                except Exception:  # noqa: BLE001 (told of by other groups)
                    trial.take_back("no session could be made")
                    continue
                with session:
                    provider, asked = talk.providers[0], talk.asked
                    if provider.cost_model is None:
                        trial.take_back("the EP has no cost model")
                        return
                    graph = asked[0].graph
                    whole = _estimate(trial, provider.cost_model, graph, case)
                    if rows == _MANY and whole is not None:
                        fed = network.case(trial.numbers(number), _MANY)
                        _hold_against_runs(trial, session, fed, whole)
                    if whole is not None and rows != "n":
                        seconds.append((rows, whole))
        _compare(trial, seconds, case)


def _hold_against_runs(
    trial: Trial, session: onnxplug.InferenceSession, case: Case, estimate: float
) -> None:
    """Whether an estimate is in seconds, and not of another unit."""
    took = []
    try:
        for _ in range(3):
            began = time.perf_counter()
            session.run(None, dict(case.feeds))
            took.append(time.perf_counter() - began)
    except Exception:  # noqa: BLE001 (told of by other groups)
        return
    if estimate > _ABSURD * min(took):
        text = f"an estimate is {estimate:.3g} s, and a whole run of the nodes took "
        trial.find(SECONDS, f"{text}{min(took):.3g} s", case=case, kind="unit")


def _compare(
    trial: Trial, seconds: Sequence[tuple[int | str, float]], case: Case
) -> None:
    for (few, sooner), (many, later) in itertools.pairwise(seconds):
        if later < sooner * 0.999:
            text = f"{many} rows take {later:.3g} s, and {few} rows {sooner:.3g} s"
            trial.find(SECONDS, text, case=case, kind="rows")


def _estimate(
    trial: Trial, model: ep.CostModel, graph: ep.Graph, case: Case
) -> float | None:
    """That of all nodes of *graph*, looked at from all sides."""
    nodes = list(graph.nodes)
    began = time.thread_time()
    try:
        whole = model.estimate(graph, nodes)
        again = model.estimate(graph, nodes)
        parts = [model.estimate(graph, nodes[:end]) for end in range(1, len(nodes))]
    except Exception as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(KNOWN, in_words(error), case=case, kind="raised")
        return None
    spent = (time.thread_time() - began) / (len(nodes) + 1)
    if spent > _QUICK:
        trial.find(PURE, f"an estimate takes {spent:.2f} s", case=case, kind="slow")
    if whole != again:
        trial.find(PURE, f"it says {whole}, then {again}", case=case, kind="again")
    for seconds in (whole, *parts):
        if seconds is not None and not (
            math.isfinite(seconds) and 0 <= seconds < _YEAR
        ):
            trial.find(KNOWN, f"it says {seconds} s", case=case, kind="infinite")
            return None
    known = [seconds for seconds in (*parts, whole) if seconds is not None]
    for less, more in itertools.pairwise(known):
        if more < less * 0.999:
            text = f"with one node more it says {more:.3g} s, and without {less:.3g} s"
            trial.find(SECONDS, text, case=case, kind="nodes")
    return whole
