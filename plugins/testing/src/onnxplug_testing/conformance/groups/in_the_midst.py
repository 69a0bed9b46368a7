"""Whether an EP is as before when a run ends in its midst: it is cancelled, a signal
comes, or the process is forked; and whether what is closed may be closed again.

A run is in its midst where the EP asks whether it is cancelled.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import CAN_FORK, in_child
from onnxplug_testing.conformance.groups.within_runs import Watched
from onnxplug_testing.conformance.handlers import Alarm, handler
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    RunNow,
    asking,
    in_use,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import compare, examined, settled
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    chosen,
    of_any_size,
    several,
    single,
)
from onnxplug_testing.conformance.taps import ignoring_failures
from onnxplug_testing.conformance.trial import Trial, in_words

_END: Final = 30.0
"""Seconds for a program that starts an engine, and ends."""

_PATIENCE: Final = 15.0
"""Seconds for a run of a small model, on a machine that does much else."""

_PLACES: Final = 8
"""At so many places a run is cancelled, of those where the EP asks."""

NEVER_ASKS: Final = "the EP never asks in a run whether it is cancelled"


class _Late(RunNow):
    """A run whose deadline is over."""

    def __init__(self, lab: Laboratory, stream: ep.Stream | None) -> None:
        super().__init__(stream, lab.run_options)
        self.deadline = time.monotonic() - 1.0


class _CancelledAt(Watched):
    """A run that is cancelled from the time on that the EP asks for it.

    Attributes:
        asked: how often the EP asked.
    """

    def __init__(self, lab: Laboratory, stream: ep.Stream | None, place: float) -> None:
        self.asked = 0
        self._place = place
        super().__init__(stream, lab.run_options, self._count)

    def _count(self) -> None:
        self.asked += 1

    @property
    def cancelled(self) -> bool:
        self.asked += 1
        return self.asked > self._place

    @cancelled.setter
    def cancelled(self, _: bool) -> None: ...


@check("failure", share=0.15)
def cancelled_midway(trial: Trial) -> None:
    """A run that is cancelled in its midst, or too late, raises RunCancelled or gives
    what is right, keeps nothing, and the next run is right."""
    for lab, specimen, case in examined(trial, "runs that are cancelled midway"):
        with asking(trial, said.CANCELLED, case):
            feeds = specimen.feeds(trial.numbers("midway"))
            with settled(lab) as stream:
                context = _CancelledAt(lab, stream, float("inf"))
                lab.run(lab.put(feeds, stream), None, stream, context=context)
            if not context.asked:
                trial.leave_out(NEVER_ASKS)
            places: list[float | None] = [*range(min(context.asked, _PLACES)), None]
            before = in_use(lab.bench)
            for place in places:
                for binds in (False, True):
                    trial.count()
                    if not _cancel(trial, lab, specimen, feeds, place, case, binds):
                        return
            after = in_use(lab.bench)
            if before is not None and after is not None and after > before:
                text = f"{after - before} bytes are kept by runs that were cancelled"
                trial.find(said.FREE_AGAIN, text, case=case, kind="kept")


def _cancel(
    trial: Trial,
    lab: Laboratory,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    place: float | None,
    case: Case,
    binds: bool,
) -> bool:
    """Cancel a run, and run again; whether that ended."""
    what = "whose deadline is over" if place is None else "cancelled in its midst"
    expected = specimen.expected(feeds)
    with lab.stream() as stream:
        placed = lab.put(feeds, stream)
        rooms = None
        if binds:
            rooms = {n: lab.room(n, each, stream) for n, each in expected.items()}
        context: RunNow = (
            _Late(lab, stream) if place is None else _CancelledAt(lab, stream, place)
        )
        given: dict[str, Any] | None = None
        try:
            given = lab.run(placed, rooms, stream, context=context)
        except ep.RunCancelled:
            pass
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            ep.raise_interruption(error)
            text = f"a run {what} {in_words(error)}; expected RunCancelled"
            trial.find(said.CANCELLED, text, case=case, kind=f"raised {what}")
        if stream is not None:
            wait_for_all(stream)
        if given is not None:
            text = f"a run {what} returned: of it"
            compare(trial, lab, given, expected, case, said.CANCELLED, text)
    return _next_is_right(trial, lab, specimen, f"after a run {what}", case)


def _next_is_right(
    trial: Trial, lab: Laboratory, specimen: Specimen, what: str, case: Case
) -> bool:
    """Whether the next run ends; find what is wrong of it."""
    feeds = specimen.feeds(trial.numbers("next", what))
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with settled(lab) as stream:
                found.append(lab.run(lab.put(feeds, stream), None, stream))
        except BaseException as error:  # noqa: BLE001 (told below)
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if thread.is_alive():
        text = f"{what}, the next one had not ended after {_PATIENCE:.0f} s"
        trial.find(said.OWN_OF_RUNS, text, case=case, kind="hung")
        return False
    for error in failed:
        trial.find(said.GOES_ON, f"{what}, {in_words(error)}", case=case, kind=what)
    for given in found:
        expected = specimen.expected(feeds)
        compare(trial, lab, given, expected, case, said.GOES_ON, what)
    return True


# signals and forks


@check("failure", share=0.1)
def signals_midway(trial: Trial) -> None:
    """What a signal handler raises where the EP asks whether a run is cancelled comes
    out as itself, and the next run is right."""
    if threading.current_thread() is not threading.main_thread():
        trial.leave_out("signals are handled in the main thread only")
        return
    for lab, specimen, case in examined(trial, "a signal in a run", several):
        with asking(trial, said.INTERRUPTED, case), handler() as ring:
            feeds = specimen.feeds(trial.numbers("signals"))
            asked: list[None] = []

            def ask(asked: list[None] = asked, ring: Callable[[], None] = ring) -> None:
                asked.append(None)
                ring()

            trial.count()
            with lab.stream() as stream:
                placed = lab.put(feeds, stream)
                context = Watched(stream, lab.run_options, ask)
                try:
                    lab.run(placed, None, stream, context=context)
                except Alarm:
                    pass
                except Exception as error:  # noqa: BLE001 (whatever it became)
                    text = f"came out as {type(error).__name__}: {error}"[:300]
                    trial.find(said.INTERRUPTED, text, case=case, kind="other")
                else:
                    text = "raised in a run, it was swallowed"
                    if asked:
                        trial.find(said.INTERRUPTED, text, case=case, kind="swallowed")
                    else:
                        trial.leave_out(NEVER_ASKS)
            _next_is_right(trial, lab, specimen, "after a signal in a run", case)


@check("failure", share=0.1)
def forks_midway(trial: Trial) -> None:
    """A child that is forked while another thread is in the midst of a run can make and
    run sessions, or is told that it cannot."""
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    for lab, specimen, case in examined(trial, "a fork in the midst of a run", several):
        with asking(trial, said.SERVES_CHILDREN, case):
            inside, may_go = threading.Event(), threading.Event()

            def ask(
                inside: threading.Event = inside, may_go: threading.Event = may_go
            ) -> None:
                inside.set()
                may_go.wait(_PATIENCE)

            feeds = specimen.feeds(trial.numbers("forks"))
            thread = threading.Thread(
                target=_run_watched, args=(lab, feeds, ask), daemon=True
            )
            thread.start()
            try:
                inside.wait(0.5 if lab.bench is None else 2.0)
                if not inside.is_set():
                    trial.leave_out(NEVER_ASKS)
                trial.count()
                _fork(trial, specimen, case)
            finally:
                may_go.set()
                thread.join(_PATIENCE)
            _next_is_right(trial, lab, specimen, "when a child had run", case)


def _run_watched(
    lab: Laboratory, feeds: Mapping[str, Array], ask: Callable[[], None]
) -> None:
    with settled(lab) as stream:
        context = Watched(stream, lab.run_options, ask)
        lab.run(lab.put(feeds, stream), None, stream, context=context)


def _fork(trial: Trial, specimen: Specimen, case: Case) -> None:
    feeds = specimen.feeds(trial.numbers("child"))

    def run() -> str:
        (found, *_) = trial.subject.run(specimen.model, dict(feeds), checked=False)
        expected = next(iter(specimen.expected(feeds).values()))
        return "right" if agrees(found, expected) else "wrong numbers"

    child = in_child(run, _PATIENCE)
    what = "a child that was forked in the midst of a run"
    if child.hung:
        text = f"{what} had not run a session of its own after {_PATIENCE:.0f} s"
        trial.find(said.SERVES_CHILDREN, text, case=case, kind="hung")
    elif child.ended or child.said == "wrong numbers":
        text = f"{what}: {child.ended or child.said}"
        trial.find(said.FORKED, text, case=case, kind="wrong")
    elif child.said != "right":
        trial.leave_out("a child is told that the EP does not serve it")


@check("failure", share=0.1)
def exits(trial: Trial) -> None:
    """A program that leaves its sessions and values open ends all the same."""
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    kept: list[Any] = []

    def end() -> str:
        for specimen in chosen(trial, single):
            feeds = specimen.feeds(trial.numbers(specimen.name))
            kept.append(trial.subject.session(specimen.model, checked=False))
            kept.append(kept[-1].run(None, dict(feeds)))
        # as Python does when a program ends
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        return "right"

    # before the engine is started here, as not every engine can be forked then
    child = in_child(end, _END)
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a program that ends")
        if not trial.attempt(case):
            continue
        if child.hung:
            text = "a program whose session is open had not ended after "
            trial.find(said.CLOSE_EP, f"{text}{_END:.0f} s", case=case)
        elif child.ended:
            text = f"as a program ended, its process: {child.ended}"
            trial.find(said.CLOSE_EP, text, case=case)
        elif child.said != "right":
            trial.leave_out("a child is told that the EP does not serve it")


# what is closed


@check("failure", share=0.1)
def closed_again(trial: Trial) -> None:
    """Partitions and EPs may be closed again, when they have run and when a run of
    theirs has failed."""
    choices = single, several, of_any_size
    for lab, specimen, case in examined(trial, "closed again", *choices):
        with asking(trial, said.RESULTS, case):
            feeds = specimen.feeds(trial.numbers("closed"))
            with lab.stream() as stream:
                placed = lab.put(feeds, stream)
                with ignoring_failures():
                    lab.run(placed, None, stream, cancelled=True)
                if stream is not None:
                    wait_for_all(stream)
            with settled(lab) as stream:
                given = lab.run(lab.put(feeds, stream), None, stream)
            for name, sentence, close in (
                ("CompiledPartition.close", said.CLOSE_PARTITION, lab.compiled.close),
                ("ExecutionProvider.close", said.CLOSE_EP, lab.provider.close),
            ):
                for number in (1, 2, 3):
                    trial.count()
                    try:
                        close()
                    except (Exception, SystemExit) as error:  # noqa: BLE001
                        ep.raise_interruption(error)
                        text = f"{name}, time {number}, {in_words(error)}"
                        trial.find(sentence, text, case=case, kind=name)
            expected = specimen.expected(feeds)
            what = "of a run before all was closed,"
            compare(trial, lab, given, expected, case, said.GIVEN_AWAY, what)
