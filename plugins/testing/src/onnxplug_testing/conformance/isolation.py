"""Carries a check out in a process of its own, which an EP may end or hang.

The process is forked, so that an EP that was registered by an object, and not by name,
is there.  What asks for it has started no EP: what drivers and threads do in a forked
process is not what is examined.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import Check
from onnxplug_testing.conformance.contract import STREAMS, Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.networks import vocabulary
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import ignoring_failures
from onnxplug_testing.conformance.trial import LATENESS, Trial, in_words, outcome_of

PATIENCE: Final = 60.0
"""Seconds in which a case has to end, on a machine that does much else."""

_AGAIN: Final = 0.3
"""Seconds that a process has at least that goes on after one that ended."""

_DEATHS: Final = 8
"""After so many the rest of a check is not tried."""

ENDS: Final = Sentence(
    "Many runs at once",
    "What differs from run to run (slots, streams, the deadline) belongs to the run",
    STREAMS,
)

Outcome = dict[str, Any]


def run_here(check: Check, subject: Subject, **settings: Any) -> Outcome:
    """What came of *check*, carried out in this process."""
    trial = Trial(check.group, check.name, subject, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _carry_out(check, trial)
    return dict(outcome_of(trial))


def _carry_out(check: Check, trial: Trial) -> None:
    try:
        check.run(trial)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        # not foreseen by the check: the rest of it is lost, and that is told
        trial.find(said.FAILS, f"outside of any case: {in_words(error)}")
        trial.leave_out("the check ended early, by what is told as found")


def run_apart(
    check: Check,
    subject: Subject,
    seconds: float,
    until: float = math.inf,
    **settings: Any,
) -> Outcome:
    """What came of *check*, carried out in processes, a new one after each death.

    Args:
        seconds: what the check has.
        until: see :class:`Trial`.
        settings: others of :class:`Trial`.
    """
    end = min(time.monotonic() + LATENESS * seconds, until)
    deaths: list[tuple[Case | None, str]] = []
    skip = 0
    whole = _nothing()
    while True:
        left = max(seconds - whole["used"], _AGAIN) if deaths else seconds
        child = _Child(check, subject, seconds=left, skip=skip, until=end, **settings)
        outcome, how = child.outcome()
        skip = child.attempts
        whole = _joined(whole, outcome)
        if not how:
            break
        deaths.append((child.case, how))
        if child.case is None or len(deaths) == _DEATHS or time.monotonic() > end:
            whole["untried"] = Counter(whole["untried"])
            whole["untried"]["the process that tried them ended"] += 1
            break
    return _with_deaths(whole, deaths, check, subject, settings)


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """What two processes told; the second has told of all that was not tried."""
    return {
        "tried": first["tried"] + second["tried"],
        "untried": second["untried"] or first["untried"],
        "findings": first["findings"] + second["findings"],
        "figures": first["figures"] | second["figures"],
        "used": first["used"] + second["used"],
    }


def _nothing() -> Outcome:
    return {"tried": 0, "untried": {}, "findings": [], "figures": {}, "used": 0.0}


def _with_deaths(
    outcome: Outcome,
    deaths: list[tuple[Case | None, str]],
    check: Check,
    subject: Subject,
    settings: Mapping[str, Any],
) -> Outcome:
    known = {key: settings[key] for key in ("seed", "quick", "folder")}
    trial = Trial(check.group, f"{check.name}-ended", subject, **known)
    for case, how in deaths:
        trial.find(ENDS, how, case=case, kind=f"{how} {case.name if case else ''}")
    found = [f._replace(check=check.name) for f in trial.findings.values()]
    return outcome | {"findings": [*outcome["findings"], *found]}


class _Child:
    """A process that carries a check out, and tells what it is at.

    Attributes:
        case: what it was at last; ``None`` if it never said.
        attempts: how many cases it was given, with those that it skipped.
    """

    def __init__(self, check: Check, subject: Subject, **settings: Any) -> None:
        context = multiprocessing.get_context("fork")
        self.attempts = settings["skip"]
        self.case: Case | None = None
        self._limit = settings["seconds"]
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = (check, subject, sender, settings)
        self._process: Any = context.Process(target=_child, args=arguments)
        with warnings.catch_warnings():
            # of threads of this process, which the child has no need of
            warnings.simplefilter("ignore")
            self._process.start()
        sender.close()

    def outcome(self) -> tuple[Outcome, str]:
        """What it told at last, and how it ended otherwise than by that; empty if it
        did not."""
        told = _nothing()
        patience = PATIENCE + LATENESS * self._limit
        while True:
            if not self._receiver.poll(patience):
                self._process.kill()
                self._process.join()
                return told, f"did not end within {patience:.0f} s"
            try:
                kind, content = self._receiver.recv()
            except (EOFError, OSError, pickle.UnpicklingError):
                self._process.join()
                return told, f"the process ended: {_in_words(self._process.exitcode)}"
            if kind == "case":
                self.case, patience = content, PATIENCE
                self.attempts += 1
            elif kind == "so far":
                told = content
            else:
                self._process.join(PATIENCE)
                self._process.kill()
                return content, ""


def _in_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _child(
    check: Check, subject: Subject, sender: Connection, settings: dict[str, Any]
) -> None:
    warnings.simplefilter("ignore")
    gc.freeze()  # what it inherits is large, and checks collect garbage often
    tell: list[Callable[[], Outcome]] = []

    def told(case: Case | None) -> None:
        # with what was found until then, which is lost with the process
        sender.send(("so far", tell[0]()))
        if case is not None:
            sender.send(("case", case))

    with ignoring_failures():
        vocabulary(subject)  # importing an engine is not of the check's time
    trial = Trial(check.group, check.name, subject, tell=told, **settings)
    tell.append(lambda: dict(outcome_of(trial)))
    _carry_out(check, trial)
    sender.send(("done", dict(outcome_of(trial))))
    sender.close()
    # threads of an EP that never end are for other checks to find
    os._exit(0)
