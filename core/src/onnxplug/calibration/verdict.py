"""What was measured of plans for one model, and which was chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onnxplug.authoring.record import Record
from onnxplug.calibration.plan import Plan
from onnxplug.duration import duration


class Measured(Record):
    """What was measured of one plan, times in seconds.

    Attributes:
        median, fastest: of a run; 0 if none was measured.
        runs: how many were.
        load: until the session was made.
        first_run: of the first run, which may compile.
        failure: why it cannot be used; empty if it can.
        difference: how its outputs differ beyond tolerance from those of the reference;
            empty if they do not.
    """

    plan: Plan
    median: float = 0.0
    fastest: float = 0.0
    runs: int = 0
    load: float = 0.0
    first_run: float = 0.0
    failure: str = ""
    difference: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it ran, and gave what the reference gives."""
        return self.runs > 0 and not self.failure and not self.difference

    def __str__(self) -> str:
        if self.failure:
            return f"{self.plan} failed: {self.failure}"
        told = f"{self.plan} {duration(self.median)}"
        if self.difference:
            told += f", but its outputs are wrong: {self.difference}"
        return told

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return self._asdict() | {"plan": self.plan.to_json(), "words": str(self.plan)}


class Verdict(Record):
    """Which plan is used for a model, and why.

    Attributes:
        chosen: the plan.
        static: the plan in which the policy's first EP has all that it claims.
        measured: all plans that were tried, in order.
        shapes: of the inputs that they were fed, in words, by name.
        date: when it was measured, in UTC, to the second: ``2026-11-27T21:04:05Z``.
        kept: why it is not kept for other sessions; empty if it is.
    """

    chosen: Plan
    static: Plan
    measured: tuple[Measured, ...]
    shapes: Mapping[str, str]
    date: str
    kept: str = ""

    def of(self, plan: Plan) -> Measured | None:
        """What was measured of *plan*."""
        return next((each for each in self.measured if each.plan == plan), None)

    def __str__(self) -> str:
        """What was found, in one line."""
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        plans = "; ".join(
            f"{each} (chosen)" if each.plan == self.chosen else str(each)
            for each in self.measured
        )
        return f"measured {self.date} with {shapes or 'no inputs'}: {plans}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "chosen": self.chosen.to_json(),
            "static": self.static.to_json(),
            "measured": [each.to_dict() for each in self.measured],
            "shapes": dict(self.shapes),
            "date": self.date,
            "kept": self.kept,
        }

    def to_bytes(self) -> bytes:
        """The verdict for the cache."""
        return json.dumps(self.to_dict()).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Verdict:
        """The verdict that :meth:`to_bytes` gave.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it did not.
        """
        data = json.loads(content)
        measured = []
        for row in data["measured"]:
            plan = Plan.from_json(row.pop("plan"))
            row.pop("words")
            measured.append(Measured(plan, **row))
        return cls(
            Plan.from_json(data["chosen"]),
            Plan.from_json(data["static"]),
            tuple(measured),
            {str(name): str(shape) for name, shape in data["shapes"].items()},
            str(data["date"]),
        )
