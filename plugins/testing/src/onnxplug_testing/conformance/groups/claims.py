"""Whether an EP computes what it claims, and says why it refuses the rest.

Beside it :mod:`.digits` asks of whole numbers that are claimed, and :mod:`.odd_graphs`
of what graphs may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import onnx

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
from onnxplug_testing.conformance.edges import targets
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import digits, odd_graphs
from onnxplug_testing.conformance.groups.operators import CLAIM
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    Vocabulary,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.opinions import (
    UNSURE,
    contradiction,
    may_be_blamed,
)
from onnxplug_testing.conformance.subject import Runner, refusal
from onnxplug_testing.conformance.survey import Answer, ask, claimed_of, survey
from onnxplug_testing.conformance.taps import (
    Asked,
    Talk,
    ignoring_failures,
    listening,
)
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words
from onnxplug_testing.measuring.variations import Variation

__all__ = ["digits", "odd_graphs"]

WORDS: Final = Sentence(
    "Reason",
    "A code for programs and a detail for people: what was found, what is needed.",
)
PURE: Final = Sentence(
    "ExecutionProvider.get_capability",
    "Pure: the host asks again for bodies of control flow, after expanding functions "
    "and after a partition was given back.",
)
CONVEX: Final = Sentence(
    "ComputeCapability",
    "the group is run whole or not at all: the host gives it back when it is not "
    "convex or an EP ranked higher took part of it.",
)
SAID: Final = Sentence(
    "OperatorSupport",
    "for each type variable of the operator's schema (``T``) the element types of "
    "tensors that it may stand for; empty when nothing is said of them.",
)

_FEW: Final = 20
"""Operators whose element types are compared when there is little time."""

_AT_ONCE: Final = 10
"""Operators that are asked about together."""

_FOREIGN: Final = "com.example.conformance"


@check("claims", share=0.5)
def reasons(trial: Trial) -> None:
    """Each refusal has a code, and says in words what was found and is needed."""
    for answers in survey(trial.subject, load_suite()).values():
        for answer in answers:
            _look_at_reason(trial, answer)


def _look_at_reason(trial: Trial, answer: Answer) -> None:
    reason = answer.reason
    trial.count()
    if reason is None:
        return
    node = describe(answer.case)
    if not isinstance(reason, ep.Reason):
        text = f"refused with a {type(reason).__name__}; expected a Reason"
        trial.find(WORDS, text, node=node, kind=text)
    elif not isinstance(reason.code, ep.RefusalCode):
        text = f"the code of the refusal is {reason.code!r}; expected a RefusalCode"
        trial.find(WORDS, text, node=node, kind="code")
    elif not str(reason.detail).strip():
        trial.find(
            WORDS,
            f"refused with the code {reason.code.value!r} and no words",
            node=node,
            case=as_case(answer.case),
            kind=reason.code.value,
        )


@check("claims", share=3.0)
def computed(trial: Trial) -> None:
    """What is claimed is compiled and runs, and gives what the operator does: each, in
    each version and element type, and with sizes and ranks that are not known."""
    suite = load_suite()
    answers = survey(trial.subject, suite)
    casts = list(targets(suite.get("Cast", ())))
    for name, given in survey(trial.subject, {"Cast": casts}, of_each=99).items():
        answers[name] = [*given, *answers.get(name, ())]
    turns = {}
    for name, given in answers.items():
        taken = claimed_of(given)
        if taken:
            kinds = (
                "target", "dtype", "target", "version", "target", "pitfall", "suite",
                "target", "pitfall", "dynamic", "target", "dtype", "target", "pitfall",
                "constant",
            )  # fmt: skip
            turns[name] = _with_unknown_ranks(
                trials_of(taken[:6], trial.draw(name), kinds)
            )
    if not turns:
        trial.leave_out("the EP claims none of ONNX's cases")
    with Runner(trial.subject) as runner:
        while turns:
            for name in list(turns):
                if not trial.has_time:
                    trial.leave_out(f"{OUT_OF_TIME} for more", len(turns))
                    return
                tried = next(turns[name], None)
                if tried is None:
                    del turns[name]
                else:
                    _compute(trial, runner, *tried)


def _with_unknown_ranks(
    cases: Iterator[Variation],
) -> Iterator[tuple[Variation, Case]]:
    """*cases*, some of them again without shapes."""
    for number, tried in enumerate(cases):
        try:
            case = as_case(tried)
        except Exception:  # noqa: BLE001 (a variation that ONNX does not allow)
            continue
        yield tried, case
        if number % 4 == 1:
            model = onnx.load_model_from_string(case.model)
            for value in model.graph.input:
                value.type.tensor_type.ClearField("shape")
            del model.graph.value_info[:]
            yield (
                tried,
                Case(
                    model.SerializeToString(),
                    case.feeds,
                    f"{case.name}, of unknown rank",
                ),
            )


def _compute(trial: Trial, runner: Runner, tried: Variation, case: Case) -> None:
    if not trial.attempt(case):
        return
    node = describe(tried)
    kind = (
        f"{tried.node.op_type} {[a.dtype.name for a in tried.inputs if a is not None]}"
    )
    with listening(trial.subject) as talk:
        try:
            found = runner.run(case.model, case.feeds)
        except errors.ModelError:
            trial.take_back("ONNX does not allow what was drawn")
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            if talk.declined:
                text = f"claimed, and then declined: {talk.declined[0][1]}"
                trial.find(CLAIM, text, node=node, case=case, kind=kind)
            elif refusal(error) is not None:
                trial.take_back("the EP refuses the node")
            elif may_be_blamed(trial.subject, tried, case):
                text = f"claimed, and then {in_words(error)}"
                trial.find(said.COMPILED, text, node=node, case=case, kind=kind)
            else:
                trial.take_back("nobody computes what was drawn")
            return
    is_old = tried.kind == "version"
    text, _ = contradiction(found, case, trial.subject, tried.expected, is_old=is_old)
    if text and not (trial.subject.is_reference and tried.kind in UNSURE):
        trial.find(CLAIM, f"claimed, and {text}", node=node, case=case, kind=kind)


@check("claims", share=0.7)
def element_types(trial: Trial) -> None:
    """What ``operators()`` says of element types is what is claimed."""
    listed = trial.subject.operators()
    if not listed:
        trial.leave_out("the EP does not say which operators it has")
        return
    suite = load_suite()
    names = sorted({each.op_type for each in listed} & suite.keys())
    trial.draw("order").shuffle(names)
    if trial.quick:
        trial.leave_out(OUT_OF_TIME, len(names[_FEW:]))
        del names[_FEW:]
    for start in trial.in_time(range(0, len(names), _AT_ONCE)):
        cases = {
            name: list(trials_of(suite[name][:2], trial.draw(name), ("dtype",)))
            for name in names[start : start + _AT_ONCE]
        }
        for name, answers in survey(trial.subject, cases, of_each=30).items():
            for dtype in {_first_type(each.case) for each in answers}:
                same = [each for each in answers if _first_type(each.case) == dtype]
                trial.count(len(same))
                _compare_with_said(trial, name, dtype, same, listed)


def _first_type(case: Variation) -> str:
    return "" if case.inputs[0] is None else str(case.inputs[0].dtype.name)


def _compare_with_said(
    trial: Trial,
    name: str,
    dtype: str,
    answers: Sequence[Answer],
    operators: Sequence[ep.OperatorSupport],
) -> None:
    first = answers[0].case
    schema = onnx.defs.get_schema(name, first.opset, "")
    variable = schema.inputs[0].type_str if schema.inputs else ""
    entries = [
        each
        for each in operators
        if each.op_type == name
        and not each.domain
        and each.since <= first.since
        and (each.until is None or first.since <= each.until)
        and each.types.get(variable)
    ]
    if not entries or not dtype:
        return
    listed = {str(each) for entry in entries for each in entry.types[variable]}
    node = describe(first)
    reasons = [each.reason for each in answers]
    if None in reasons and dtype not in listed:
        text = f"claims {dtype}, which operators() has not for {variable}"
        trial.find(SAID, text, node=node, case=as_case(first))
    elif all(each is not None and each.code is ep.RefusalCode.OP for each in reasons):
        text = f"refuses the operator, which operators() has: {reasons[0]}"
        trial.find(SAID, text, node=node, case=as_case(first), kind=f"{name} op")


@check("claims", share=0.4)
def domains(trial: Trial) -> None:
    """An operator of another domain is another one, whatever its name."""
    for name, given in survey(
        trial.subject, load_suite(), of_each=2, domain=_FOREIGN
    ).items():
        trial.count(len(given))
        if any(answer.reason is None for answer in given):
            text = f"claims {name} of the domain {_FOREIGN}, of which it knows nothing"
            trial.find(CLAIM, text, node=f"{_FOREIGN}.{name}", kind="domain")
    if not trial.tried:
        trial.leave_out("the host asks the EP about no such operator")


@check("claims", share=0.5)
def the_same_again(trial: Trial) -> None:
    """The same graph is answered alike, whatever was asked between."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    rounds = 4 if trial.quick else 12
    for number in trial.in_time(range(rounds)):
        network = draw_network(
            words, trial.draw(number), nodes=8, foreign=("Erf", "Floor", "Acosh")
        )
        case = network.case(trial.numbers(number), 3, f"network {number}")
        if not trial.attempt(case):
            continue
        with listening(trial.subject) as talk:
            try:
                session = trial.subject.session(case.model, alone=False)
            except Exception as error:  # noqa: BLE001 (whatever an EP raises)
                if refusal(error) is None:
                    trial.find(said.COMPILED, in_words(error), case=case)
                continue
            with session:
                _ask_again(trial, talk.providers[0], talk.asked, case)
                _ask_of_another(trial, words, talk, case)


def _ask_again(
    trial: Trial,
    provider: ep.ExecutionProvider,
    asked: Sequence[Asked],
    case: Case,
) -> None:
    graph = asked[0].graph
    answers = []
    for _ in range(3):
        before = list(graph.nodes)
        try:
            provider.get_capability(graph)
        except Exception as error:  # noqa: BLE001 (whatever an EP raises)
            text = f"asked again about a graph, it {in_words(error)}"
            trial.find(PURE, text, case=case, kind="again")
            return
        answers.append(asked[-1])
        if list(graph.nodes) != before:
            trial.find(PURE, "it changed the graph", case=case)
            return
    first, *others = [_comparable(each) for each in answers]
    for other in others:
        if other != first:
            text = f"asked again about a graph, it says {other}, and first {first}"
            trial.find(PURE, text[:400], case=case, kind="again")


def _ask_of_another(trial: Trial, words: Vocabulary, talk: Talk, case: Case) -> None:
    """Whether an EP that was asked about one graph says of another what an EP says that
    was not, as of bodies and of functions that are expanded."""
    other = draw_network(
        words, trial.draw(case.name, "other"), nodes=8, foreign=("Ceil", "Sinh")
    )
    asked = ask(trial.subject, other.model, alone=False)
    if asked is None:
        return
    trial.count()
    with ignoring_failures():  # which are told of above
        talk.providers[0].get_capability(asked.graph)
        found, expected = _comparable(talk.asked[-1]), _comparable(asked)
        if talk.asked[-1].graph is asked.graph and found != expected:
            text = f"asked about a second graph, it says {found}, and asked about no "
            trial.find(PURE, f"{text}other {expected}"[:400], case=case, kind="another")


def _comparable(asked: Asked) -> Mapping[str, Any]:
    claims = sorted((sorted(c.nodes), c.atomic) for c in asked.report.claims)
    refused = {r.node: str(r.reason) for r in asked.report.refusals}
    return {"claims": claims, "refusals": dict(sorted(refused.items()))}


@check("claims", share=0.5)
def groups(trial: Trial) -> None:
    """Each node is claimed or refused once, and groups that are to run whole are
    convex, so that they can."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    atomic = 0
    rounds = 6 if trial.quick else 30
    for number in trial.in_time(range(rounds)):
        network = draw_network(
            words,
            trial.draw(number),
            nodes=12,
            foreign=("Acosh", "Det")[: number % 2] or ("Erf",),
        )
        case = network.case(trial.numbers(number), 3, f"network {number}")
        if not trial.attempt(case):
            continue
        asked = ask(trial.subject, case.model, alone=False)
        if asked is None:
            trial.take_back("the host did not ask the EP")
            continue
        _look_at_report(trial, asked, case)
        for claim in asked.report.claims:
            atomic += claim.atomic
            outside = _between(asked, set(claim.nodes)) if claim.atomic else None
            if outside is not None:
                names = [asked.nodes[index].op_type for index in sorted(claim.nodes)]
                text = f"a group of {names} is not convex: {outside} is between them"
                trial.find(CONVEX, text, case=case, kind="convex")
    if not atomic:
        trial.leave_out("the EP makes no groups that are to run whole")


def _look_at_report(trial: Trial, asked: Asked, case: Case) -> None:
    """Whether each node is in exactly one claim or one refusal."""
    told = [index for claim in asked.report.claims for index in claim.nodes]
    told += [refusal.node for refusal in asked.report.refusals]
    wrong = {
        "in no claim and no refusal": asked.nodes.keys() - set(told),
        "in several claims and refusals": {n for n in told if told.count(n) > 1},
        "of no node": set(told) - asked.nodes.keys(),
    }
    for words, indices in wrong.items():
        if indices:
            index = min(indices)
            node = asked.nodes[index].op_type if index in asked.nodes else str(index)
            trial.find(CLAIM, f"{node} is {words}", case=case, kind=words)


def _between(asked: Asked, members: set[int]) -> str | None:
    """A node outside that is after one of *members* and before another, if any is."""
    makers = {n: i for i, node in asked.nodes.items() for n in node.outputs if n}
    after: set[int] = set()
    for index, node in sorted(asked.nodes.items()):
        sources = {makers[n] for n in node.inputs if n in makers}
        if index in members:
            if sources & after:
                return str(asked.nodes[min(sources & after)].op_type)
        elif sources & (members | after):
            after.add(index)
    return None
