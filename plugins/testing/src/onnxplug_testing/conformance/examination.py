"""Puts checks to an EP, one after the other, in the time that there is."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import onnxplug
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance.cases import load_suite
from onnxplug_testing.conformance.check import Check, all_checks, chosen_checks
from onnxplug_testing.conformance.isolation import CAN_FORK, run_apart, run_here
from onnxplug_testing.conformance.report import CheckOutcome, Report
from onnxplug_testing.conformance.subject import Subject, find_subject

SECONDS: Final = 200.0
"""Processor time of all checks together."""

QUICK_SECONDS: Final = 20.0


class Settings(Record):
    """How an EP is examined.

    Attributes:
        seed: of all that is drawn.
        quick: in half a minute instead of less than five.
        folder: where to write what reproduces findings; ``None``: nothing is.
        isolated: each check has a process of its own, where the system can fork; then
            no EP may have been started in this one.
    """

    seed: int = 0
    quick: bool = False
    folder: Path | None = None
    isolated: bool = True

    @property
    def seconds(self) -> float:
        """What all checks have together."""
        return QUICK_SECONDS if self.quick else SECONDS


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
        PluginError, NotFound, InvalidArgument: there is no such EP, device or check.
    """
    checks = chosen_checks(only)
    subject = find_subject(name, device, options)
    settings = settings or Settings()
    began = time.monotonic()
    if any(each.group in ("operators", "claims") for each in checks):
        load_suite()  # which the processes of the checks inherit
    left = settings.seconds
    outcomes = []
    for position, each in enumerate(checks):
        if progress is not None:
            progress(each)
        share = each.share / sum(later.share for later in checks[position:])
        outcomes.append(carry_out(each, subject, settings, left * share))
        left -= min(outcomes[-1].seconds, left * share)
    wanted = {each.full_name for each in checks}
    return Report(
        subject.name,
        subject.factory.version,
        str(subject.pair),
        _versions(),
        settings.seed,
        settings.quick,
        outcomes,
        [each.full_name for each in all_checks() if each.full_name not in wanted],
        time.monotonic() - began,
    )


def carry_out(
    check: Check, subject: Subject, settings: Settings, seconds: float
) -> CheckOutcome:
    """What comes of one check in *seconds*."""
    began = time.monotonic()
    run = run_apart if settings.isolated and CAN_FORK else run_here
    found = run(
        check,
        subject,
        seconds=seconds,
        seed=settings.seed,
        quick=settings.quick,
        folder=settings.folder,
    )
    return CheckOutcome(
        check.group,
        check.name,
        check.doc,
        **found,
        seconds=time.monotonic() - began,
    )


def _versions() -> dict[str, str]:
    spi = onnxplug.ep.SPI_VERSION
    return {
        "onnxplug": onnxplug.__version__,
        "SPI": ".".join(map(str, spi)),
        "onnx": onnx.__version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
    }
