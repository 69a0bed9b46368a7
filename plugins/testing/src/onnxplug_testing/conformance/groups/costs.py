"""Whether what an EP says that work costs can be weighed."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Final

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance.cases import describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.sizes import without_ranks
from onnxplug_testing.conformance.makings import noting
from onnxplug_testing.conformance.networks import NO_WORDS, draw_network, vocabulary
from onnxplug_testing.conformance.pitfalls import pitfalls_of
from onnxplug_testing.conformance.survey import joined
from onnxplug_testing.conformance.taps import Asked, ignoring_failures, listening
from onnxplug_testing.conformance.trial import Trial, in_words
from onnxplug_testing.measuring.variations import Variation

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

PER_COPY: Final = Sentence("Costs", "of each copy, whatever its size.")

_LONGEST: Final = 1.0
"""Seconds that no copy of little and no node takes."""

_SLOWEST: Final = 1e-3
"""Seconds to copy a byte that no link takes."""

_QUICK: Final = 0.25
"""Processor time of one estimate that is not quick any more."""

_YEAR: Final = 3e7

_OF_EACH: Final = 6
"""Cases of an operator of which estimates are asked for, of each kind."""

_MANY: Final = 200_000
"""Rows of which computing takes longer than what is around it."""

_ABSURD: Final = 100.0
"""So many times what a whole run takes no estimate of its nodes can be."""

_NO_TIME: Final = 1e-5
"""Of what a whole run takes the nodes take more than this, whatever is around them."""

_SEVERAL: Final = 3
"""Nodes that do not all cost what the whole does."""


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
        for name in ("seconds_per_copy", "seconds_gained_per_node"):
            seconds = getattr(pair.costs, name)
            if _LONGEST < seconds < math.inf:
                text = f"{name} of {pair} is {seconds}: more than a second"
                trial.find(PER_COPY, f"{text}, each")
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
        for rows in (0, 2, 200, _MANY, "n"):
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
    elif estimate < _NO_TIME * min(took):
        text = f"an estimate is {estimate:.3g} s, and a run of the nodes, which have "
        text += f"{_MANY} rows, takes {min(took):.3g} s"
        trial.find(SECONDS, text, case=case, kind="no time")


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
        with noting() as made:
            whole = model.estimate(graph, nodes)
            again = model.estimate(graph, nodes)
            parts = [model.estimate(graph, nodes[:end]) for end in range(1, len(nodes))]
            alone = [model.estimate(graph, [node]) for node in nodes]
            model.estimate(graph, nodes[2:5])
    except Exception as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(KNOWN, in_words(error), case=case, kind="raised")
        return None
    spent = (time.thread_time() - began) / (2 * len(nodes) + 2)
    for what, count in made.items():
        if count > len(nodes):
            text = f"{count} times {what} in {2 * len(nodes) + 2} estimates"
            trial.find(PURE, text, case=case, kind=what)
    if spent > _QUICK:
        trial.find(PURE, f"an estimate takes {spent:.2f} s", case=case, kind="slow")
    if whole != again:
        trial.find(PURE, f"it says {whole}, then {again}", case=case, kind="again")
    if whole and len(nodes) >= _SEVERAL and {*alone} == {whole}:
        text = f"of each of {len(nodes)} nodes it says {whole:.3g} s, and so of all"
        trial.find(SECONDS, text, case=case, kind="whichever nodes")
    for seconds in (whole, *parts, *alone):
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


@check("costs", share=0.3)
def each_operator(trial: Trial) -> None:
    """Each node that is claimed has an estimate, or none, whatever is known of its
    inputs, and which of these are left out."""
    by_opset: dict[int, list[Variation]] = {}
    for name, cases in load_suite().items():
        pitfalls = pitfalls_of(name, trial.draw(name))
        for case in (*cases[:_OF_EACH], *itertools.islice(pitfalls, _OF_EACH)):
            by_opset.setdefault(case.opset, []).append(case)
    for opset, cases in trial.in_time(
        sorted(by_opset.items(), key=lambda each: -len(each[1]))
    ):
        for model in _of_all(opset, cases):
            if not trial.attempt(Case(model, {}, f"{len(cases)} nodes")):
                continue
            if not _estimate_all(trial, model, cases):
                trial.leave_out("the EP has no cost model, or is not asked")
                return


def _of_all(opset: int, cases: Sequence[Variation]) -> Iterator[bytes]:
    """Models of all *cases*, of known shapes and without."""
    try:
        model = joined(opset, cases)
    except Exception:  # noqa: BLE001 (what ONNX cannot write)
        return
    yield model
    yield without_ranks(model)


def _estimate_all(trial: Trial, model: bytes, cases: Sequence[Variation]) -> bool:
    """Look at the estimate of each node that is claimed; whether there was any."""
    asked = False

    def estimate(provider: ep.ExecutionProvider, answer: Asked) -> None:
        nonlocal asked
        asked = provider.cost_model is not None
        for index, reason in answer.reasons().items() if asked else ():
            node = answer.nodes.get(index)
            number = "" if node is None else node.name.removeprefix("case ")
            if reason is None and node is not None and number.isdecimal():
                trial.count()
                case = cases[int(number)]
                _look_at_one(trial, provider.cost_model, answer.graph, node, case)

    with listening(trial.subject, then=estimate), ignoring_failures():
        trial.subject.session(model, alone=False).close()
    return asked


def _look_at_one(
    trial: Trial,
    model: ep.CostModel | None,
    graph: ep.Graph,
    node: ep.Node,
    case: Variation,
) -> None:
    assert model is not None
    words = describe(case)
    try:
        seconds = model.estimate(graph, [node])
        again = model.estimate(graph, [node])
    except Exception as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        trial.find(KNOWN, in_words(error), node=words, kind=node.op_type)
        return
    if seconds is not None and not _is_time(seconds):
        text = f"it says {seconds!r} s of a node"
        trial.find(KNOWN, text, node=words, kind=f"{node.op_type} infinite")
    elif seconds != again:
        text = f"it says {seconds} of a node, then {again}"
        trial.find(PURE, text, node=words, kind="again")


def _is_time(seconds: object) -> bool:
    """Whether it is a number of seconds that a node may take."""
    try:
        return 0 <= float(seconds) < _YEAR  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
