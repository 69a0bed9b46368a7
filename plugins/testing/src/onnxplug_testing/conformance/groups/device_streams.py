"""Whether a device's streams and events order work as they say, by copies alone.

Before what is to be late a stream is kept busy, so that who waits too little is seen.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_memory import case_of, opened, same
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    Breach,
    asking,
    close,
    has_streams,
    is_done,
    let_wait,
    record,
    wait,
    wait_for,
    wait_for_all,
)
from onnxplug_testing.conformance.specimens import Specimen
from onnxplug_testing.conformance.trial import Trial

SIZES: Final = (5, 1027, (1 << 20) + 13)

PATIENCE: Final = 0.25
"""Seconds for which an event is asked whether it is done; a device need not do
anything before somebody waits."""

_TRIES: Final = 12

_LONG: Final = 20.0
"""Seconds after which what waits for copies of 20 ms waits for ever."""

_FOREIGN_SECONDS: Final = 0.3
"""After which the work of another device ends."""

_WAIT_SECONDS: Final = 0.001
"""What takes longer may have waited for a stream that is busy for some 20 ms."""


def busy(trial: Trial, what: str) -> Iterator[tuple[Bench, Specimen, Case]]:
    """The device, if it has streams, for *what* is asked of them."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, what)
        if not has_streams(bench):
            trial.leave_out("the device has no streams: its work is done at once")
            return
        if not trial.attempt(case):
            return
        yield bench, specimen, case


def filled(specimen: Specimen, size: int, number: int) -> Array:
    """So many times the same number."""
    return np.full((size,), number, specimen.dtype.numpy)


@check("time", share=0.3)
def order(trial: Trial) -> None:
    """Work on one stream is done in the order in which it was queued."""
    for bench, specimen, case in busy(trial, "copies that need each other"):
        with asking(trial, said.IN_ORDER, case):
            for size in SIZES:
                trial.count()
                sources = [filled(specimen, size, number) for number in (3, 5, 7)]
                backs = [np.zeros_like(source) for source in sources]
                with bench.stream() as stream:
                    bench.burden(stream)
                    first = bench.empty((size,), specimen.dtype, stream)
                    second = bench.empty((size,), specimen.dtype, stream)
                    for source, back in zip(sources, backs, strict=True):
                        bench.copy(source, first, stream)
                        bench.copy(first, second, stream)
                        bench.copy(second, back, stream)
                    wait_for_all(stream)
                    for source, back in zip(sources, backs, strict=True):
                        if not same(source, back):
                            trial.find(
                                said.IN_ORDER,
                                f"of {size} numbers some are not those that the "
                                "copies before it left",
                                case=case,
                                kind="order",
                            )


@check("time", share=0.4)
def waiting(trial: Trial) -> None:
    """What waits for a stream or an event goes on when the work is done, and not
    before."""
    for bench, specimen, case in busy(trial, "copies that are waited for"):
        with asking(trial, said.IN_ORDER, case):
            for size in SIZES:
                for way in (_by_stream, _by_event, _by_asking, _in_a_thread):
                    trial.count()
                    source = filled(specimen, size, 3)
                    back = np.zeros_like(source)
                    with bench.stream() as stream:
                        there = bench.empty((size,), specimen.dtype, stream)
                        early = record(stream)
                        bench.burden(stream)
                        bench.copy(source, there, stream)
                        bench.copy(there, back, stream)
                        sentence = way(trial, stream, case)
                        if not same(source, back):
                            trial.find(
                                sentence,
                                f"{way.__name__.strip('_').replace('_', ' ')}, some of "
                                f"{size} numbers were not there yet",
                                case=case,
                                kind=way.__name__,
                            )
                        wait_for(early)


def _by_stream(trial: Trial, stream: ep.Stream, case: Case) -> Any:
    wait_for_all(stream)
    return said.SYNCHRONIZE


def _by_event(trial: Trial, stream: ep.Stream, case: Case) -> Any:
    event = record(stream)
    wait_for(event)
    if not is_done(event):
        trial.find(
            said.DONE, "False when synchronize() had returned", case=case, kind="after"
        )
    wait_for(event)
    return said.EVENT_SYNCHRONIZE


def _by_asking(trial: Trial, stream: ep.Stream, case: Case) -> Any:
    event = record(stream)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if is_done(event):
            return said.DONE
    wait_for(event)
    return said.EVENT_SYNCHRONIZE


def _in_a_thread(trial: Trial, stream: ep.Stream, case: Case) -> Any:
    event = record(stream)
    failed: list[BaseException] = []

    def look() -> None:
        try:
            wait_for(event)
            is_done(event)
        except BaseException as error:  # noqa: BLE001 (told below)
            failed.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    for error in failed:
        trial.find(said.EVENT_ANYWHERE, f"raised {error!r} in a thread", case=case)
    return said.EVENT_ANYWHERE


@check("time", share=0.3)
def asking_an_event(trial: Trial) -> None:
    """To ask whether an event is done does not wait for it."""
    for bench, _specimen, case in busy(trial, "an event that is asked"):
        with asking(trial, said.IN_ORDER, case):
            for _ in range(_TRIES):
                trial.count()
                with bench.stream() as stream:
                    bench.burden(stream)
                    event = record(stream)
                    asked = time.perf_counter()
                    has_ended = is_done(event)
                    took = time.perf_counter() - asked
                # one answer before the work was done, or without a wait, is proof
                if not has_ended or took < _WAIT_SECONDS:
                    break
            else:
                trial.find(
                    said.NEVER_BLOCKS, "returned only when the work was done", case=case
                )


@check("time", share=0.4)
def streams_that_wait(trial: Trial) -> None:
    """A stream that waits for an event does what is queued then after it."""
    for bench, specimen, case in busy(trial, "a stream waits"):
        with asking(trial, said.WAIT, case):
            for size in SIZES:
                for closes in (False, True):
                    trial.count()
                    _wait(trial, bench, specimen, size, case, closes=closes)
            _wait_in_a_row(trial, bench, specimen, case)


def _wait(
    trial: Trial,
    bench: Bench,
    specimen: Specimen,
    size: int,
    case: Case,
    *,
    closes: bool,
) -> None:
    source = filled(specimen, size, 3)
    there = bench.put(filled(specimen, size, 0))
    back = np.zeros_like(source)
    first = bench.new_stream()
    assert first is not None
    is_open = True
    try:
        with bench.stream() as second:
            bench.burden(first)
            bench.copy(source, there, first)
            event = record(first)
            if closes:
                wait_for_all(first)
                close(first)
                is_open = False
                if not is_done(event):
                    trial.find(
                        said.CLOSE_STREAM, "an event of it is not done then", case=case
                    )
                wait_for(event)
            let_wait(second, event)
            bench.copy(there, back, second)
            wait_for_all(second)
            if not same(source, back):
                trial.find(
                    said.WAIT_FOREIGN if closes else said.WAIT,
                    f"of {size} numbers some were read before they were there",
                    case=case,
                    kind=f"closed {closes}",
                )
    finally:
        if is_open:
            wait_for_all(first)
            close(first)


def _wait_in_a_row(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """A value goes through five streams, each of which waits for the one before."""
    trial.count()
    size = 1 << 16
    source = filled(specimen, size, 5)
    arrays = [bench.put(filled(specimen, size, 0)) for _ in range(5)]
    back = np.zeros_like(source)
    with bench.streams(5) as streams:
        bench.burden(streams[0])
        before: Any = source
        event = None
        for stream, array in zip(streams, arrays, strict=True):
            if event is not None:
                let_wait(stream, event)
            bench.copy(before, array, stream)
            before, event = array, record(stream)
        bench.copy(before, back, streams[-1])
        wait_for_all(streams[-1])
        if not same(source, back):
            trial.find(said.WAIT, "a value was late by way of five streams", case=case)


@check("time", share=0.1)
def waiting_for_each_other(trial: Trial) -> None:
    """A stream waits for what was queued before an event, and not after it: streams may
    wait for events of each other."""
    for bench, _specimen, case in busy(trial, "streams that wait for each other"):
        with asking(trial, said.WAIT, case):
            trial.count()
            # not closed where one waits for ever, which would do so, too
            streams = [bench.new_stream() for _ in range(2)]
            first, second = (each for each in streams if each is not None)
            for each in (first, second):
                bench.burden(each)
            events = record(first), record(second)
            let_wait(first, events[1])
            let_wait(second, events[0])
            end = record(second)
            if not within(_LONG, functools.partial(wait_for, end)):
                trial.find(
                    said.WAIT,
                    "two streams of which each waits for an event that the other had "
                    f"recorded before have not ended after {_LONG:.0f} s",
                    case=case,
                )
                return
            for each in (first, second):
                wait_for_all(each)
                close(each)


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Whether *work* ends in time; it is done in another thread.

    Raises:
        Exception: whatever it raises.
    """
    failed: list[Exception] = []

    def begin() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (raised below)
            failed.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    return not thread.is_alive()


class Foreign(ep.Event):
    """An event of no device: it is done when somebody says so.

    Attributes:
        flag: it is done.
        failure: what its work raised; ``None``: nothing.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self.flag = threading.Event()
        self.failure = failure

    def done(self) -> bool:
        return self.flag.is_set()

    def synchronize(self) -> None:
        self.flag.wait()
        if self.failure is not None:
            raise self.failure


@check("time", share=0.3)
def events_of_others(trial: Trial) -> None:
    """A stream waits for an event of another device, or says that it does not."""
    what = "a stream waits for an event of another device"
    for bench, specimen, case in busy(trial, what):
        with asking(trial, said.WAIT_FOREIGN, case):
            trial.count()
            event = Foreign()
            timer = threading.Timer(_FOREIGN_SECONDS, event.flag.set)
            timer.start()
            source = filled(specimen, 64, 3)
            back = np.zeros_like(source)
            try:
                with bench.stream() as stream:
                    waits = wait(stream, event)
                    if not waits:
                        trial.leave_out(
                            "its streams wait for no events of other devices"
                        )
                        return
                    there = bench.put(source, stream)
                    bench.copy(there, back, stream)
                    if _is_early(record(stream), event):
                        trial.find(
                            said.WAIT, "what was queued was done before it", case=case
                        )
                    wait_for_all(stream)
                    if not same(source, back):
                        trial.find(said.WAIT, "what was queued was not done", case=case)
            finally:
                event.flag.set()
                timer.cancel()
            _wait_for_failure(trial, bench, source, case)


def _is_early(behind: ep.Event, event: Foreign) -> bool:
    """Whether what is *behind* a wait for *event* is done before that."""
    has_ended = within(_FOREIGN_SECONDS, functools.partial(wait_for, behind))
    return has_ended and not event.flag.is_set()


def _wait_for_failure(trial: Trial, bench: Bench, source: Array, case: Case) -> None:
    event = Foreign(RuntimeError("the work of another device failed"))
    event.flag.set()
    back = np.zeros_like(source)
    stream = bench.new_stream()
    assert stream is not None
    there = bench.put(np.zeros_like(source))
    try:
        if wait(stream, event):
            trial.count()
            bench.copy(source, there, stream)
            bench.copy(there, back, stream)
            wait_for_all(stream)
            trial.find(said.WAIT_FAILED, "synchronize() raised nothing", case=case)
    except Breach:
        pass  # as it is to be
    finally:
        close(stream)
    if not same(bench.get(bench.put(source)), source):
        trial.find(said.GOES_ON, "copies are wrong after a failure", case=case)


@check("time", share=0.3)
def many_streams(trial: Trial) -> None:
    """Many streams do their work, in whatever order they are waited for and closed."""
    for bench, specimen, case in busy(trial, "twelve streams"):
        with asking(trial, said.IN_ORDER, case):
            draw = trial.draw()
            streams = [bench.new_stream() for _ in range(12)]
            sources = [filled(specimen, 4096, 3 + number) for number in range(12)]
            backs = [np.zeros_like(source) for source in sources]
            arrays = [bench.empty((4096,), specimen.dtype) for _ in sources]
            jobs = list(zip(streams, sources, arrays, backs, strict=True))
            for stream, source, array, _ in jobs:
                assert stream is not None
                bench.copy(source, array, stream)
            draw.shuffle(jobs)
            for stream, _, array, back in jobs:
                assert stream is not None
                bench.copy(array, back, stream)
            draw.shuffle(jobs)
            for stream, source, _, back in jobs:
                trial.count()
                assert stream is not None
                wait_for_all(stream)
                if not same(source, back):
                    trial.find(
                        said.SYNCHRONIZE,
                        "one of twelve streams had not done its work",
                        case=case,
                    )
                close(stream)


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """What *work* raised in so many threads, which begin at once."""
    failed: list[BaseException] = []
    ready = threading.Barrier(count)

    def begin(number: int) -> None:
        try:
            ready.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 (whatever an EP raises)
            failed.append(error)

    threads = [threading.Thread(target=begin, args=[n]) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


@contextmanager
def taking_turns() -> Iterator[None]:
    """A context in which threads of Python take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@check("time", share=0.4)
def threads_of_copies(trial: Trial) -> None:
    """Threads make arrays and copy them at once, each on a stream of its own or on
    none."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "six threads that copy")
        if not trial.attempt(case):
            return
        with_streams = has_streams(bench)
        if with_streams:
            with bench.stream() as stream:
                bench.burden(stream)  # measured before there are threads
        wrong: list[str] = []

        def work(number: int) -> None:
            for turn in range(24):
                size = (1, 100, 5000, 1 << 16)[turn % 4]
                source = filled(specimen, size, 1 + (turn * 7 + number * 13) % 120)
                back = np.zeros_like(source)
                stream = None
                if with_streams and (turn + number) % 2:
                    stream = bench.new_stream()
                there = bench.empty((size,), specimen.dtype, stream)
                twin = bench.empty((size,), specimen.dtype, stream)
                bench.copy(source, there, stream)
                bench.copy(there, twin, stream)
                bench.copy(twin, back, stream)
                if stream is not None:
                    wait_for_all(stream)
                    close(stream)
                if not same(source, back):
                    wrong.append("with" if stream is not None else "without")

        failed = in_threads(6, work)
        trial.count(6)
        for error in failed:
            trial.find(said.ANY_THREAD, f"raised {error!r}", case=case)
        for how in set(wrong):
            trial.find(
                said.ANY_THREAD,
                f"numbers of another thread, or none, in copies {how} a stream",
                case=case,
            )


@check("time", share=0.2)
def busy_neighbours(trial: Trial) -> None:
    """Copies without a stream are done at once, whatever streams are busy with."""
    what = "copies without a stream while one is busy"
    for bench, specimen, case in busy(trial, what):
        with asking(trial, said.COPY_NOW, case), bench.stream() as stream:
            for size in SIZES:
                trial.count()
                bench.burden(stream)
                source = filled(specimen, size, 3)
                there = bench.put(source)
                source[...] = 9
                back = np.zeros_like(source)
                bench.copy(there, back, None)
                if not (back == 3).all():
                    trial.find(
                        said.COPY_NOW,
                        f"of {size} numbers some were not there, or changed later",
                        case=case,
                        kind="late",
                    )


@check("time", share=0.2)
def adopted(trial: Trial) -> None:
    """A stream of the user's is used in its order, and stays open."""
    for bench, specimen, case in busy(trial, "a stream that is adopted"):
        with asking(trial, said.ADOPT, case):
            source = filled(specimen, 1 << 12, 3)
            back = np.zeros_like(source)
            with bench.stream() as stream:
                handle = stream.native_handle
                if not handle:
                    trial.leave_out("streams have no native handle")
                    return
                try:
                    twin = bench.context.adopt_stream(handle)
                except NotImplementedError:
                    trial.leave_out("streams of users are not adopted")
                    return
                trial.count()
                there = bench.put(np.zeros_like(source))
                bench.burden(stream)
                bench.copy(source, there, stream)
                bench.copy(there, back, twin)
                wait_for_all(twin)
                if not same(source, back):
                    trial.find(
                        said.ADOPT,
                        "work there is in no order with the user's",
                        case=case,
                    )
                close(twin)
                back[...] = 0
                with asking(trial, said.ADOPTED_CLOSE, case):
                    bench.copy(there, back, stream)
                    wait_for_all(stream)
                    if not same(source, back):
                        trial.find(
                            said.ADOPTED_CLOSE, "it does nothing any more", case=case
                        )
