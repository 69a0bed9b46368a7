"""Whether runs keep each other, or the host, waiting without need.

A lock around a run, or a stream that is waited for at its end, changes no number; it
takes from threads, and from devices, what they are there for.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import DEVICE, Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.within_runs import Watched
from onnxplug_testing.conformance.laboratory import (
    Bench,
    Laboratory,
    Unfit,
    asking,
    has_streams,
    is_done,
    record,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import examined, settled
from onnxplug_testing.conformance.specimens import Specimen, single
from onnxplug_testing.conformance.taps import ignoring_failures
from onnxplug_testing.conformance.trial import Trial

QUEUES: Final = Sentence(
    "What a run queues",
    "`run` queues kernels on the stream that it is given, and returns arrays that are "
    "filled later. It waits for nothing:",
    DEVICE,
)

_PATIENCE: Final = 2.0
"""Seconds for a run beside another, which takes milliseconds."""

_END: Final = 30.0
"""Seconds for it when the other one has ended."""

_LATE: Final = 4
"""So many times as long as a run of an idle stream the work before it has to take."""


@check("speed", share=0.1)
def in_two_threads(trial: Trial) -> None:
    """A run ends while another one of the session goes on in another thread, unless the
    partition says how many may."""
    for lab, specimen, case in examined(trial, "runs in two threads", single):
        if lab.compiled.max_concurrent_runs is not None:
            trial.leave_out("the EP says how many runs may go on at once")
            continue
        with asking(trial, said.CONCURRENT, case):
            trial.count()
            _beside(trial, lab, specimen, case)


def _beside(trial: Trial, lab: Laboratory, specimen: Specimen, case: Case) -> None:
    feeds = specimen.feeds(trial.numbers("beside"))
    had_to_wait: list[bool] = []

    def work() -> None:
        with ignoring_failures():  # which other checks tell of
            lab.session.run(None, dict(feeds))

    thread = threading.Thread(target=work, daemon=True)

    def ask() -> None:
        if not had_to_wait:
            thread.start()
            thread.join(_PATIENCE)
            had_to_wait.append(thread.is_alive())

    with settled(lab) as stream:
        placed = lab.put(feeds, stream)
        context = Watched(stream, lab.run_options, ask)
        lab.run(placed, None, stream, context=context)
    if not had_to_wait:
        trial.leave_out("the EP never asks in a run whether it is cancelled")
        return
    thread.join(_END)
    if had_to_wait[0]:
        text = (
            f"a run did not end within {_PATIENCE:.0f} s while another one of the "
            "session went on in another thread, as if there were a lock; "
            "max_concurrent_runs is None"
        )
        trial.find(said.CONCURRENT, text, case=case)


@check("speed", share=0.2)
def on_busy_streams(trial: Trial) -> None:
    """A run on a stream that is busy returns before the work that was queued before."""
    for lab, specimen, case in examined(trial, "a run on a busy stream", single):
        with asking(trial, QUEUES, case):
            bench = lab.on_device
            if not has_streams(bench):
                raise Unfit(
                    f"{bench.location} has no streams: its work is done at once"
                )
            _queue(trial, lab, bench, specimen, case)


def _queue(
    trial: Trial, lab: Laboratory, bench: Bench, specimen: Specimen, case: Case
) -> None:
    feeds = specimen.feeds(trial.numbers("queue"))
    alone = work = beside = float("inf")
    waited = 0
    rounds = 5 if trial.quick else 10
    with bench.stream() as stream:
        placed = lab.put(feeds, stream)
        for _ in range(rounds):
            trial.count()
            wait_for_all(stream)
            alone = min(alone, _took(lab, placed, stream))
            wait_for_all(stream)
            began = time.perf_counter()
            bench.burden(stream)
            wait_for_all(stream)
            work = min(work, time.perf_counter() - began)
            bench.burden(stream)
            before = record(stream)
            if is_done(before):
                raise Unfit("the device is done with copies before they can be late")
            beside = min(beside, _took(lab, placed, stream))
            waited += is_done(before)
    if work < _LATE * alone:
        trial.leave_out("a run takes as long as the work that it is queued behind")
    elif waited == rounds and beside > work / 2:
        text = (
            f"a run takes {beside * 1e3:.1f} ms at best on a stream that is busy for "
            f"{work * 1e3:.1f} ms, and {alone * 1e3:.1f} ms on one that is idle: it "
            "waits for the device"
        )
        trial.find(QUEUES, text, case=case)


def _took(lab: Laboratory, placed: dict[str, object], stream: ep.Stream) -> float:
    """Seconds until the EP has returned from a run."""
    began = time.perf_counter()
    lab.run(placed, None, stream)
    return time.perf_counter() - began
