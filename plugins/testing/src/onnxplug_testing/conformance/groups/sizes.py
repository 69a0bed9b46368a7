"""Whether operators of unknown sizes compute right for sizes that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

import onnxplug
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.opinions import contradiction, is_agreed
from onnxplug_testing.conformance.survey import claimed_of, survey
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words
from onnxplug_testing.measuring.variations import Variation

EACH: Final = Sentence(
    "Specialiser",
    "A partition whose inputs have sizes that are not known is not compiled when the "
    "session is made, but for each set of shapes in the first run that has it, "
    "specialised to these.",
)

_MORE: Final = (0, 2, 1, 0)
"""By how much sizes are larger than the case's, in one run after the other."""

_MOST: Final = 4096
"""Elements of an input of the case."""


@check("specialisation", share=1.2)
def sizes(trial: Trial) -> None:
    """Each operator that is claimed, in one session, of sizes that come and go: what is
    right in a session of its own is right after others."""
    taken = {
        name: iter(claimed_of(answers)[:4])
        for name, answers in survey(trial.subject, load_suite()).items()
    }
    while taken:
        for name in list(taken):
            if not trial.has_time:
                trial.leave_out(f"{OUT_OF_TIME} for more of an operator", len(taken))
                return
            case = next(taken[name], None)
            if case is None:
                del taken[name]
            else:
                _run_all(trial, case)


def _run_all(trial: Trial, case: Variation) -> None:
    constants = case.constants | case.lists()
    case = replace(case, dynamic=True, constants=constants, expected=None)
    tried = [as_case(each) for each in _of_sizes(trial, case)]
    if not tried:
        return
    try:
        session = trial.subject.session(tried[0].model)
    except (Exception, SystemExit):  # noqa: BLE001 (told of by others)
        trial.leave_out("the EP does not take the operator with sizes unknown")
        return
    with session:
        for each in tried:
            if trial.attempt(each):
                _run(trial, session, each, describe(case))


def _of_sizes(trial: Trial, case: Variation) -> Iterator[Variation]:
    """*case* of other sizes, and with as many elements along other axes."""
    grown = larger(case, _MORE, trial.numbers(case.case))
    yield from grown
    data = fed(case)
    if grown and len(data) == 1 and data[0][1].ndim > 1:
        (position, array), inputs = data[0], list(case.inputs)
        along = [
            tuple(array.size if axis == each else 1 for axis in range(array.ndim))
            for each in range(array.ndim)
        ]
        for shape in (array.shape[::-1], *along):
            inputs[position] = np.resize(array, shape)
            yield replace(case, inputs=tuple(inputs))


def fed(case: Variation) -> list[tuple[int, Any]]:
    """The inputs that are no constants, by position."""
    return [
        (position, array)
        for position, array in enumerate(case.inputs)
        if array is not None and position not in case.constants
    ]


def larger(
    case: Variation, by: Sequence[int], numbers: np.random.Generator
) -> list[Variation]:
    """*case* with all sizes but 1 larger by the same, so that equal ones stay equal;
    none if it has many elements, or none."""
    data = fed(case)
    if not data or any(array.size > _MOST or not array.size for _, array in data):
        return []
    found = []
    for more in by:
        inputs: list[Any] = list(case.inputs)
        for position, array in data:
            shape = tuple(size + more if size > 1 else size for size in array.shape)
            if more:
                drawn = numbers.choice(array.reshape(-1), shape)
                inputs[position] = np.asarray(drawn, array.dtype).reshape(shape)
        found.append(replace(case, inputs=tuple(inputs)))
    return found


def _run(
    trial: Trial, session: onnxplug.InferenceSession, case: Case, node: str
) -> None:
    try:
        found = session.run(None, dict(case.feeds))
        wrong, _ = contradiction(found, case, trial.subject)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        if not is_agreed(case, trial.subject):
            trial.take_back("nobody else computes the operator of such sizes")
            return
        wrong = in_words(error)
    if not wrong:
        return
    try:
        alone = trial.subject.run(case.model, case.feeds)
    except (Exception, SystemExit):  # noqa: BLE001 (told of by others)
        trial.take_back("the EP fails alone, too, which others tell of")
        return
    if contradiction(alone, case, trial.subject)[0]:
        trial.take_back("the EP is wrong alone, too, which others tell of")
        return
    shapes = [list(np.shape(array)) for array in case.feeds.values()]
    text = f"for shapes {shapes}, after others, {wrong}"
    trial.find(EACH, text, node=node, case=case, kind=node)
