"""Whether operators of unknown sizes compute right for sizes that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

import onnxplug
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.opinions import contradiction, is_agreed
from onnxplug_testing.conformance.survey import Answer, claimed_of, survey
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


@check("specialisation", share=1.4)
def sizes(trial: Trial) -> None:
    """Each operator that is claimed, in one session, of sizes, ranks and contents that
    come and go: what is right in a session of its own is right after others."""
    taken = {
        name: _turns(answers)
        for name, answers in survey(trial.subject, load_suite()).items()
    }
    while taken:
        for name in list(taken):
            if not trial.has_time:
                trial.leave_out(f"{OUT_OF_TIME} for more of an operator", len(taken))
                return
            turn = next(taken[name], None)
            if turn is None:
                del taken[name]
            else:
                _run_all(trial, *turn)


_Ways: TypeAlias = "Callable[[Trial, Variation], Iterator[Variation]]"


def _turns(answers: Sequence[Answer]) -> Iterator[tuple[Variation, _Ways, bool]]:
    """Cases of an operator, what is to come and go, and whether ranks are known."""
    claimed = claimed_of(answers)[:4]
    fed_lists = [each for each in claimed if each.lists() - each.constants]
    if fed_lists:
        yield fed_lists[0], _of_lists, True
    for number, case in enumerate(claimed):
        yield _of_any_size(case), _of_sizes, True
        if number == 0:
            yield _of_any_size(case), _of_ranks, False


def _of_any_size(case: Variation) -> Variation:
    return replace(case, constants=case.constants | case.lists())


def _run_all(trial: Trial, case: Variation, ways: _Ways, knows_ranks: bool) -> None:
    case = replace(case, dynamic=True, sized=True, expected=None)
    tried = [as_case(each) for each in ways(trial, case)]
    if not knows_ranks:
        tried = [
            Case(without_ranks(each.model), each.feeds, each.name) for each in tried
        ]
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


def without_ranks(model: bytes) -> bytes:
    """*model* with inputs of which no shape is known."""
    proto = onnx.load_model_from_string(model)
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    return bytes(proto.SerializeToString())


def _of_lists(trial: Trial, case: Variation) -> Iterator[Variation]:
    """*case* with other numbers in the lists that it is fed, of the same shapes."""
    yield case
    for position in sorted(case.lists() - case.constants):
        array = case.inputs[position]
        for other in (
            array[::-1],
            np.roll(array, 1),
            array + 1,
            np.maximum(array - 1, 0),
            np.ones_like(array),
        ):
            inputs = list(case.inputs)
            inputs[position] = np.ascontiguousarray(other)
            yield replace(case, inputs=tuple(inputs))
    yield case


def _of_ranks(trial: Trial, case: Variation) -> Iterator[Variation]:
    """*case* with its data of other ranks."""
    data = fed(case)
    if not data or any(array.size > _MOST for _, array in data):
        return
    yield case
    turns: Sequence[Callable[[Any], Any]] = (
        lambda array: array[None],
        lambda array: array.reshape(-1),
        lambda array: array[0] if array.ndim and len(array) else array,
        lambda array: array,
    )
    for turn in turns:
        inputs: list[Any] = list(case.inputs)
        for position, array in data:
            inputs[position] = np.ascontiguousarray(turn(array))
        yield replace(case, inputs=tuple(inputs))


def _of_sizes(trial: Trial, case: Variation) -> Iterator[Variation]:
    """*case* of other sizes, with as many elements along other axes, of other contents,
    and with its inputs turned."""
    grown = larger(case, _MORE, trial.numbers(case.case))
    yield from grown
    data = fed(case)
    inputs: list[Any]
    if grown and len(data) == 1 and data[0][1].ndim > 1:
        (position, array), inputs = data[0], list(case.inputs)
        along = [
            tuple(array.size if axis == each else 1 for axis in range(array.ndim))
            for each in range(array.ndim)
        ]
        for shape in (array.shape[::-1], *along):
            inputs[position] = np.resize(array, shape)
            yield replace(case, inputs=tuple(inputs))
    if grown and len(data) > 1:
        yield from _one_by_one(case, data)
    if grown:
        changes: Sequence[Callable[[Any], Any]] = (
            lambda array: np.roll(array, 1),
            np.zeros_like,
            lambda array: array,
        )
        for changed in changes:
            inputs = list(case.inputs)
            position, array = data[0]
            inputs[position] = changed(array)
            yield replace(case, inputs=tuple(inputs))


def _one_by_one(
    case: Variation, data: Sequence[tuple[int, Any]]
) -> Iterator[Variation]:
    """*case* with the first axis of one input after the other of size 1, and with the
    first two inputs in each other's place."""
    for position, array in data:
        if array.ndim and array.shape[0] > 1:
            inputs: list[Any] = list(case.inputs)
            inputs[position] = np.ascontiguousarray(array[:1])
            yield replace(case, inputs=tuple(inputs))
    (first, a), (second, b) = data[:2]
    if a.dtype == b.dtype and a.ndim == b.ndim and a.shape != b.shape:
        inputs = list(case.inputs)
        inputs[first], inputs[second] = b, a
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
