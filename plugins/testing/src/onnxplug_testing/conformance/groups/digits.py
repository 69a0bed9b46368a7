"""Whether element types of many digits are computed with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.mutation import SIZING
from onnxplug_testing.conformance.opinions import by_reference, contradiction
from onnxplug_testing.conformance.subject import Runner, refusal
from onnxplug_testing.conformance.survey import claimed_of, survey
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial
from onnxplug_testing.measuring.variations import Variation, element_types

_BEYOND: Final = {"int32": 2**24, "int64": 2**53}
"""Element type → from where on a float of as many bits has not all whole numbers."""

_LEFT_OUT: Final = SIZING | {"Mean", "ReduceL2", "ReduceMean", "Resize"}
"""Operators whose inputs are sizes, or whose results are rounded to whole numbers, of
which ONNX does not say how, or are of squares, which are beyond the type."""

_MOST: Final = 4096
"""Elements of an input, so that sums stay within the type."""


@check("claims", share=0.7)
def digits(trial: Trial) -> None:
    """Operators that are claimed of whole numbers are computed with all their digits:
    beyond 2**24 of int32 and 2**53 of int64, which floats have not."""
    turns = {
        name: _wide_cases(trial, claimed_of(answers)[:2])
        for name, answers in survey(trial.subject, load_suite()).items()
        if name not in _LEFT_OUT
    }
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


def _wide_cases(
    trial: Trial, cases: list[Variation]
) -> Iterator[tuple[Variation, Case]]:
    """*cases* of whole numbers that no float has, the first input's; those of others
    are small, so that products stay within the type."""
    for case in cases:
        types = {_type_of(case): case}
        for made in element_types(case):
            types.setdefault(_type_of(made), made)
        if "float64" not in types:
            continue  # its results are bits, say, and no numbers
        for dtype in _BEYOND.keys() & types.keys():
            wide = _with_digits(types[dtype], trial.numbers(case.case, dtype))
            if wide is not None and _stays_within(wide, types["float64"]):
                yield wide, as_case(wide)


def _type_of(case: Variation) -> str:
    first = case.inputs[0] if case.inputs else None
    return "" if first is None else str(first.dtype.name)


def _with_digits(case: Variation, numbers: np.random.Generator) -> Variation | None:
    """*case* with other values in the inputs that are of the first's type."""
    inputs: list[Any] = list(case.inputs)
    dtype = inputs[0].dtype
    for position, array in enumerate(inputs):
        if array is None or array.dtype != dtype or position in case.lists():
            continue
        if array.size > _MOST:
            return None
        if position:
            values = numbers.integers(1, 4, array.shape)
        else:
            values = _BEYOND[dtype.name] + 2 * numbers.integers(0, 512, array.shape) + 1
        signs = numbers.choice([-1, 1], array.shape)
        inputs[position] = np.asarray(values * signs, dtype).reshape(array.shape)
    return replace(case, kind="digits", inputs=tuple(inputs), expected=None)


def _stays_within(case: Variation, like: Variation) -> bool:
    """Whether results are far from the ends of the type, by those of float64."""
    dtype = case.inputs[0].dtype
    inputs = [
        array.astype(np.float64)
        if array is not None and array.dtype == dtype
        else array
        for array in case.inputs
    ]
    for position in case.lists():
        inputs[position] = case.inputs[position]
    try:
        results = by_reference(as_case(replace(like, inputs=tuple(inputs))))
    except Exception:  # noqa: BLE001 (there is nobody to say)
        return False
    most = np.iinfo(dtype).max / 4
    return all(
        bool(np.all(np.abs(np.asarray(each, np.float64)) < most)) for each in results
    )


def _compute(trial: Trial, runner: Runner, tried: Variation, case: Case) -> None:
    if not trial.attempt(case):
        return
    try:
        found = runner.run(case.model, case.feeds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        refused = refusal(error) is not None
        what = "refuses the node" if refused else "fails, which others tell of"
        trial.take_back(f"the EP {what}")
        return
    text, _ = contradiction(found, case, trial.subject)
    if text and trial.subject.is_reference:
        trial.take_back("ONNX's reference alone says otherwise, and may be wrong")
    elif text:
        dtype = _type_of(tried)
        what = f"of {dtype} beyond {_BEYOND[dtype]:,} {text}"
        kind = f"{tried.node.op_type} {dtype}"
        trial.find(said.RESULTS, what, node=describe(tried), case=case, kind=kind)
