"""Times several sessions in turns, each in a process of its own.

They take turns round by round, each second round in the reverse order, so that what
else the machine does falls on all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.calibration.process import ProcessFailed, SessionProcess
from onnxplug.calibration.verdict import Measured

if TYPE_CHECKING:
    from onnxplug.calibration.plan import Plan

_ROUND: Final = 0.05
"""Seconds that a round of one session is to take."""

_LEAST: Final = 3
"""Runs that each session has at least."""

_HOPELESS: Final = 3.0
"""A session that takes so many times as long as the fastest is measured no longer."""

Report = Callable[[str, float | None], None]
"""Called with what is being done, and from 0 to 1 how much of that is; ``None`` where
nobody knows."""


class Contender:
    """A plan that is timed.

    Attributes:
        seconds: of each run.
        failure: why it is out; empty if it is not.
        difference: as of :class:`Measured`.
        outputs: of its first run, by name; empty when they were compared.
    """

    def __init__(self, plan: Plan, make: Callable[[], SessionProcess]) -> None:
        self.plan = plan
        self.seconds: list[float] = []
        self.busy = 0.0
        self.failure = ""
        self.difference = ""
        self.outputs: dict[str, Any] = {}
        self._process: SessionProcess | None = None
        self._load = self._first_run = 0.0
        self._open(make)

    def _open(self, make: Callable[[], SessionProcess]) -> None:
        try:
            self._process = make()
            opened = self._process.opened()
        except ProcessFailed as error:
            self.fail(str(error))
            return
        except BaseException:
            self.close()
            raise
        self._load, self._first_run = opened.load, opened.first_run
        self.outputs = dict(opened.outputs)
        if not opened.nodes.get(self.plan.first, 0) and opened.nodes:
            self.fail(f"{self.plan.first} runs no node of the model so")

    @property
    def is_in(self) -> bool:
        """Whether it is still to be measured."""
        return self._process is not None and not self.failure

    @property
    def pace(self) -> float:
        """Seconds of a run, as far as that is known."""
        return statistics.median(self.seconds or [self._first_run])

    def fail(self, why: str) -> None:
        """Note that it is out, and end its process."""
        self.failure = why
        self.close()

    def run(self, times: int) -> None:
        """Run *times* times, or note why that failed."""
        assert self._process is not None
        try:
            seconds, busy = self._process.run(times)
        except ProcessFailed as error:
            self.fail(str(error))
            return
        self.seconds += seconds
        self.busy += busy

    def measured(self) -> Measured:
        """What was measured."""
        runs = len(self.seconds)
        return Measured(
            self.plan,
            statistics.median(self.seconds) if runs else 0.0,
            min(self.seconds, default=0.0),
            runs,
            self._load,
            self._first_run,
            self.failure,
            self.difference,
        )

    def close(self) -> None:
        """End its process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


def race(contenders: Sequence[Contender], seconds: float, report: Report) -> None:
    """Measure each of *contenders* for *seconds*, those that fail and that are far
    behind for less."""
    number = 0
    while True:
        field = [each for each in contenders if each.is_in]
        left = [each for each in field if _is_open(each, field, seconds)]
        if not left:
            return
        for each in left if number % 2 == 0 else left[::-1]:
            if each.is_in:
                each.run(max(1, int(_ROUND / max(each.pace, 1e-6))))
        number += 1
        busy = min(each.busy for each in left)
        names = " and ".join(str(each.plan) for each in field)
        report(f"timing {names}", min(busy / seconds, 1.0))


def _is_open(each: Contender, field: Sequence[Contender], seconds: float) -> bool:
    if len(each.seconds) < _LEAST:
        return True
    fastest = min(other.pace for other in field)
    return each.busy < seconds and each.pace <= _HOPELESS * fastest
