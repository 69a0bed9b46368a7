"""Whether what an EP claims of unknown sizes is compiled in runs, as it is to: in every
element type, and for several shapes at once.

Cases of many operators, which share nothing, are one model, so that there is much to
compile in each run, and little time needed for each.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx

from onnxplug import ep
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_streams import in_threads, taking_turns
from onnxplug_testing.conformance.groups.sizes import larger
from onnxplug_testing.conformance.specimens import agrees, differs
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.survey import joined, survey
from onnxplug_testing.conformance.taps import (
    ignoring_failures,
    listening,
    replaced,
)
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words
from onnxplug_testing.measuring.variations import DTYPES, Variation, element_types

EARLY: Final = Sentence(
    "Specialiser.examine",
    "What no shapes would change is declined here, where other EPs can still take it: "
    "when a specialised partition is declined in a run, the run fails.",
)
THREADS: Final = Sentence(
    "Specialiser",
    "``compile`` and the serialiser are called from any thread, several times at once, "
    "and never under a lock of the host's.",
)

AT_ONCE: Final = "the EP compiles once for all shapes"

_TOGETHER: Final = 16
_FEW: Final = 5
"""Operators in a model, where there is time, and where there is little."""

_ASKED: Final = 40
"""Operators that are asked about where there is little time."""

_BY: Final = (0, 1, 2, 4)
"""By how much sizes are larger than the case's, in runs at once."""

_TURNS: Final = 2
"""How often new sessions compile the same at once."""

_PATIENCE: Final = 2.0
"""Seconds for which threads wait for each other, at most once in a session."""


@check("specialisation", share=0.5)
def element_types_in_runs(trial: Trial) -> None:
    """Each element type of each operator that is claimed of unknown sizes is compiled
    in a run, and not declined there."""
    cases = _taken(trial)
    if cases is None:
        return
    typed = {
        name: [_of_any_size(each) for each in (case, *element_types(case))]
        for name, case in cases.items()
    }
    for opset, some in _groups(trial, _claimed(trial, typed)):
        model, feeds = _model(opset, some)
        what = f"{len(some)} operators and element types of unknown sizes"
        if trial.attempt(Case(model, feeds, what)):
            trial.tried += len(some) - 1
            _find_declined(trial, opset, some)


@check("specialisation", share=0.6)
def many_at_once(trial: Trial) -> None:
    """Threads run networks of many operators at once, in shapes that none has run
    before: each is compiled for its own."""
    cases = _taken(trial)
    if cases is None:
        return
    for opset, some in _groups(trial, {name: [cases[name]] for name in cases}):
        model, feeds = _model(opset, some)
        if trial.attempt(Case(model, feeds, f"{len(some)} operators of unknown sizes")):
            _run_at_once(trial, opset, some)


def _taken(trial: Trial) -> dict[str, Variation] | None:
    """A case of each operator that the EP claims, of few elements, whose sizes are not
    known before; ``None``, which the trial is told, if it compiles nothing by shapes.
    """
    suite = load_suite()
    relu = as_case(suite["Relu"][0])
    with listening(trial.subject, until_asked=True) as talk, ignoring_failures():
        trial.subject.session(relu.model).close()
    if not talk.providers or talk.providers[0].specialiser is None:
        trial.leave_out(AT_ONCE)
        return None
    numbers = trial.numbers("larger")
    names = sorted(suite)
    trial.draw("order").shuffle(names)
    fit = {}
    for name in names[: _ASKED if trial.quick else None]:
        for case in map(_of_any_size, filter(_is_of_numbers, suite[name][:_FEW])):
            if name not in fit and larger(case, _BY, numbers):
                fit[name] = [case]
    return {name: claimed[0] for name, claimed in _claimed(trial, fit).items()}


def _is_of_numbers(case: Variation) -> bool:
    return all(
        array is None or (isinstance(array, np.ndarray) and array.dtype.name in DTYPES)
        for array in case.inputs
    )


def _of_any_size(case: Variation) -> Variation:
    """*case* of sizes that are not known before; lists, such as axes, are constants."""
    constants = case.constants | case.lists()
    return replace(case, dynamic=True, constants=constants, expected=None)


def _claimed(
    trial: Trial, cases: Mapping[str, Sequence[Variation]]
) -> dict[str, list[Variation]]:
    """Of *cases* those that the EP claims as they are, in as few opsets as there can
    be."""
    newest = max((case.opset for each in cases.values() for case in each), default=0)
    alike = {
        name: [_of_opset(case, newest) for case in each] for name, each in cases.items()
    }
    answers = survey(trial.subject, alike, of_each=len(DTYPES) + 1)
    return {
        name: claimed
        for name, said in answers.items()
        if (claimed := [each.case for each in said if each.reason is None])
    }


def _groups(
    trial: Trial, cases: Mapping[str, Sequence[Variation]]
) -> Iterator[tuple[int, list[Variation]]]:
    """*cases* that can be one model, as long as there is time."""
    by_opset: dict[int, list[Variation]] = {}
    for each in cases.values():
        for case in each:
            by_opset.setdefault(case.opset, []).append(case)
    many = _FEW if trial.quick else _TOGETHER
    groups = [
        (opset, found[start : start + many])
        for opset, found in by_opset.items()
        for start in range(0, len(found), many)
    ]
    trial.draw("groups").shuffle(groups)
    yield from trial.in_time(groups)


def _of_opset(case: Variation, opset: int) -> Variation:
    """*case* in a later opset, if the operator is of the same version there."""
    schema = onnx.defs.get_schema(case.node.op_type, opset, case.node.domain)
    is_same = schema.since_version == case.since
    return replace(case, opset=opset) if is_same else case


def _model(opset: int, cases: Sequence[Variation]) -> tuple[bytes, dict[str, Any]]:
    """One model of all *cases*, and what it is fed."""
    feeds = {
        f"{number}/{name}": array
        for number, case in enumerate(cases)
        for name, array in case.feeds().items()
    }
    return joined(opset, cases), feeds


def _find_declined(trial: Trial, opset: int, cases: Sequence[Variation]) -> None:
    """Find those of *cases* that are declined in a run, whatever the sizes."""
    model, feeds = _model(opset, cases)
    try:
        with trial.subject.session(model) as session:
            session.run(None, feeds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
    else:
        return
    if len(cases) == 1:
        _find_declined_always(trial, cases[0])
    elif not trial.has_time:
        trial.leave_out(OUT_OF_TIME, len(cases))
    else:
        half = len(cases) // 2
        _find_declined(trial, opset, cases[:half])
        _find_declined(trial, opset, cases[half:])


def _find_declined_always(trial: Trial, case: Variation) -> None:
    tried = larger(case, _BY, trial.numbers(case.case))
    errors = []
    for each in tried:
        model, feeds = _model(case.opset, [each])
        with listening(trial.subject) as talk:
            try:
                with trial.subject.session(model) as session:
                    asked_before = len(talk.declined)
                    session.run(None, feeds)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
                ep.raise_interruption(error)
                if len(talk.declined) > asked_before:
                    errors.append(error)
    if errors and len(errors) == len(tried):
        trial.find(
            EARLY,
            f"claimed of unknown sizes, and declined in runs of {len(tried)} sets of "
            f"shapes, all that were tried: {in_words(errors[0])}",
            node=describe(case),
            case=as_case(case),
            kind=f"{case.node.op_type} {case.inputs[0].dtype}",
        )
    else:
        trial.leave_out("the EP fails, which others tell of")


def _run_at_once(trial: Trial, opset: int, some: Sequence[Variation]) -> None:
    """Compare runs of several sizes at once with the same, one after the other."""
    cases, model, feeds = some, _model(opset, some)[0], _feeds(trial, opset, some)
    alone = _one_by_one(trial, model, feeds)
    if alone is None:
        cases = _computed_alone(trial, opset, some)
        why = "the EP fails alone, or the sizes of constants are others"
        trial.leave_out(why, len(some) - len(cases))
        model, feeds = _model(opset, cases)[0], _feeds(trial, opset, cases)
        alone = _one_by_one(trial, model, feeds) if cases else None
        if alone is None:
            return
    for _ in range(_TURNS):
        if not trial.has_time:
            return
        trial.count(len(feeds))
        results = _in_threads(trial, model, feeds)
        wrong = _differing(cases, alone, results)
        if wrong is None:
            continue
        again = _one_by_one(trial, model, feeds)
        if again is None or _differing(cases, alone, again) is not None:
            trial.leave_out("runs one after the other give other results, too")
            return
        case, text = wrong
        trial.find(
            THREADS,
            f"in threads that run {len(feeds)} sets of shapes at once, each compiled "
            f"then, {text}",
            node=describe(case) if case is not None else "",
            case=Case(model, feeds[0], f"{len(cases)} operators of unknown sizes"),
            kind="at once",
        )
        return


def _feeds(
    trial: Trial, opset: int, cases: Sequence[Variation]
) -> list[dict[str, Any]]:
    """What a model of *cases* is fed, in several sizes."""
    numbers = [trial.numbers(case.case) for case in cases]
    sizes = [larger(case, _BY, each) for case, each in zip(cases, numbers, strict=True)]
    return [_model(opset, each)[1] for each in zip(*sizes, strict=True)]


def _computed_alone(
    trial: Trial, opset: int, cases: Sequence[Variation]
) -> list[Variation]:
    """Those of *cases*, of which some fail, that run in all sizes, one after the
    other."""
    half = len(cases) // 2
    if not half or not trial.has_time:
        return []
    found: list[Variation] = []
    for part in (cases[:half], cases[half:]):
        feeds = _feeds(trial, opset, part)
        if _one_by_one(trial, _model(opset, part)[0], feeds) is not None:
            found += part
        else:
            found += _computed_alone(trial, opset, part)
    return found


def _one_by_one(
    trial: Trial, model: bytes, feeds: Sequence[Mapping[str, Any]]
) -> list[list[Any]] | None:
    """What runs give, one after the other; ``None`` if one fails."""
    try:
        with trial.subject.session(model) as session:
            return [list(session.run(None, dict(each))) for each in feeds]
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        return None


def _in_threads(
    trial: Trial, model: bytes, feeds: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """What runs at once give, or raise."""
    results: list[Any] = [None] * len(feeds)
    with (
        _meeting(trial.subject, len(feeds)),
        trial.subject.session(model) as session,
        taking_turns(),
    ):

        def work(number: int) -> None:
            try:
                results[number] = session.run(None, dict(feeds[number]))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (told of by it)
                results[number] = error

        in_threads(len(feeds), work)
    return results


@contextmanager
def _meeting(subject: Subject, count: int) -> Iterator[None]:
    """A context in which *count* threads wait for each other before each has the EP
    compile what is the first for it, so that they are in ``compile`` at once."""
    create, barrier = subject.factory.create, threading.Barrier(count)

    def created(*args: Any, **kwargs: Any) -> ep.ExecutionProvider:
        provider = create(*args, **kwargs)
        make = provider.compile

        @functools.wraps(make)
        def compiled(partition: ep.Partition) -> ep.CompiledPartition:
            # one that others do not come to is broken, and nobody waits again
            with suppress(threading.BrokenBarrierError):
                barrier.wait(_PATIENCE)
            return make(partition)

        if hasattr(provider, "__dict__"):
            vars(provider)["compile"] = compiled
        return provider

    with replaced(subject.factory, "create", created):
        yield


def _differing(
    cases: Sequence[Variation], expected: Sequence[Sequence[Any]], found: Sequence[Any]
) -> tuple[Variation | None, str] | None:
    """The first of *cases* whose results are not those that are expected, and how they
    differ; ``None`` if there is none."""
    of = [
        case
        for case in cases
        for name, _ in zip(case.node.output, case.output_types, strict=False)
        if name
    ]
    for number, results in enumerate(found):
        if isinstance(results, BaseException):
            return None, in_words(results)
        right = expected[number % len(expected)]
        for case, array, wanted in zip(of, results, right, strict=True):
            if not agrees(array, wanted):
                return case, differs(array, wanted)
    return None
