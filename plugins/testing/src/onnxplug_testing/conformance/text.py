"""A report as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from onnxplug_testing.conformance.finding import Finding
from onnxplug_testing.conformance.report import CheckOutcome, Report

_WIDTH = 80


def as_text(report: Report) -> str:
    """What came of each check, and each finding with all that is known of it."""
    return "\n".join(_lines(report)) + "\n"


def summary(report: Report) -> str:
    """How much was tried, was not, and was found, on one line."""
    found = len(report.findings)
    return (
        f"{report.tried} cases tried in {len(report.checks)} checks, "
        f"{report.untried} not tried, {found} finding{'s' * (found != 1)} "
        f"({report.seconds:.0f} s, seed {report.seed})"
    )


def of_outcome(outcome: CheckOutcome) -> str:
    """What came of one check."""
    head = f"{outcome.full_name}: {outcome.tried} cases tried"
    lines = [head, *_wrapped(outcome.doc), *_details(outcome)]
    for number, finding in enumerate(outcome.findings, 1):
        lines += ["", *_of_finding(number, finding)]
    return "\n".join(lines)


def _lines(report: Report) -> Iterator[str]:
    versions = ", ".join(f"{name} {text}" for name, text in report.versions.items())
    yield f"{report.ep} {report.version}: {report.device}"
    yield from _wrapped(versions, "  ")
    yield ""
    width = max((len(each.full_name) for each in report.checks), default=0)
    yield f"{'CHECK'.ljust(width)}  TRIED  NOT TRIED  FINDINGS  SECONDS"
    for each in report.checks:
        yield (
            f"{each.full_name.ljust(width)}  {each.tried:5}  "
            f"{sum(each.untried.values()):9}  {len(each.findings):8}  "
            f"{each.seconds:7.1f}"
        )
    for each in report.checks:
        yield from _details(each)
    if report.unexamined:
        yield ""
        yield from _wrapped(f"not asked for: {', '.join(report.unexamined)}")
    for number, finding in enumerate(report.findings, 1):
        yield ""
        yield from _of_finding(number, finding)
    yield ""
    yield summary(report)


def _details(outcome: CheckOutcome) -> Iterator[str]:
    if not outcome.untried and not outcome.figures:
        return
    yield ""
    yield outcome.full_name
    for why, count in outcome.untried.items():
        yield from _wrapped(f"not tried: {count}, as {why}", "  ")
    for what, figure in outcome.figures.items():
        yield f"  {what}: {figure:.4g}"


def _of_finding(number: int, finding: Finding) -> Iterator[str]:
    times = f" ({finding.times} times)" if finding.times > 1 else ""
    node = f" {finding.node}:" if finding.node else ""
    head = f"{number}. {finding.group}/{finding.check}:{node} {finding.what}{times}"
    yield from _wrapped(head)
    sentence = finding.sentence
    yield from _wrapped(f"contract: {sentence.of}: “{sentence.says}”", "   ")
    yield f"   see {sentence.link}"
    if finding.case:
        yield from _wrapped(f"case: {finding.case}", "   ")
    for name, dtype in finding.types.items():
        yield f"   {name}: {dtype}{list(finding.shapes[name])}"
    if finding.file:
        yield f"   reproduce: {finding.file}/reproduce.py"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
