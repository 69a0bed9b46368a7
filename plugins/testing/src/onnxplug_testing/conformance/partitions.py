"""Partitions of specimens, each in a laboratory, and their inputs and results held
against what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    laboratory,
    wait_for_all,
)
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    chosen,
    differs,
    of_any_size,
    several,
    single,
)
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial

ALL: Final = (single, several, of_any_size)


def examined(
    trial: Trial, what: str, *choices: Any
) -> Iterator[tuple[Laboratory, Specimen, Case]]:
    """Laboratories of specimens that the EP takes, for *what* is done in each."""
    for specimen in chosen(trial, *(choices or ALL)):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, what)
        if not trial.has_time:
            trial.leave_out(OUT_OF_TIME)
        elif trial.attempt(case):
            with (
                asking(trial, said.RESULTS, case),
                laboratory(trial.subject, specimen) as lab,
            ):
                yield lab, specimen, case


def compare(
    trial: Trial,
    lab: Laboratory,
    results: Mapping[str, Any],
    expected: Mapping[str, Array],
    case: Case,
    sentence: Any = said.RESULTS,
    what: str = "",
) -> bool:
    """Find whether results are those that are expected; whether they are."""
    is_right = True
    for name, array in results.items():
        found = lab.get(name, array)
        if not agrees(found, expected[name]):
            is_right = False
            trial.find(
                sentence,
                f"{what or 'in a run'} {name!r}: {differs(found, expected[name])}",
                case=case,
                kind=f"{what} {name}",
            )
    return is_right


@contextmanager
def settled(lab: Laboratory) -> Iterator[ep.Stream | None]:
    """A stream for a run, which is waited for."""
    with lab.stream() as stream:
        yield stream
        if stream is not None:
            wait_for_all(stream)


def check_places(
    trial: Trial,
    lab: Laboratory,
    given: Mapping[str, Any],
    case: Case,
    node: str = "",
) -> None:
    """Find whether results are in the memory where the partition says that it leaves
    them."""
    for name, array in given.items():
        is_here = isinstance(array, np.ndarray)
        location = lab.location_of_output(name)
        if is_here != location.host_accessible and not (is_here and lab.bench is None):
            trial.find(
                said.LOCATIONS,
                f"{name!r} is {'' if is_here else 'not '}an array of the host; its "
                f"place is {location}",
                case=case,
                node=node,
            )


def check_unwritten(
    trial: Trial,
    lab: Laboratory,
    placed: Mapping[str, Any],
    before: Mapping[str, Array],
    case: Case,
    sentence: Any = said.INPUTS,
    what: str = "in a run",
    node: str = "",
) -> None:
    """Find whether inputs, *placed*, are as *before*."""
    for name, array in placed.items():
        found = array if isinstance(array, np.ndarray) else lab.on_device.get(array)
        if found.tobytes() != before[name].tobytes():
            trial.find(
                sentence,
                f"{name!r}, an input, was written to {what}",
                case=case,
                node=node,
            )
