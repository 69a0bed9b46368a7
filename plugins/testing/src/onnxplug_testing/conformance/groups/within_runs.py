"""Whether runs are apart from each other where one begins in the midst of another, and
have the time that they are given.

What differs from run to run belongs to the run.  Threads that run at once seldom meet
where they share something; here one run begins just where the EP asks whether another
is cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_streams import in_threads, taking_turns
from onnxplug_testing.conformance.laboratory import Array, Laboratory, RunNow, asking
from onnxplug_testing.conformance.partitions import compare, examined, settled
from onnxplug_testing.conformance.specimens import Specimen, agrees, differs
from onnxplug_testing.conformance.trial import Trial

_HOUR: Final = 3600.0

_PATIENCE: Final = 2.0
"""Seconds for a run within another; an EP may let only one go on at a time."""

_END: Final = 30.0
"""Seconds for a run when the one that it began in has ended."""

_PLACES: Final = 6
"""At so many places of a run another one begins."""


class Watched(RunNow):
    """A run that calls *ask* whenever the EP asks whether it is cancelled."""

    def __init__(
        self,
        stream: ep.Stream | None,
        options: Mapping[str, ep.OptionValue],
        ask: Callable[[], None],
    ) -> None:
        self._ask = ask
        super().__init__(stream, options)

    @property
    def cancelled(self) -> bool:
        self._ask()
        return False

    @cancelled.setter
    def cancelled(self, _: bool) -> None: ...


@check("time", share=0.3)
def runs_within_runs(trial: Trial) -> None:
    """A run of another session, or of the same, in the midst of a run gives what is its
    own, and so does the run."""
    for lab, specimen, case in examined(trial, "another run in its midst"):
        limit = lab.compiled.max_concurrent_runs
        with (
            asking(trial, said.OWN_OF_RUNS, case),
            trial.subject.session(specimen.model, checked=False) as other,
        ):
            sessions = {"another session": other}
            if limit is None or limit > 1:
                sessions["the same session"] = lab.session
            places = _places(trial, lab, specimen)
            if not places:
                trial.leave_out("the EP never asks in a run whether it is cancelled")
            for whose, session in sessions.items():
                for place in range(min(places, _PLACES)):
                    trial.count()
                    within_it = _Within(trial, specimen, session, whose, place)
                    if not within_it.tried(lab, case):
                        break
            _at_once(trial, specimen, [lab.session, other], case)


def _places(trial: Trial, lab: Laboratory, specimen: Specimen) -> int:
    """How often the EP asks in a run whether it is cancelled."""
    asked: list[None] = []
    feeds = specimen.feeds(trial.numbers("places"))
    with settled(lab) as stream:
        placed = lab.put(feeds, stream)
        context = Watched(stream, lab.run_options, lambda: asked.append(None))
        lab.run(placed, None, stream, context=context)
    return len(asked)


class _Within:
    """A run of *session*, ``whose`` that is, in the midst of another one."""

    def __init__(
        self,
        trial: Trial,
        specimen: Specimen,
        session: onnxplug.InferenceSession,
        whose: str,
        place: int,
    ) -> None:
        self._trial = trial
        self._specimen = specimen
        self._session = session
        self._what = f"a run, and one of {whose} where it asks, time {place + 1}"
        self._left = place
        self._feeds = specimen.feeds(trial.numbers("within", whose, place))
        self._thread: threading.Thread | None = None
        self._had_to_wait = False
        self._found: list[Array] | BaseException | None = None

    def tried(self, lab: Laboratory, case: Case) -> bool:
        """Run the partition, and in its midst the session; whether both were right, and
        the latter did go on within the former."""
        feeds = self._specimen.feeds(self._trial.numbers("around", self._what))
        with settled(lab) as stream:
            placed = lab.put(feeds, stream)
            context = Watched(stream, lab.run_options, self._asked)
            given = lab.run(placed, None, stream, context=context)
        is_right = compare(
            self._trial, lab, given, self._specimen.expected(feeds), case,
            said.OWN_OF_RUNS, f"of {self._what}, the former:",
        )  # fmt: skip
        return self._judge(case) and is_right and not self._had_to_wait

    def _asked(self) -> None:
        self._left -= 1
        if self._left >= 0 or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            self._had_to_wait = True
            why = "no run goes on within another: the EP has one wait for the other"
            self._trial.leave_out(why)

    def _run(self) -> None:
        try:
            self._found = self._session.run(None, dict(self._feeds))
        except BaseException as error:  # noqa: BLE001 (whatever an EP raises)
            self._found = error

    def _judge(self, case: Case) -> bool:
        """Whether the run in the midst was right."""
        if self._thread is None:
            return True
        self._thread.join(_END)
        what, found = f"of {self._what}, the latter", self._found
        if found is None:
            text = f"{what} had not ended {_END:.0f} s after the former"
            self._trial.find(said.OWN_OF_RUNS, text, case=case, kind="late")
        elif isinstance(found, BaseException):
            ep.raise_interruption(found)
            text = f"{what} raised {found!r}"[:400]
            self._trial.find(said.OWN_OF_RUNS, text, case=case, kind="raised")
        else:
            return _hold(self._trial, self._specimen, self._feeds, found, what, case)
        return False


def _hold(
    trial: Trial,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    found: Any,
    what: str,
    case: Case,
) -> bool:
    """Find what differs; whether nothing does."""
    expected, is_right = specimen.expected(feeds), True
    for name, array in zip(specimen.outputs, found, strict=True):
        if not agrees(array, expected[name]):
            text = f"{what}: {name!r}: {differs(array, expected[name])}"
            trial.find(said.OWN_OF_RUNS, text, case=case, kind=f"wrong {what}")
            is_right = False
    return is_right


def _at_once(
    trial: Trial,
    specimen: Specimen,
    sessions: list[onnxplug.InferenceSession],
    case: Case,
) -> None:
    """Each session is run by a thread of its own, at once."""
    feeds = [specimen.feeds(trial.numbers("at once", n)) for n in range(len(sessions))]

    def work(number: int) -> None:
        what = f"of {len(sessions)} sessions that run in threads at once, one"
        for _ in range(10 if trial.quick else 40):
            found = sessions[number].run(None, dict(feeds[number]))
            _hold(trial, specimen, feeds[number], found, what, case)

    trial.count(len(sessions))
    with taking_turns():
        failed = in_threads(len(sessions), work)
    for error in failed:
        ep.raise_interruption(error)
        text = f"of sessions that run in threads at once, one raised {error!r}"[:400]
        trial.find(said.OWN_OF_RUNS, text, case=case, kind="at once raised")


@check("time", share=0.1)
def far_deadlines(trial: Trial) -> None:
    """A run that has an hour is not cancelled."""
    for lab, specimen, case in examined(trial, "runs that have an hour"):
        with asking(trial, said.DEADLINE, case):
            feeds = specimen.feeds(trial.numbers("an hour"))
            with settled(lab) as stream:
                placed = lab.put(feeds, stream)
                context = RunNow(stream, lab.run_options)
                context.deadline = time.monotonic() + _HOUR
                try:
                    given = lab.run(placed, None, stream, context=context)
                except ep.RunCancelled as error:
                    text = f"a run whose deadline is in an hour was cancelled: {error}"
                    trial.find(said.DEADLINE, text, case=case)
                    continue
            expected = specimen.expected(feeds)
            compare(trial, lab, given, expected, case, said.DEADLINE)
            options = onnxplug.RunOptions()
            options.timeout = _HOUR
            trial.count()
            lab.session.run(None, dict(feeds), options)
