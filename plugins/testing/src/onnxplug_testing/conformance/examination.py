"""Puts checks to an EP, one after the other, in the time that there is."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import onnxplug
from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.plugins import registry
from onnxplug_testing.conformance.allotment import Allotment
from onnxplug_testing.conformance.check import Check, all_checks, chosen_checks
from onnxplug_testing.conformance.finding import Finding
from onnxplug_testing.conformance.fork_server import ForkServer, fork_server
from onnxplug_testing.conformance.forked import CAN_FORK
from onnxplug_testing.conformance.groups.costs import FINITE
from onnxplug_testing.conformance.isolation import run_apart, run_here
from onnxplug_testing.conformance.preparation import (
    prepare,
    surveyed,
    tries_cases,
)
from onnxplug_testing.conformance.report import CheckOutcome, Report
from onnxplug_testing.conformance.sentences import PAIRS
from onnxplug_testing.conformance.subject import BrokenDevices, Subject, find_subject

SECONDS: Final = 200.0
"""Processor time of all checks together."""

QUICK_SECONDS: Final = 18.0

CLOCK: Final = 295.0
"""Seconds by the clock in which all checks are to end."""

QUICK_CLOCK: Final = 29.0


class Settings(Record):
    """How an EP is examined.

    Attributes:
        seed: of all that is drawn.
        quick: in half a minute instead of less than five.
        folder: where to write what reproduces findings; ``None``: nothing is.
        isolated: each check has a process of its own, where the system can fork; then
            no EP may have been started in this one.
        budget: processor time of all checks together, in s, however long that takes by
            the clock; 0: both are by *quick*.
    """

    seed: int = 0
    quick: bool = False
    folder: Path | None = None
    isolated: bool = True
    budget: float = 0.0

    @property
    def seconds(self) -> float:
        """What all checks have together."""
        if self.budget:
            return self.budget
        return QUICK_SECONDS if self.quick else SECONDS

    @property
    def clock(self) -> float:
        """In how many seconds by the clock all checks are to end."""
        if self.budget:
            return math.inf
        return QUICK_CLOCK if self.quick else CLOCK


def examine(
    name: str,
    *,
    device: str = "",
    options: Mapping[str, Any] | None = None,
    only: Iterable[str] = (),
    settings: Settings | None = None,
    progress: Callable[[Check], None] | None = None,
) -> Report:
    """Examine the EP *name*, which is installed or registered.

    Args:
        device: see :func:`find_subject`.
        options: of all of the EP's sessions.
        only: groups and checks, ``claims`` or ``claims/reasons``; empty for all.
        progress: called before each check.

    Raises:
        PluginError, NotFound, InvalidArgument: there is no such EP, device or check;
            or engines were started in this process, and the EP hangs if it is forked.
    """
    checks = chosen_checks(only)
    settings = settings or Settings()
    began = time.monotonic()
    try:
        subject = find_subject(name, device, options)
    except BrokenDevices as error:
        return _without_devices(name, str(error), checks, settings)
    for each in checks:  # before there is a process that others are forked from
        prepare(each, forks=settings.isolated and CAN_FORK)
    with fork_server(subject, checks, isolated=settings.isolated) as server:
        if server is None and settings.isolated and CAN_FORK:
            subject = surveyed(subject, checks)
        end = began + settings.clock
        outcomes = _carry_all_out(checks, subject, settings, end, progress, server)
    seconds = time.monotonic() - began
    return _report(subject.factory, str(subject.pair), settings, outcomes, seconds)


def _carry_all_out(
    checks: Sequence[Check],
    subject: Subject,
    settings: Settings,
    end: float,
    progress: Callable[[Check], None] | None,
    server: ForkServer | None,
) -> list[CheckOutcome]:
    """What comes of *checks*, in their order."""
    outcomes: dict[str, CheckOutcome] = {}
    shares = [each.share for each in checks]
    allotment = Allotment(shares, settings.seconds, end)
    for each in largest_last(checks):
        if progress is not None:
            progress(each)
        outcome = carry_out_in_turn(each, subject, settings, allotment, server)
        outcomes[each.full_name] = outcome
    return [outcomes[each.full_name] for each in checks]


def largest_last(checks: Iterable[Check]) -> list[Check]:
    """*checks*, those last that have more cases than time, the largest behind them.

    What others leave of their time is for them.
    """
    return sorted(checks, key=lambda each: each.share * tries_cases(each))


def carry_out_in_turn(
    check: Check,
    subject: Subject,
    settings: Settings,
    allotment: Allotment,
    server: ForkServer | None,
) -> CheckOutcome:
    """What comes of one check in the time that *allotment* has for it."""
    began = time.monotonic()
    seconds, until = allotment.next(check.share, began), allotment.until(began)
    outcome = carry_out(check, subject, settings, seconds, server, until)
    allotment.spent(check.share, outcome.used, time.monotonic() - began)
    return outcome


def _without_devices(
    name: str, why: str, checks: Sequence[Check], settings: Settings
) -> Report:
    """The report of an EP whose pairs the host refuses: that is what is found."""
    factory = registry.factory(registry.resolve(name).name)
    outcomes = []
    for each in checks:
        # the host looks at costs when it is given them
        told_by = "costs/of-pairs" if "costs" in why else "factory/facts"
        sentence = FINITE if "costs" in why else PAIRS
        is_told = each.full_name == told_by
        found = [Finding(each.group, each.name, sentence, why)] if is_told else []
        untried = {} if is_told else {"the host cannot use the EP's devices": 1}
        outcomes.append(
            CheckOutcome(
                each.group,
                each.name,
                each.doc,
                int(is_told),
                untried,
                found,
                {},
                0.0,
                0.0,
            )
        )
    device = "no device that the host can use"
    return _report(factory, device, settings, outcomes, 0.0)


def _report(
    factory: ep.EpFactory,
    device: str,
    settings: Settings,
    outcomes: Sequence[CheckOutcome],
    seconds: float,
) -> Report:
    done = {each.full_name for each in outcomes}
    return Report(
        factory.name,
        factory.version,
        device,
        _versions(),
        settings.seed,
        settings.quick,
        outcomes,
        [each.full_name for each in all_checks() if each.full_name not in done],
        seconds,
    )


def carry_out(
    check: Check,
    subject: Subject,
    settings: Settings,
    seconds: float,
    server: ForkServer | None = None,
    until: float = math.inf,
) -> CheckOutcome:
    """What comes of one check in *seconds*.

    Args:
        server: the process that its own is forked from; by default this one.
        until: when it is out of time whatever it has used, by ``time.monotonic``.
    """
    forks = settings.isolated and CAN_FORK
    prepare(check, forks=forks)
    began = time.monotonic()
    known: dict[str, Any] = {
        "seed": settings.seed,
        "quick": settings.quick,
        "folder": settings.folder,
        "until": until,
    }
    found = server.run(check, seconds, **known) if server is not None else None
    if found is None:
        run = run_apart if forks else run_here
        found = run(check, subject, seconds=seconds, **known)
    return CheckOutcome(
        check.group,
        check.name,
        check.doc,
        **found,
        seconds=time.monotonic() - began,
    )


def _versions() -> dict[str, str]:
    spi = ep.SPI_VERSION
    return {
        "onnxplug": onnxplug.__version__,
        "SPI": ".".join(map(str, spi)),
        "onnx": onnx.__version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
    }
