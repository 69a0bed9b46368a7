"""Whether an EP is as before when something has failed: a call, a run, or a process.

What is behind queued work that failed is in :mod:`.failed_work`, what becomes of runs
that end in their midst in :mod:`.in_the_midst`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import CAN_FORK, Child, in_child
from onnxplug_testing.conformance.groups import failed_work, in_the_midst, indices
from onnxplug_testing.conformance.handlers import Alarm, handler
from onnxplug_testing.conformance.injection import (
    Injected,
    Place,
    injected,
    places,
)
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    Unfit,
    asking,
    device_of,
    in_use,
)
from onnxplug_testing.conformance.partitions import compare, examined, settled
from onnxplug_testing.conformance.specimens import (
    Node,
    Specimen,
    agrees,
    chosen,
    differs,
    make,
    several,
    single,
    taken,
    takes,
)
from onnxplug_testing.conformance.taps import replaced
from onnxplug_testing.conformance.trial import Trial, in_words

__all__ = ["failed_work", "in_the_midst", "indices"]

_CHILD_SECONDS: Final = 30.0
"""In which a child runs a small model, on a machine that does much else."""

_ADDRESSES: Final = 1 << 48
"""More bytes than a process can have, whatever the system promises."""


@check("failure", share=1.2)
def raised(trial: Trial) -> None:
    """What raises anywhere between host and EP leaves the EP as it was."""
    for specimen in chosen(trial, several):
        try:
            with device_of(trial.subject, specimen) as bench:
                _raise_everywhere(trial, specimen, bench)
        except Unfit:
            _raise_everywhere(trial, specimen, None)


def _raise_everywhere(trial: Trial, specimen: Specimen, bench: Bench | None) -> None:
    if bench is None:
        trial.leave_out("the EP works in the host's memory: no device fails")
    feeds = specimen.feeds(trial.numbers(specimen.name))
    for place in trial.in_time(places(on_device=bench is not None)):
        case = specimen.case(feeds, str(place))
        if not trial.attempt(case):
            continue
        with asking(trial, said.OWN_OF_RUNS, case):
            _raise_once(trial, specimen, feeds, place, bench, case)


def _raise_once(
    trial: Trial,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    place: Place,
    bench: Bench | None,
    case: Case,
) -> None:
    before = in_use(bench)
    context = None if bench is None else bench.context
    session: onnxplug.InferenceSession | None = None
    with injected(trial.subject, place, context) as injection:
        try:
            session = trial.subject.session(specimen.model, checked=False)
            for _ in range(2):
                session.run(None, dict(feeds))
            if place.method == "close":
                session.close()
                session = None
        except Exception as error:  # noqa: BLE001 (it is to fail)
            ep.raise_interruption(error)
    if not injection.came:
        trial.leave_out("the host makes no such call in a plain run")
    if session is not None and place.method != "close":
        _expect_right(trial, session, specimen, feeds, f"{place}, same session", case)
        session.close()
    session = None
    with trial.subject.session(specimen.model, checked=False) as other:
        _expect_right(trial, other, specimen, feeds, f"{place}, next session", case)
    after = in_use(bench)
    if before is not None and after is not None and after > before:
        trial.find(
            said.FREE_AGAIN,
            f"{place}: {after - before} bytes are kept afterwards",
            case=case,
            kind=f"kept {place.owner}.{place.method}",
        )


def _expect_right(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    what: str,
    case: Case,
) -> None:
    expected = specimen.expected(feeds)
    for _ in range(2):
        try:
            found = session.run(None, dict(feeds))
        except Exception as error:  # noqa: BLE001 (whatever it raises)
            ep.raise_interruption(error)
            trial.find(
                said.GOES_ON, f"{what}: {in_words(error)}", case=case,
                kind=f"raised {what}",
            )  # fmt: skip
            return
        for name, array in zip(specimen.outputs, found, strict=True):
            if not agrees(array, expected[name]):
                trial.find(
                    said.GOES_ON, f"{what}: {differs(array, expected[name])}",
                    case=case, kind=f"wrong {what}",
                )  # fmt: skip


@check("failure", share=0.4)
def cancelled(trial: Trial) -> None:
    """A run that is cancelled ends, by RunCancelled or with its results, and the next
    one is right."""
    for lab, specimen, case in examined(trial, "runs that are cancelled"):
        with asking(trial, said.CANCELLED, case):
            feeds = specimen.feeds(trial.numbers("cancelled"))
            expected = specimen.expected(feeds)
            for number in range(3):
                trial.count()
                with settled(lab) as stream:
                    placed = lab.put(feeds, stream)
                    try:
                        given = lab.run(placed, None, stream, cancelled=number < 2)
                    except ep.RunCancelled:
                        if number == 2:
                            trial.find(
                                said.CANCELLED, "in a run that was not", case=case
                            )
                        continue
                what = f"run {number + 1}, of which two were cancelled"
                compare(trial, lab, given, expected, case, said.CANCELLED, what)
            _cancel_by_options(trial, lab.session, specimen, feeds, case)


def _cancel_by_options(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    case: Case,
) -> None:
    for seconds in (0.0, 1e-5, 1e-4, 1e-3):
        trial.count()
        options = onnxplug.RunOptions()
        options.timeout = seconds
        with suppress(ep.RunCancelled):
            session.run(None, dict(feeds), options)
        what = f"after a run whose time of {seconds} s was over"
        _expect_right(trial, session, specimen, feeds, what, case)


@check("failure", share=0.4)
def refused_sizes(trial: Trial) -> None:
    """Inputs that an operator cannot take raise, and the next run is right."""
    has = taken(trial)
    if has is None:
        return
    if not has.binary:
        trial.leave_out("the EP takes no node of two inputs")
        return
    op_type = has.binary[0]
    shapes = {"x": (4, 6), "z": (4, 6)}
    specimen = make(
        f"one {op_type} of any sizes",
        has.dtype,
        [Node(op_type, ["x", "z"], "y")],
        shapes,
        symbols={"x": ["n", 6], "z": ["m", 6]},
    )
    if not takes(trial.subject, specimen):
        trial.leave_out(f"the EP does not take {specimen.name}")
        return
    right = specimen.feeds(trial.numbers())
    wrong = specimen.feeds(trial.numbers(), {"x": (4, 6), "z": (3, 6)})
    case = specimen.case(wrong, "which do not fit each other")
    if not trial.attempt(case):
        return
    with (
        asking(trial, said.RESULTS, case),
        trial.subject.session(specimen.model, checked=False) as session,
    ):
        for _ in range(3):
            trial.count()
            try:
                (found,) = session.run(None, dict(wrong))
            except Exception as error:  # noqa: BLE001 (as it is to)
                ep.raise_interruption(error)
            else:
                trial.find(
                    said.RESULTS,
                    f"gave {list(found.shape)} for [4, 6] and [3, 6], and no error",
                    case=case,
                )
            what = "after a run of sizes that do not fit"
            _expect_right(trial, session, specimen, right, what, case)


@check("failure", share=0.4)
def out_of_memory(trial: Trial) -> None:
    """A result for which there is no memory raises MemoryError, and the session goes
    on."""
    has = taken(trial)
    if has is None:
        return
    if not has.binary:
        trial.leave_out("the EP takes no node of two inputs")
        return
    op_type = has.binary[0]
    specimen = make(
        f"one {op_type} of a column and a row",
        has.dtype,
        [Node(op_type, ["x", "z"], "y")],
        {"x": (4, 1), "z": (1, 6)},
        symbols={"x": ["n", 1], "z": [1, "m"]},
    )
    if not takes(trial.subject, specimen):
        trial.leave_out(f"the EP does not take {specimen.name}")
        return
    right = specimen.feeds(trial.numbers())
    case = specimen.case(right, "before and after results that are too large")
    if not trial.attempt(case):
        return
    with (
        asking(trial, said.OUT_OF_MEMORY, case),
        trial.subject.session(specimen.model, checked=False) as session,
    ):
        _expect_right(trial, session, specimen, right, "before a failure", case)
        for _ in range(2):
            trial.count()
            _ask_too_much(trial, session, specimen, case)
            what = "when there was no memory for the results of a run before"
            _expect_right(trial, session, specimen, right, what, case)


def _ask_too_much(
    trial: Trial, session: onnxplug.InferenceSession, specimen: Specimen, case: Case
) -> None:
    dtype, size = specimen.dtype.numpy, 1
    while size * size * dtype.itemsize < _ADDRESSES:
        size *= 2
    feeds = {"x": np.ones((size, 1), dtype), "z": np.ones((1, size), dtype)}
    what = f"a result of {size} rows of {size}"
    try:
        session.run(None, feeds)
    except MemoryError:
        return
    except Exception as error:  # noqa: BLE001 (whatever it raises)
        ep.raise_interruption(error)
        if isinstance(error.__cause__, ep.Declined):
            trial.leave_out("the EP declines sizes whose results no memory is for")
            return
        text = f"{what}: {in_words(error)}; expected OutOfMemory"
        trial.find(said.OUT_OF_MEMORY, text, case=case, kind="other")
    else:
        trial.find(said.OUT_OF_MEMORY, f"{what}: no error", case=case)


# processes


@check("failure", share=0.5)
def forks(trial: Trial) -> None:
    """A fork of the process leaves the parent as it was; a child has its sessions run,
    or is told that it cannot, and gets no wrong numbers."""
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a process that is forked")
        if not trial.attempt(case):
            continue
        with (
            asking(trial, said.FORKED, case),
            trial.subject.session(specimen.model, checked=False) as session,
        ):
            _expect_right(trial, session, specimen, feeds, "before a fork", case)
            for what, work in _of_children(trial, specimen, feeds):
                trial.count()
                _judge(trial, in_child(work, _CHILD_SECONDS), what, case)
                what = f"in the parent, when a child had {what}"
                _expect_right(trial, session, specimen, feeds, what, case)


def _of_children(
    trial: Trial, specimen: Specimen, feeds: Mapping[str, Array]
) -> Iterator[tuple[str, Callable[[], str]]]:
    def end() -> str:
        gc.collect()
        return "right"

    def run() -> str:
        (found, *_) = trial.subject.run(specimen.model, dict(feeds), checked=False)
        expected = next(iter(specimen.expected(feeds).values()))
        return "right" if agrees(found, expected) else differs(found, expected)

    yield "collected its garbage", end
    yield "run a session of its own", run


def _judge(trial: Trial, child: Child, what: str, case: Case) -> None:
    if child.hung:
        text = f"a child had not {what} after {_CHILD_SECONDS:.0f} s"
        trial.find(said.SERVES_CHILDREN, text, case=case)
    elif child.ended:
        trial.find(said.FORKED, f"a child that {what}: {child.ended}", case=case)
    elif child.said.startswith("raised"):
        trial.leave_out(f"a child that {what} is told that the EP does not serve it")
    elif child.said != "right":
        trial.find(said.FORKED, f"a child that {what}: {child.said}", case=case)


@check("failure", share=0.6)
def signals(trial: Trial) -> None:
    """What a signal handler raises in the midst of the EP comes out as itself."""
    if threading.current_thread() is not threading.main_thread():
        trial.leave_out("signals are handled in the main thread only")
        return
    for specimen in chosen(trial, several):
        try:
            with device_of(trial.subject, specimen) as bench:
                _ring_everywhere(trial, specimen, bench.context)
        except Unfit:
            _ring_everywhere(trial, specimen, None)


def _ring_everywhere(
    trial: Trial, specimen: Specimen, context: ep.DeviceContext | None
) -> None:
    feeds = specimen.feeds(trial.numbers(specimen.name))
    chosen_places = [
        place
        for place in places(on_device=context is not None)
        if not place.is_late
        and place.error is Injected
        and place.method not in ("close", "create_stream")
    ]
    for place in trial.in_time(chosen_places):
        case = specimen.case(feeds, f"a signal in {place.owner}.{place.method}")
        if not trial.attempt(case):
            continue
        with asking(trial, said.INTERRUPTED, case), handler() as ring:
            found = _ring(trial, specimen, feeds, place._replace(ring=ring), context)
            if found:
                trial.find(
                    said.INTERRUPTED,
                    f"raised in call {place.call} of {place.owner}.{place.method}, it "
                    f"{found}",
                    case=case,
                )
            with trial.subject.session(specimen.model, checked=False) as session:
                what = f"after a signal in {place.owner}.{place.method}"
                _expect_right(trial, session, specimen, feeds, what, case)


def _ring(
    trial: Trial,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    place: Place,
    context: ep.DeviceContext | None,
) -> str:
    """What became of a signal handler's error; empty if it came out, or was not
    raised."""
    with injected(trial.subject, place, context) as injection:
        try:
            with trial.subject.session(specimen.model, checked=False) as session:
                session.run(None, dict(feeds))
        except Alarm:
            return ""
        except Exception as error:  # noqa: BLE001 (whatever it became)
            return f"came out as {type(error).__name__}: {error}"[:300]
    if not injection.came:
        trial.leave_out("the host makes no such call in a plain run")
        return ""
    return "was swallowed"


@check("failure", share=0.4)
def unloaded(trial: Trial) -> None:
    """An EP that is unregistered closes all that it has, without a failure."""
    if not CAN_FORK:
        trial.leave_out("the system forks no processes")
        return
    # no session is made in this process, as it is not to be unloaded here
    specimens = [
        make(f"one {op_type}", dtype, [Node(op_type, names, "y")],
             dict.fromkeys(names, (4, 6)))
        for dtype in (ep.DataType.FLOAT32, ep.DataType.FLOAT16)
        for op_type, names in (("Add", ["x", "z"]), ("Relu", ["x"]), ("Abs", ["x"]))
    ]  # fmt: skip

    def work() -> str:
        for specimen in specimens:
            if takes(trial.subject, specimen):
                return _unload(trial, specimen)
        return "nothing"

    case = specimens[0].case({}, "an EP that is unregistered")
    if not trial.attempt(case):
        return
    child = in_child(work, 30.0)
    if child.said == "nothing":
        trial.leave_out("a child takes none of the models for this")
    elif child.hung:
        trial.find(said.CLOSE_FACTORY, "did not end within 30 s", case=case)
    elif child.ended or child.said != "right":
        trial.find(said.CLOSE_FACTORY, child.said or child.ended, case=case)


def _unload(trial: Trial, specimen: Specimen) -> str:
    """What goes wrong as the EP is unregistered; ``right`` if nothing does."""
    subject, failures = trial.subject, []
    feeds = specimen.feeds(trial.numbers())
    close = subject.factory.close

    def closed() -> None:
        try:
            close()
        except BaseException as error:
            failures.append(f"EpFactory.close raised {error!r}")
            raise

    try:
        keeper = replaced(subject.factory, "close", closed)
        keeper.__enter__()
    except TypeError:
        pass
    for _ in range(2):
        (found, *_) = subject.run(specimen.model, feeds, checked=False)
        if not agrees(found, next(iter(specimen.expected(feeds).values()))):
            return "wrong numbers before it was unregistered"
    gc.collect()
    try:
        registry.remove(subject.name)
        close()  # which it may be called again
    except Exception as error:  # noqa: BLE001 (whatever it raises)
        failures.append(in_words(error))
    return "; ".join(dict.fromkeys(failures)) or "right"


@check("failure", share=0.1)
def lost(trial: Trial) -> None:
    """A device that is lost, or full for good, is told of."""
    trial.leave_out("there is no way to have a device lost: see the EP's own tests")
