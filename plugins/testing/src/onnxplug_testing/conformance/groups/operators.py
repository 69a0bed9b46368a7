"""Whether what an EP computes is what ONNX says.

Beside it :mod:`.shared_constants` asks of nodes that read one constant.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from onnxplug import ep, errors
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import (
    as_case,
    describe,
    load_suite,
    trials_of,
)
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.networks import (
    NAMES,
    NO_WORDS,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.opinions import (
    DRAWN,
    UNSURE,
    contradiction,
    is_computed,
    may_be_blamed,
)
from onnxplug_testing.conformance.subject import Runner, refusal
from onnxplug_testing.conformance.survey import Answer, claimed_of, survey
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words
from onnxplug_testing.measuring.variations import Variation
from onnxplug_testing.random_models import draw_model

CLAIM: Final = Sentence(
    "ExecutionProvider.get_capability",
    "Claim or refuse every node of *graph*, each refusal with a reason.",
)

_MOST: Final = 400
"""Cases of an operator, of which most are drawn."""


@check("operators", share=8.0)
def nodes(trial: Trial) -> None:
    """Single nodes: ONNX's own cases, other element types, versions, shapes with 0 and
    1, unknown sizes, attributes at random; against ONNX's results, the CPU EP and
    ONNX's reference.
    """
    suite = load_suite()
    answers = survey(trial.subject, suite)
    taken = _turns(trial, _by_claim(trial, suite, answers))
    others = _turns(trial, {n: suite[n] for n in suite if n not in taken})
    with Runner(trial.subject) as runner:
        while taken or others:
            _round(trial, runner, taken, list(taken), are_taken=True)
            # those that it was not seen to claim may be, in other forms
            few = list(others)[: max(1, len(taken) // 4)]
            _round(trial, runner, others, few)
            for name in few:  # others are next
                if name in others:
                    others[name] = others.pop(name)
            if not trial.has_time:
                trial.leave_out(f"{OUT_OF_TIME} for more of an operator", len(taken))
                trial.leave_out(
                    f"{OUT_OF_TIME} for an operator that it seems not to have",
                    len(others),
                )
                return


_Turns: TypeAlias = dict[str, Iterator[Variation]]


def _by_claim(
    trial: Trial,
    suite: Mapping[str, Sequence[Variation]],
    answers: Mapping[str, Sequence[Answer]],
) -> dict[str, list[Variation]]:
    """The cases of each operator of which the EP claims one, those that it claims
    first, in random order."""
    found = {}
    for name, given in answers.items():
        claimed = claimed_of(given)
        if claimed:
            chosen = {case.case for case in claimed}
            rest = [case for case in suite[name] if case.case not in chosen]
            trial.draw("order", name).shuffle(claimed)
            trial.draw("rest", name).shuffle(rest)
            found[name] = [*claimed, *rest]
    return found


def _turns(trial: Trial, cases: Mapping[str, Sequence[Variation]]) -> _Turns:
    names = list(cases)
    trial.draw("order").shuffle(names)
    return {
        name: itertools.islice(trials_of(cases[name], trial.draw(name)), _MOST)
        for name in names
    }


def _round(
    trial: Trial,
    runner: Runner,
    turns: _Turns,
    names: Sequence[str],
    *,
    are_taken: bool = False,
) -> None:
    """One case of each operator; those go that have no more, or that the EP has not.

    Args:
        are_taken: the EP was seen to claim them, so that what it says of the nodes that
            one is expanded to, where it refuses it, is not said of the operator.
    """
    for name in names:
        if not trial.has_time:
            return
        tried = next(turns[name], None)
        of = name if are_taken else ""
        why = "" if tried is None else f" {_try(trial, runner, tried, of)}"
        if tried is None or f" {ep.RefusalCode.OP}: " in why:
            del turns[name]
        elif f" {ep.RefusalCode.OPSET}: " in why:
            turns[name] = _without_version(turns[name], tried.since)


def _without_version(cases: Iterator[Variation], since: int) -> Iterator[Variation]:
    """*cases* but for those of a version that the EP has not."""
    return (tried for tried in cases if tried.since != since)


@check("operators", share=1.2)
def networks(trial: Trial) -> None:
    """Networks of what the EP takes, of several inputs and results, some of which
    others read, with whatever names, twice each."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(16 if trial.quick else 200)):
        draw = trial.draw(number)
        rows = draw.choice((3, 3, 1, 0, "n"))
        network = draw_network(
            words,
            draw,
            nodes=draw.randint(2, 14),
            rows=rows,
            names=NAMES[number % len(NAMES)],
            seen=0.3,
        )
        many = 3 if rows == "n" else int(rows)
        cases = [network.case(trial.numbers(number, run), many) for run in range(2)]
        tried = [trial.attempt(case) for case in cases]
        if all(tried):
            _run_both(trial, cases)


def _run_both(trial: Trial, cases: Sequence[Case]) -> None:
    """Run both *cases*, of one model, in one session."""
    try:
        with trial.subject.session(cases[0].model) as session:
            results = [session.run(None, dict(case.feeds)) for case in cases]
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        if refusal(error) is not None:
            trial.take_back("the EP refuses the network")
            return
        sentence, group = sentence_of(error)
        trial.find(sentence, in_words(error), case=cases[0], kind="raised", group=group)
        return
    for number, (case, found) in enumerate(zip(cases, results, strict=True)):
        text, _ = contradiction(found, case, trial.subject)
        if text:
            text = f"in run {number}, {text}"
            trial.find(said.RESULTS, text, case=case, kind=f"wrong in run {number}")


@check("operators", share=0.8)
def control_flow(trial: Trial) -> None:
    """Networks with If, Loop, Scan and sequences, of which the EP takes some nodes."""
    for number in trial.in_time(range(10 if trial.quick else 120)):
        drawn = draw_model(trial.draw(number).getrandbits(31))
        names = {value.name for value in drawn.model.graph.input}
        feeds = {name: array for name, array in drawn.feeds.items() if name in names}
        case = Case(
            drawn.model.SerializeToString(), feeds, f"a network with bodies, {number}"
        )
        if not trial.attempt(case):
            continue
        try:
            found = trial.subject.run(case.model, case.feeds, alone=False)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            if refusal(error) is not None:
                trial.take_back("the EP takes nothing of the network")
            else:
                trial.find(said.COMPUTED, in_words(error), case=case, kind="bodies")
            continue
        text, _ = contradiction(found, case, trial.subject)
        if text:
            trial.find(said.RESULTS, text, case=case, kind="bodies")


def _try(trial: Trial, runner: Runner, tried: Variation, of: str = "") -> str:
    """Why the EP does not take the node; empty if it does.

    Args:
        of: see :func:`refusal`.
    """
    try:
        case = as_case(tried)
    except Exception:  # noqa: BLE001 (a variation that ONNX does not allow)
        return ""
    if not trial.attempt(case):
        return ""
    node = describe(tried)
    try:
        found = runner.run(case.model, case.feeds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        why = refusal(error, of)
        if why is None:
            _raised(trial, tried, case, node, error)
            return ""
        trial.take_back("the EP refuses the node")
        return why or "refused"
    is_old = tried.kind == "version"
    text, asked = contradiction(
        found, case, trial.subject, tried.expected, is_old=is_old
    )
    if text and trial.subject.is_reference and tried.kind in UNSURE:
        trial.take_back("ONNX's reference alone says otherwise, and may be wrong")
    elif text and tried.kind in DRAWN and not is_computed(case):
        trial.take_back("the CPU EP raises of what was drawn, which may be no ONNX")
    elif text:
        trial.find(said.RESULTS, text, node=node, case=case, kind=_kind(tried, text))
    elif not asked:
        trial.take_back("nobody else computes it")
    return ""


def _raised(
    trial: Trial, tried: Variation, case: Case, node: str, error: BaseException
) -> None:
    """Tell of what the EP raised, where somebody else computes the case."""
    if isinstance(error, errors.ModelError):
        trial.take_back("ONNX does not allow what was drawn")
        return
    if not may_be_blamed(trial.subject, tried, case):
        trial.take_back("nobody computes what was drawn, so that an error may be right")
        return
    text = in_words(error)
    sentence, group = sentence_of(error)
    trial.find(
        sentence, text, node=node, case=case, kind=_kind(tried, text), group=group
    )


def sentence_of(error: BaseException) -> tuple[Sentence, str]:
    """What the EP broke by raising *error*, and the group that this is of."""
    stage = error.stage if isinstance(error, errors.EpError) else ""
    if stage == "get_capability":
        return CLAIM, "claims"
    if stage in ("compile", "create"):
        return said.COMPILED, "claims"
    return said.COMPUTED, "operators"


def _kind(tried: Variation, text: str) -> str:
    """What findings of one operator have in common."""
    types = [a.dtype.name for a in tried.inputs if a is not None]
    words = " ".join(word for word in text.split()[:6] if word.isalpha())
    return f"{tried.node.op_type} {tried.kind} {types} {words}"
