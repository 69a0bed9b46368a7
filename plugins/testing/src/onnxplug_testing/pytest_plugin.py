"""``pytest --ep acme``: one test for each check of the conformance kit.

Loaded by pytest wherever ``onnxplug-testing`` is installed, so it imports the kit only
when it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxplug_testing.conformance import Check, CheckOutcome, Settings, Subject
    from onnxplug_testing.conformance.allotment import Allotment
    from onnxplug_testing.conformance.fork_server import ForkServer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("onnxplug", "conformance of an execution provider")
    group.addoption("--ep", metavar="EP", help="examine this EP, such as acme")
    group.addoption(
        "--ep-device",
        default="",
        metavar="DEVICE",
        help="which of its devices, as `onnxplug test --device`",
    )
    group.addoption(
        "--ep-only",
        default="",
        metavar="GROUP[,GROUP]",
        help="groups of checks, or checks as in claims/reasons",
    )
    group.addoption(
        "--ep-quick", action="store_true", help="half a minute for all checks"
    )
    group.addoption("--ep-seed", type=int, default=0, help="of all that is drawn")
    group.addoption(
        "--ep-folder",
        type=Path,
        metavar="DIR",
        help="where to write what reproduces findings",
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each check.

    Raises:
        UsageError: there is no such EP, device or check.
    """
    name = config.getoption("--ep")
    if name is None:
        return
    from onnxplug.errors import OnnxplugError
    from onnxplug_testing.conformance import Settings, chosen_checks, find_subject
    from onnxplug_testing.conformance.examination import largest_last

    settings = Settings(
        config.getoption("--ep-seed"),
        config.getoption("--ep-quick"),
        config.getoption("--ep-folder"),
    )
    only = [each for each in config.getoption("--ep-only").split(",") if each]
    try:
        checks = chosen_checks(only)
        subject = find_subject(name, config.getoption("--ep-device"))
    except OnnxplugError as error:
        raise pytest.UsageError(str(error)) from error
    processes = Processes(subject, checks)
    config.add_cleanup(processes.close)
    for each in largest_last(checks):
        items.append(
            ConformanceItem.from_parent(
                session,
                name=f"{subject.name}::{each.full_name}",
                check=each,
                subject=subject,
                settings=settings,
                processes=processes,
            )
        )


class Found(Exception):
    """What a check found."""


class Processes:
    """What all checks share: the process that theirs are forked from, and the time."""

    def __init__(self, subject: Subject, checks: list[Check]) -> None:
        self._subject = subject
        self._checks = checks
        self._open = ExitStack()
        self._started: list[ForkServer | None] = []
        self._hangs = ""
        self._allotment: Allotment | None = None
        self.close = self._open.close

    def allotment(self, settings: Settings, items: Sequence[pytest.Item]) -> Allotment:
        """The time, which begins with the first of the tests that were selected."""
        from onnxplug_testing.conformance.allotment import Allotment

        if self._allotment is None:
            self._allotment = Allotment(
                [
                    each.check.share
                    for each in items
                    if isinstance(each, ConformanceItem)
                ],
                settings.seconds,
                time.monotonic() + settings.clock,
            )
        return self._allotment

    def server(self) -> ForkServer | None:
        """See :func:`fork_server`; skips a test where no process can be forked."""
        from onnxplug.errors import InvalidArgument
        from onnxplug_testing.conformance.fork_server import fork_server

        if not self._started and not self._hangs:
            opened = fork_server(self._subject, self._checks)
            try:
                self._started.append(self._open.enter_context(opened))
            except InvalidArgument as error:
                self._hangs = str(error)
        if self._hangs:
            pytest.skip(self._hangs)
        return self._started[0]


class ConformanceItem(pytest.Item):
    """A check of the kit as a test, which fails where something is found."""

    def __init__(
        self,
        *,
        check: Check,
        subject: Subject,
        settings: Settings,
        processes: Processes,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.check = check
        self._subject = subject
        self._settings = settings
        self._processes = processes

    def runtest(self) -> None:
        """Carry the check out; skipped where there was nothing to try."""
        from onnxplug_testing.conformance.examination import carry_out_in_turn
        from onnxplug_testing.conformance.text import of_outcome

        allotment = self._processes.allotment(self._settings, self.session.items)
        outcome: CheckOutcome = carry_out_in_turn(
            self.check,
            self._subject,
            self._settings,
            allotment,
            self._processes.server(),
        )
        text = of_outcome(outcome)
        self.add_report_section("call", "conformance", text)
        self.user_properties.append(("tried", outcome.tried))
        if outcome.findings:
            raise Found(text)
        if not outcome.tried:
            pytest.skip("; ".join(outcome.untried) or "nothing to try")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The findings, and no traceback of pytest's."""
        if isinstance(excinfo.value, Found):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is, in pytest's words."""
        return self.path, None, self.name
