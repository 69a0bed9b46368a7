"""Whether what a factory says of itself is of the form that it has to be, and stays.

From where, and of what, it may be asked is tried in :mod:`.factory_calls`.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import onnx

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import describe, load_suite, trials_of
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import factory_calls
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    chosen,
    differs,
    of_any_size,
    several,
)
from onnxplug_testing.conformance.survey import Answer, survey
from onnxplug_testing.conformance.taps import ignoring_failures, replaced
from onnxplug_testing.conformance.trial import Trial, in_words

__all__ = ["factory_calls"]

VERSIONS: Final = Sentence(
    "EpFactory.engine_versions",
    "(optional) Versions of what computes on *device*, such as engine and driver.",
)
SINCE: Final = Sentence(
    "OperatorSupport",
    "the first version of the operator that is meant, as ``Node.since_version`` "
    "counts.",
)
DIAGNOSES: Final = Sentence(
    "EpFactory.diagnose",
    "(optional) What ``onnxplug doctor`` should report.",
)
LEVEL: Final = Sentence(
    "Finding",
    "``error`` when the EP cannot work as things are, such as without its engine.",
)
OPERATORS: Final = Sentence(
    "EpFactory.operators",
    "(optional) The operators that the EP runs, for ``onnxplug ops``.",
)


@check("factory", share=0.1)
def facts(trial: Trial) -> None:
    """Devices, versions and diagnoses are the same again, and of the right types."""
    factory = trial.subject.factory
    hardware = onnxplug.get_hardware_devices()
    pairs = _twice(trial, said.PAIRS, lambda: list(factory.supported_devices(hardware)))
    _look_for_contexts(trial, factory, hardware)
    for pair in pairs or ():
        if isinstance(pair, ep.RefusedDevice):
            if not pair.reason.strip():
                trial.find(said.PAIRS, f"refuses {pair.device} without words")
        elif not isinstance(pair, ep.EpDevice):
            trial.find(
                said.PAIRS, f"gives a {type(pair).__name__}; expected an EpDevice"
            )
        elif pair.ep_name != factory.name:
            trial.find(said.PAIRS, f"gives a pair of {pair.ep_name!r}, not of itself")
    for device in trial.subject.pairs:
        ask = functools.partial(factory.engine_versions, device)
        versions = _twice(trial, VERSIONS, ask)
        if versions is not None and not all(
            isinstance(text, str) for pair in dict(versions).items() for text in pair
        ):
            trial.find(VERSIONS, f"gives {versions!r}; expected texts by text"[:200])
    for finding in _twice(trial, DIAGNOSES, lambda: list(factory.diagnose())) or ():
        if not isinstance(finding, ep.Finding):
            trial.find(DIAGNOSES, f"gives a {type(finding).__name__}, no Finding")
        elif finding.level is ep.Level.ERROR:
            text = f"an error, though the EP has devices here: {finding.message}"
            trial.find(LEVEL, text[:300])


def _look_for_contexts(
    trial: Trial, factory: ep.EpFactory, hardware: Sequence[ep.HardwareDevice]
) -> None:
    """Whether to look for devices makes a context."""
    spaces, made = factory.memory_spaces, 0
    if spaces is None:
        return
    create = spaces.create_context

    def created(location: ep.MemoryLocation) -> ep.DeviceContext:
        nonlocal made
        made += 1
        return create(location)

    trial.count()
    # what raises is told of above; spaces may take no attributes
    with ignoring_failures(), replaced(spaces, "create_context", created):
        list(factory.supported_devices(hardware))
    if made:
        trial.find(
            said.LOOKS, f"supported_devices makes {made} context(s) of the device"
        )


def _twice(trial: Trial, sentence: Sentence, call: Callable[[], Any]) -> Any:
    """What *call* gives, if it gives it twice."""
    trial.count()
    try:
        first, second = call(), call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        trial.find(sentence, in_words(error))
        return None
    if first != second:
        trial.find(sentence, f"gives {first!r}, then {second!r}"[:300])
    return first


@check("factory", share=0.1)
def operators(trial: Trial) -> None:
    """The operators that it says it has are ONNX's, and of versions that there are."""
    listed = trial.subject.factory.operators()
    if listed is None:
        trial.leave_out("the EP does not say which operators it has")
        return
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            versions.setdefault(schema.name, set()).add(schema.since_version)
    for each in listed:
        trial.count()
        if not isinstance(each, ep.OperatorSupport):
            trial.find(OPERATORS, f"gives a {type(each).__name__}")
        elif not each.domain:
            _look_at(trial, each, versions)


def _look_at(
    trial: Trial, listed: ep.OperatorSupport, known: Mapping[str, Collection[int]]
) -> None:
    versions = known.get(listed.op_type)
    if not versions:
        # a distribution may add operators to ONNX's
        if registry.domains.find("ai.onnx", listed.op_type, listed.since) is not None:
            return
        trial.find(OPERATORS, f"ONNX has no operator {listed.op_type!r}")
        return
    if listed.until is not None and listed.until < listed.since:
        text = f"{listed.op_type} is said to be had since {listed.since}"
        trial.find(OPERATORS, f"{text} until {listed.until}")
    elif not any(
        listed.since <= version <= (listed.until or version) for version in versions
    ) and listed.since > max(versions):
        text = f"{listed.op_type} has no version from {listed.since} on"
        trial.find(OPERATORS, f"{text}; there are {sorted(versions)}")


@check("factory", share=0.4)
def versions(trial: Trial) -> None:
    """Of operators that it says it has, it takes the versions that it says."""
    listed = trial.subject.operators()
    if not listed:
        trial.leave_out("the EP does not say which operators it has")
        return
    suite = load_suite()
    names = sorted({each.op_type for each in listed if not each.domain} & suite.keys())
    trial.draw("order").shuffle(names)
    for start in trial.in_time(range(0, len(names), _AT_ONCE)):
        cases = {
            name: list(
                trials_of(suite[name][:2], trial.draw(name), ("version", "suite"))
            )
            for name in names[start : start + _AT_ONCE]
        }
        for name, answers in survey(trial.subject, cases, of_each=_OF_EACH).items():
            meant = [
                each for each in listed if each.op_type == name and not each.domain
            ]
            for since in sorted({each.case.since for each in answers}):
                of_it = [each for each in answers if each.case.since == since]
                trial.count(len(of_it))
                _compare_with_said(trial, name, since, of_it, meant)


_AT_ONCE: Final = 10
"""Operators that are asked about together."""

_OF_EACH: Final = 12
"""Cases of an operator."""


def _compare_with_said(
    trial: Trial,
    name: str,
    since: int,
    answers: Sequence[Answer],
    listed: Sequence[ep.OperatorSupport],
) -> None:
    """Whether a version that is said to be had is refused for being one."""
    codes = [None if each.reason is None else each.reason.code for each in answers]
    if all(code is ep.RefusalCode.OPSET for code in codes) and any(
        each.since <= since and (each.until is None or since <= each.until)
        for each in listed
    ):
        text = f"operators() has version {since} of {name}, which is refused: "
        node = describe(answers[0].case)
        trial.find(SINCE, f"{text}{answers[0].reason}", node=node, kind=name)


@check("factory", share=0.2)
def sessions(trial: Trial) -> None:
    """Sessions are made while others are open, and go on when others are closed."""
    for specimen in chosen(trial, several, of_any_size):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "in sessions that are open at once")
        if trial.attempt(case):
            with trial.expecting_no_failure(said.EACH_SESSION, case=case):
                _open_and_close(trial, specimen, case)


def _open_and_close(trial: Trial, specimen: Specimen, case: Case) -> None:
    """Make the next of four sessions before one of two is closed, in either order."""
    first = trial.subject.session(specimen.model, checked=False)
    try:
        _run_beside(trial, first, specimen, case, "by itself", said.EACH_SESSION)
        for closed in trial.in_time(("the later", "the earlier", "the later")):
            second = _another(trial, specimen, case)
            if second is None:
                return
            sessions = [first, second]
            for each in sessions:
                what = "while another one is open"
                _run_beside(trial, each, specimen, case, what, said.EACH_SESSION)
            gone = sessions.pop(1 if closed == "the later" else 0)
            (first,) = sessions
            gone.close()
            del gone, second, sessions
            gc.collect()
            what = f"when another session, {closed}, was closed"
            _run_beside(trial, first, specimen, case, what, said.CLOSE_FACTORY)
    finally:
        first.close()


def _another(
    trial: Trial, specimen: Specimen, case: Case
) -> onnxplug.InferenceSession | None:
    """A session beside the one that is open; ``None``: there is none."""
    trial.count()
    try:
        return trial.subject.session(specimen.model, checked=False)
    except (MemoryError, ep.SessionRefused) as error:
        trial.leave_out(f"no second session: {in_words(error)}"[:160])
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        text = f"a session beside another one that is open {in_words(error)}"
        trial.find(said.EACH_SESSION, text, case=case, kind="another")
    return None


def _run_beside(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    case: Case,
    what: str,
    sentence: Sentence,
) -> None:
    expected = specimen.expected(case.feeds)
    try:
        found = session.run(None, dict(case.feeds))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        text = f"a run of a session, {what}, {in_words(error)}"
        trial.find(sentence, text, case=case, kind=f"raised {what}")
        return
    for name, array in zip(specimen.outputs, found, strict=True):
        if not agrees(array, expected[name]):
            text = f"a session, {what}, is wrong: {differs(array, expected[name])}"
            trial.find(sentence, text, case=case, kind=f"wrong {what}")
