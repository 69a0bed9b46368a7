"""Whether events are the points that they are recorded at, and streams are each other's
strangers."""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_memory import same
from onnxplug_testing.conformance.groups.device_streams import busy, filled, within
from onnxplug_testing.conformance.laboratory import (
    Bench,
    Unfit,
    asking,
    close,
    is_done,
    let_wait,
    record,
    wait,
    wait_for,
    wait_for_all,
)
from onnxplug_testing.conformance.specimens import Specimen
from onnxplug_testing.conformance.trial import Trial, in_words

_LONG: Final = 10.0
"""Seconds after which what waits for nothing, or for 20 ms, waits for ever."""

_TRIES: Final = 6

_STREAMS: Final = 12

NO_STREAM: Final = Sentence(
    "DeviceContext.adopt_stream", "LookupError: there is no such stream."
)


def _ends(trial: Trial, sentence: Sentence, what: str, work: Any, case: Case) -> None:
    """Find if *work* does not end.

    Raises:
        Unfit: it does not, so that the device is of no use any more.
    """
    trial.count()
    if not within(_LONG, work):
        trial.find(sentence, f"{what} has not ended after {_LONG:.0f} s", case=case)
        raise Unfit("a stream that is waited for, for ever")


@check("time", share=0.2)
def points(trial: Trial) -> None:
    """An event is for the work before it, of its own stream, and for no other; it is
    there to be waited for at any time, by anybody, more than once."""
    for bench, specimen, case in busy(trial, "events at all points"):
        with asking(trial, said.RECORD, case):
            for ask in (_idle, _earlier, _own, _twice, _two_waits):
                ask(trial, bench, specimen, case)


def _idle(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """Before any work, and when all is done."""
    for what, size in (("of a stream without work", 0), ("when all is done", 64)):
        # not closed where one waits for ever
        stream = bench.new_stream()
        assert stream is not None
        if size:
            _fill(bench, specimen, size, stream)
        event = record(stream)
        text = f"an event {what}"
        _ends(trial, said.EVENT_SYNCHRONIZE, text, event.synchronize, case)
        if not is_done(event):
            text = f"an event {what} is not done, when it was waited for"
            trial.find(said.DONE, text, case=case, kind=what)
        _ends(trial, said.SYNCHRONIZE, f"a stream {what}", stream.synchronize, case)
        close(stream)


def _fill(bench: Bench, specimen: Specimen, size: int, stream: ep.Stream) -> None:
    """Have work of *stream* done; both arrays are kept until then."""
    source = filled(specimen, size, 3)
    there = bench.put(filled(specimen, size, 0))
    bench.copy(source, there, stream)
    wait_for_all(stream)
    del there


def _own(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """A stream waits for an event of its own."""
    source = filled(specimen, 1027, 5)
    back = np.zeros_like(source)
    stream = bench.new_stream()
    assert stream is not None
    bench.burden(stream)
    let_wait(stream, record(stream))
    there = bench.put(source, stream)
    bench.copy(there, back, stream)
    text = "a stream that waits for an event of its own"
    _ends(trial, said.WAIT, text, stream.synchronize, case)
    if not same(source, back):
        trial.find(said.WAIT, f"{text} has not done its work", case=case)
    close(stream)


def _earlier(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """What waits for an event does not wait for what was queued after it."""
    for _ in range(_TRIES):
        trial.count()
        with bench.stream() as stream:
            first = record(stream)
            bench.burden(stream)
            last = record(stream)
            wait_for(first)
            if not is_done(last):
                return  # once is enough: others may have been too quick
    text = (
        f"in {_TRIES} of {_TRIES} tries returned only when what was queued after the "
        "event was done, too"
    )
    trial.find(said.RECORD, f"Event.synchronize {text}", case=case, kind="later")


def _twice(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """Events of one point, and one event that is waited for again, by several."""
    source = filled(specimen, 1 << 16, 7)
    back = np.zeros_like(source)
    with bench.streams(3) as (first, second, third):
        there = bench.put(filled(specimen, 1 << 16, 0))
        bench.burden(first)
        bench.copy(source, there, first)
        events = [record(first), record(first)]
        for stream in (second, third, second):
            for event in events:
                let_wait(stream, event)
        bench.copy(there, back, third)
        threads = [
            threading.Thread(target=event.synchronize, daemon=True)
            for event in (*events, *events)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + _LONG
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        trial.count()
        if any(thread.is_alive() for thread in threads):
            text = "of four threads that wait for an event one has not ended after"
            trial.find(said.EVENT_ANYWHERE, f"{text} {_LONG:.0f} s", case=case)
            raise Unfit("a stream that is waited for, for ever")
        wait_for_all(third)
        if not same(source, back):
            text = "of two streams that wait for two events of one point, one is early"
            trial.find(said.WAIT, text, case=case, kind="twice")


def _two_waits(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """A stream that waits for two others waits for both, whichever it is told first."""
    for order in (1, -1):
        trial.count()
        sources = [filled(specimen, 1027, number) for number in (3, 5)]
        arrays = [bench.put(filled(specimen, 1027, 0)) for _ in sources]
        backs = [np.zeros_like(source) for source in sources]
        with bench.streams(3) as (first, second, third):
            bench.burden(first)
            events = []
            for stream, source, array in zip(
                (first, second), sources, arrays, strict=True
            ):
                bench.copy(source, array, stream)
                events.append(record(stream))
            for event in events[::order]:
                let_wait(third, event)
            for array, back in zip(arrays, backs, strict=True):
                bench.copy(array, back, third)
            wait_for_all(third)
        if not all(map(same, sources, backs)):
            text = (
                "a stream that waits for events of two others began before one of them"
            )
            trial.find(said.WAIT, text, case=case, kind="both")


@check("time", share=0.1)
def strangers(trial: Trial) -> None:
    """Each stream is a new one, closed alone, and nothing of it stays when it is; there
    is none of a handle that nobody made."""
    for bench, specimen, case in busy(trial, "streams that come and go"):
        with asking(trial, said.NEW_STREAM, case):
            _all_new(trial, bench, specimen, case)
        with asking(trial, said.CLOSE_STREAM, case):
            _nothing_stays(trial, bench, specimen, case)
        with asking(trial, NO_STREAM, case):
            _no_handle(trial, bench, case)


def _all_new(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    made = [bench.new_stream() for _ in range(_STREAMS)]
    streams = [each for each in made if each is not None]
    trial.count(len(streams))
    if len({id(each) for each in streams}) < len(streams):
        trial.find(said.NEW_STREAM, "gave one that is open already", case=case)
    handles = [each.native_handle for each in streams if each.native_handle]
    if len(set(handles)) < len(handles):
        text = "two streams that are open have the same native handle"
        trial.find(said.NEW_STREAM, text, case=case, kind="handle")
    source = filled(specimen, 1027, 3)
    for stream in streams[1::2]:
        close(stream)
    for stream in streams[::2]:
        back = np.zeros_like(source)
        bench.copy(bench.put(source, stream), back, stream)
        wait_for_all(stream)
        if not same(source, back):
            text = "a stream does nothing when another one was closed"
            trial.find(said.CLOSE_STREAM, text, case=case, kind="others")
        close(stream)


def _nothing_stays(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    def come_and_go() -> None:
        for _ in range(_STREAMS):
            with bench.stream() as stream:
                _fill(bench, specimen, 64, stream)

    come_and_go()
    gc.collect()
    threads, live = threading.active_count(), bench.live_bytes
    come_and_go()
    trial.count(_STREAMS)
    end = time.monotonic() + 1.0
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.01)
    more = threading.active_count() - threads
    if more >= _STREAMS // 2:
        text = f"{more} threads are left by {_STREAMS} streams that were closed"
        trial.find(said.CLOSE_STREAM, text, case=case, kind="threads")
    gc.collect()
    after = bench.live_bytes
    if live is not None and after is not None and after > live:
        text = f"{after - live} bytes are left by {_STREAMS} streams that were closed"
        trial.find(said.CLOSE_STREAM, text, case=case, kind="bytes")


def _no_handle(trial: Trial, bench: Bench, case: Case) -> None:
    try:
        # less than nothing is no address of anybody's
        bench.context.adopt_stream(-1)
    except NotImplementedError:
        trial.leave_out("streams of users are not adopted")
    except LookupError:
        trial.count()
    except Exception as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        text = f"of the handle -1 {in_words(error)}; expected a LookupError"
        trial.find(NO_STREAM, text, case=case)
    else:
        trial.find(NO_STREAM, "adopted the handle -1", case=case)


def look_behind(
    trial: Trial,
    bench: Bench,
    specimen: Specimen,
    fail: Callable[[ep.Stream], None],
    case: Case,
) -> None:
    """Queue work that fails, by *fail*, and look at its stream and others."""
    source = filled(specimen, 1027, 3)
    stream, other, third = (bench.new_stream() for _ in range(3))
    assert stream is not None
    assert other is not None
    assert third is not None
    there = bench.put(filled(specimen, 1027, 0))
    trial.count()
    bench.burden(stream)
    try:
        fail(stream)
    except Unfit:
        for each in (stream, other, third):
            wait_for_all(each)
            close(each)
        raise
    event = record(stream)
    back = np.zeros_like(source)
    bench.copy(bench.put(source, other), back, other)
    raised = _raised(functools.partial(within, _LONG, event.synchronize))
    if raised is None:
        trial.leave_out("the device tells of no failure in its work")
    else:
        if not is_done(event):
            text = "an event behind work that failed is not done"
            trial.find(said.DONE, text, case=case, kind="failed")
        again = _raised(functools.partial(within, _LONG, stream.synchronize))
        if again is None:
            text = "Stream.synchronize raises nothing of work that failed"
            trial.find(said.SYNCHRONIZE, text, case=case, kind="failed")
        elif type(again) is not type(raised):
            text = f"Event.synchronize raised {raised!r}, Stream.synchronize {again!r}"
            trial.find(said.SYNCHRONIZE, text[:300], case=case, kind="types")
        _wait_behind(trial, bench, third, event, case)
    with asking(trial, said.IN_ORDER, case):
        wait_for_all(other)
        if not same(source, back):
            text = "a stream has not done its work, as that of another one had failed"
            trial.find(said.IN_ORDER, text, case=case, kind="other")
        close(other)
    with asking(trial, said.CLOSE_STREAM, case):
        close(stream)
    if not same(bench.get(bench.put(source)), source):
        trial.find(said.GOES_ON, "copies are wrong after a failure", case=case)
    del there


def _wait_behind(
    trial: Trial, bench: Bench, stream: ep.Stream, event: ep.Event, case: Case
) -> None:
    """Let *stream* wait for *event*, of which it is known that its work failed."""
    try:
        waits = wait(stream, event)
    except Exception as error:  # noqa: BLE001 (told at once is told, too)
        ep.raise_interruption(error)
        return
    raised = _raised(functools.partial(within, _LONG, record(stream).synchronize))
    if waits and raised is None:
        text = "nothing is raised by a stream that waits for work that has failed"
        trial.find(said.WAIT_FAILED, text, case=case, kind="afterwards")


def _raised(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 (whatever the work raised)
        ep.raise_interruption(error)
        return error
    return None
