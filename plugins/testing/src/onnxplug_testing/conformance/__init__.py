"""The conformance kit: puts to an EP what the contract asks of it.

:func:`examine` gives a :class:`Report`: what was tried, what was not and why, and what
was found, each with the sentence of the contract that was broken and, if a folder is
given, a file that reproduces it.  ``onnxplug test EP`` and ``pytest --ep EP`` call it.
"""

from onnxplug_testing.conformance.check import (
    GROUPS,
    Check,
    all_checks,
    check,
    chosen_checks,
)
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.examination import Settings, carry_out, examine
from onnxplug_testing.conformance.finding import Case, Finding
from onnxplug_testing.conformance.report import CheckOutcome, Report
from onnxplug_testing.conformance.subject import Subject, find_subject
from onnxplug_testing.conformance.trial import Trial

__all__ = [
    "GROUPS",
    "Case",
    "Check",
    "CheckOutcome",
    "Finding",
    "Report",
    "Sentence",
    "Settings",
    "Subject",
    "Trial",
    "all_checks",
    "carry_out",
    "check",
    "chosen_checks",
    "examine",
    "find_subject",
]
