"""Whether a node of each operator computes, where it is restored, what it did.

What the EP made of it is compared with what it makes of that once serialised, closer
than with anybody else's results: it is the same EP, which runs the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import defs, helper

from onnxplug import ep
from onnxplug_testing.conformance.cases import (
    as_case,
    describe,
    load_suite,
    trials_of,
)
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.each_operator import specimen_of
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    Unfit,
    asking,
    laboratory,
)
from onnxplug_testing.conformance.partitions import settled
from onnxplug_testing.conformance.survey import claimed_of, survey
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial
from onnxplug_testing.measuring.variations import DTYPES, Variation

GIVES: Final = Sentence(
    "Serialiser.restore", "What :meth:`serialise` gave, ready to run."
)

NO_SERIALISER: Final = "the EP serialises nothing"

_CASES: Final = 4
"""Of each operator, what forms are made of."""

_FORMS: Final = 8
"""Forms of each operator that are restored at most."""

_FACTORS: Final = (1.2345678, 0.012345678)
"""Times what an attribute is: many digits, before and behind what is often written."""

_ULP: Final = 16
"""By so much results of one EP may differ, which may sum in another order."""


@check("epcontext", share=0.8)
def each_operator(trial: Trial) -> None:
    """A node of each operator that the EP takes, in each version and with attributes of
    many digits, computes the same where it is restored."""
    suite = load_suite()
    turns = {
        name: _forms(trial, name, claimed_of(said))
        for name, said in survey(trial.subject, suite).items()
        if claimed_of(said)
    }
    if not turns:
        trial.leave_out("the EP claims none of ONNX's cases")
    for number in range(_FORMS):
        for name in list(turns):
            if not trial.has_time:
                trial.leave_out(f"{OUT_OF_TIME} for more", len(turns))
                return
            tried = next(turns[name], None)
            if tried is None or (number and trial.quick and not _is_old(tried)):
                continue
            if not _try(trial, tried):
                return


def _is_old(tried: Variation) -> bool:
    return tried.kind == "version"


def _forms(trial: Trial, name: str, cases: Sequence[Variation]) -> Iterator[Variation]:
    """Cases of an operator of known sizes, some of older versions, with numbers of many
    digits in their attributes."""
    kinds = ("version", "constant", "suite", "suite", "version")
    # versions differ in what they make of many axes
    chosen = sorted(cases, key=lambda case: (not _has_gap(case), -_rank(case)))[:_CASES]
    for tried in trials_of(chosen, trial.draw(name), kinds):
        if all(
            array is None
            or (isinstance(array, np.ndarray) and array.dtype.name in DTYPES)
            for array in tried.inputs
        ):
            digits = list(_with_digits(tried))
            yield from digits or [tried]


def _has_gap(case: Variation) -> bool:
    """Whether an input is left out, and one behind it is not."""
    given = [bool(name) for name in case.node.input]
    return given != sorted(given, reverse=True)


def _rank(case: Variation) -> int:
    return max((np.ndim(each) for each in case.inputs if each is not None), default=0)


def _with_digits(case: Variation) -> Iterator[Variation]:
    """*case* with other fractions in its attributes, where it has some."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    given = {each.name: each for each in case.node.attribute}
    before = {
        name: helper.get_attribute_value(given.get(name, declared.default_value))
        for name, declared in schema.attributes.items()
        if declared.type == defs.OpSchema.AttrType.FLOAT
        and (name in given or declared.default_value.name)
    }
    for factor in _FACTORS if before else ():
        scaled = {name: (value or 1.0) * factor for name, value in before.items()}
        yield case.with_attributes(**scaled)


def _try(trial: Trial, tried: Variation) -> bool:
    """Whether the EP serialises anything."""
    try:
        case = as_case(tried)
    except Exception:  # noqa: BLE001 (a variation that ONNX does not allow)
        return True
    if not case.feeds or not trial.attempt(case):
        return True
    node, feeds = describe(tried), dict(case.feeds)
    try:
        with laboratory(trial.subject, specimen_of(tried, case), feeds=feeds) as lab:
            if lab.provider.serialiser is None:
                trial.take_back(NO_SERIALISER)
                return False
            _compare(trial, lab, lab.provider.serialiser, case, node)
    except Unfit:
        trial.take_back("the EP does not compile the node by itself")
    except (Exception, SystemExit) as error:  # noqa: BLE001 (asked elsewhere)
        ep.raise_interruption(error)
        trial.take_back(f"{type(error).__name__}, which others tell of")
    return True


def _compare(
    trial: Trial, lab: Laboratory, serialiser: ep.Serialiser, case: Case, node: str
) -> None:
    first, second = (_results(lab, case.feeds) for _ in range(2))
    if not _alike(first, second):
        trial.take_back("two runs differ")
        return
    with asking(trial, GIVES, case, node):
        try:
            data = bytes(serialiser.serialise(lab.compiled))
        except ep.Declined as why:
            trial.take_back(f"declined to serialise: {why}"[:160])
            return
        restored = copy.copy(lab)
        restored.compiled = serialiser.restore(
            lab.partition, memoryview(data).toreadonly()
        )
        try:
            found = _results(restored, case.feeds)
        finally:
            restored.compiled.close()
        if not _alike(first, found):
            worst = max(_distance(first[name], found[name]) for name in first)
            text = f"restored, it gives other numbers than before, by up to {worst:.2g}"
            trial.find(GIVES, text, node=node, case=case, kind=node.split(" ")[0])


def _results(lab: Laboratory, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What a run gives, on the host."""
    with settled(lab) as stream:
        given = lab.run(lab.put(feeds, stream), None, stream)
    return {name: lab.get(name, array) for name, array in given.items()}


def _alike(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return all(
        first[name].shape == second[name].shape
        and first[name].dtype == second[name].dtype
        and _distance(first[name], second[name]) <= _ULP * _step(first[name].dtype)
        for name in first
    )


def _step(dtype: np.dtype[Any]) -> float:
    """The distance of numbers around 1, relative; 0 of whole ones."""
    is_fraction = "float" in dtype.name
    about: Any = ml_dtypes.finfo
    return float(about(dtype).eps) if is_fraction else 0.0


def _distance(first: Array, second: Array) -> float:
    """Of the numbers that differ most, relative to the largest that there is."""
    if first.shape != second.shape:
        return np.inf
    one, other = (np.asarray(each, np.float64) for each in (first, second))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return 0.0
    scale = max(float(np.abs(one[np.isfinite(one)]).max(initial=0.0)), 1e-30)
    with np.errstate(invalid="ignore"):
        worst = float(np.abs(one - other)[~same].max())
    return worst / scale if np.isfinite(worst) else float(np.inf)
