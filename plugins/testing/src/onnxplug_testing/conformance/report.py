"""What came of an examination: what was tried, what was not and why, what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.finding import Finding


class CheckOutcome(Record):
    """What came of one check.

    Attributes:
        group: the check's.
        name: the check's.
        doc: what is asked.
        tried: how many cases were.
        untried: how many were not, by the reason.
        findings: what was found.
        figures: what was measured, by what it is.
        seconds: how long it took.
        used: how much time of the processor that was of the check's share, in s.
    """

    group: str
    name: str
    doc: str
    tried: int
    untried: Mapping[str, int]
    findings: Sequence[Finding]
    figures: Mapping[str, float]
    seconds: float
    used: float

    @property
    def full_name(self) -> str:
        """``group/name``."""
        return f"{self.group}/{self.name}"


class Report(Record):
    """What came of all checks of an EP.

    Attributes:
        ep: the EP's name.
        version: the EP's.
        device: on which it was examined, in words.
        versions: of onnxplug, the SPI, ONNX, numpy and Python.
        seed: of all that was drawn.
        quick: it had half a minute.
        checks: in the order in which they were carried out.
        unexamined: groups and checks that were not asked for.
        seconds: how long it took.
    """

    ep: str
    version: str
    device: str
    versions: Mapping[str, str]
    seed: int
    quick: bool
    checks: Sequence[CheckOutcome]
    unexamined: Sequence[str]
    seconds: float

    @property
    def findings(self) -> list[Finding]:
        """Those of all checks."""
        return [finding for each in self.checks for finding in each.findings]

    @property
    def tried(self) -> int:
        """How many cases were."""
        return sum(each.tried for each in self.checks)

    @property
    def untried(self) -> int:
        """How many cases were not, of the checks that were asked for."""
        return sum(sum(each.untried.values()) for each in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Itself as JSON can hold it."""
        return {
            "ep": self.ep,
            "version": self.version,
            "device": self.device,
            "versions": dict(self.versions),
            "seed": self.seed,
            "quick": self.quick,
            "seconds": round(self.seconds, 3),
            "tried": self.tried,
            "untried": self.untried,
            "unexamined": list(self.unexamined),
            "checks": [
                each._asdict()
                | {
                    "untried": dict(each.untried),
                    "findings": [finding.as_json() for finding in each.findings],
                    "figures": dict(each.figures),
                    "seconds": round(each.seconds, 3),
                    "used": round(each.used, 3),
                }
                for each in self.checks
            ],
        }
