"""Partitions of specimens, each in a laboratory, and their results held against what is
expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

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
