"""Whether a run of each operator that the EP takes leaves its inputs alone, and its
results where they belong, and reads what its stream has made by then.

One of ONNX's own cases of each is compiled by itself, and run by hand.  What it
computes is asked in :mod:`.operators`; here it is enough that one run gives what
another does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import as_case, describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    Unfit,
    asking,
    laboratory,
)
from onnxplug_testing.conformance.partitions import (
    check_places,
    check_unwritten,
    settled,
)
from onnxplug_testing.conformance.specimens import Specimen
from onnxplug_testing.conformance.survey import survey
from onnxplug_testing.conformance.trial import Trial
from onnxplug_testing.measuring.variations import DTYPES, Variation

Ask: TypeAlias = Callable[[Laboratory, Mapping[str, Array], Case, str], None]
"""Given a laboratory, what it is fed, the case, and the node in words."""

NOT_ALONE: Final = "the EP compiles no case of the operator that is tried"

_CASES: Final = 3
"""So many cases of an operator that is claimed are tried, until one is compiled."""


class Named(Record):
    """Stands for what computes a case, of which only its outputs are asked here.

    Attributes:
        output_names: of the model, in order.
    """

    output_names: Sequence[str]


def of_each_operator(trial: Trial, what: str, ask: Ask) -> None:
    """Compile a case of each operator that the EP takes, and *ask* something of it;
    those that it claims at once come first.

    Args:
        what: is done with it, in words.
    """
    suite = load_suite()
    names = sorted(suite)
    trial.draw("order").shuffle(names)
    answers = survey(trial.subject, suite, of_each=2)
    claimed = {
        name
        for name, said_of_it in answers.items()
        if any(answer.reason is None for answer in said_of_it)
    }
    for name in trial.in_time(sorted(names, key=lambda name: name not in claimed)):
        # what is folded, or asked about in another form, is seen to be claimed here
        forms = list(_forms(suite[name], _CASES if name in claimed else 1))
        if forms and trial.attempt(_case(forms[0], what)):
            _ask_of_one(trial, forms, what, ask)


def _forms(cases: Sequence[Variation], count: int) -> Iterator[Variation]:
    """Cases on numbers, of sizes that are not known before, and of those that are."""
    plain = [each for each in cases if _is_of_numbers(each)]
    for case in plain[:count]:
        yield dataclasses.replace(case, kind="dynamic", dynamic=True, sized=True)
        yield case


def _is_of_numbers(case: Variation) -> bool:
    arrays = [*case.inputs, *(case.expected or ())]
    there = [each for each in arrays if each is not None]
    return bool(case.feeds()) and all(
        isinstance(each, np.ndarray) and each.dtype.name in DTYPES for each in there
    )


def _case(tried: Variation, what: str) -> Case:
    case = as_case(tried)
    return Case(case.model, case.feeds, f"{case.name}, {what}")


def _ask_of_one(trial: Trial, forms: Sequence[Variation], what: str, ask: Ask) -> None:
    """*ask* of the first of *forms* that the EP compiles."""
    with ExitStack() as ends:
        for tried in forms:
            case, node = _case(tried, what), describe(tried)
            feeds = dict(case.feeds)
            try:
                entered = laboratory(
                    trial.subject, specimen_of(tried, case), feeds=feeds
                )
                lab = ends.enter_context(entered)
            except Unfit:
                continue
            except (Exception, SystemExit) as error:  # noqa: BLE001 (asked elsewhere)
                ep.raise_interruption(error)
                continue
            with asking(trial, said.RESULTS, case, node):
                # those of ONNX's cases may be read-only, and are for others, too
                own = {name: np.array(array) for name, array in feeds.items()}
                ask(lab, own, case, node)
            return
    trial.take_back(NOT_ALONE)


def specimen_of(tried: Variation, case: Case) -> Specimen:
    """A model of one node, to be run by hand with what *case* is fed."""
    feeds = case.feeds
    first = next(iter(feeds.values()))
    return Specimen(
        describe(tried),
        case.model,
        ep.DataType.from_numpy(first.dtype),
        {name: array.shape for name, array in feeds.items()},
        Named([name for name in tried.node.output if name]),
    )


@check("memory", share=0.8)
def each_operator(trial: Trial) -> None:
    """Each operator that the EP takes leaves its inputs as they are, and its results in
    the memory that they belong in."""

    def ask(lab: Laboratory, feeds: Mapping[str, Array], case: Case, node: str) -> None:
        before = {name: np.array(array) for name, array in feeds.items()}
        with settled(lab) as stream:
            placed = lab.put(feeds, stream)
            given = lab.run(placed, None, stream)
        check_places(trial, lab, given, case, node)
        check_unwritten(trial, lab, placed, before, case, node=node)

    of_each_operator(trial, "what it is fed is looked at after the run", ask)
