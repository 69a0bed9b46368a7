"""Whether anything is left when runs, sessions and contexts have ended."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_memory import case_of, opened
from onnxplug_testing.conformance.laboratory import (
    Array,
    asking,
    device_of,
    laboratory,
)
from onnxplug_testing.conformance.partitions import compare, examined, settled
from onnxplug_testing.conformance.specimens import (
    Specimen,
    chosen,
    of_any_size,
    several,
    single,
)
from onnxplug_testing.conformance.taps import replaced
from onnxplug_testing.conformance.trial import Trial


class Inventory:
    """What an EP has at a moment.

    Attributes:
        arrays: those that its allocator made, and somebody has.
        streams: how many were made and not closed.
    """

    def __init__(self) -> None:
        self.arrays: list[weakref.ref[Any]] = []
        self.streams = 0

    @property
    def alive(self) -> int:
        """How many arrays somebody has."""
        gc.collect()
        return sum(each() is not None for each in self.arrays)


@contextmanager
def counted(context: ep.DeviceContext) -> Iterator[Inventory]:
    """A context in which arrays and streams are counted, as far as they can be."""
    seen = Inventory()
    device = context.allocator(ep.MemoryKind.DEVICE)
    empty, create = getattr(device, "empty", None), context.create_stream

    def emptied(*args: Any, **kwargs: Any) -> Any:
        assert empty is not None
        array = empty(*args, **kwargs)
        with contextlib.suppress(TypeError):  # of a class without weak references
            seen.arrays.append(weakref.ref(array))
        return array

    def created() -> Any:
        stream = create()
        if stream is not None and hasattr(stream, "__dict__"):
            seen.streams += 1
            close = stream.close

            def closed() -> None:
                seen.streams -= 1
                close()

            vars(stream)["close"] = closed
        return stream

    try:
        with (
            replaced(device, "empty", emptied),
            replaced(context, "create_stream", created),
        ):
            yield seen
    except TypeError as error:
        if "takes no attributes" not in str(error):
            raise
        yield seen


@check("memory", share=0.6)
def leaks(trial: Trial) -> None:
    """Neither runs nor sessions leave anything behind when they have ended."""
    for specimen in chosen(trial, several, of_any_size):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "many runs and sessions")
        if not trial.attempt(case):
            continue
        with asking(trial, said.FREE_AGAIN, case):
            _leaks_of_runs(trial, specimen, feeds, case)
            _leaks_of_sessions(trial, specimen, feeds, case)


def _leaks_of_runs(
    trial: Trial, specimen: Specimen, feeds: Mapping[str, Array], case: Case
) -> None:
    with laboratory(trial.subject, specimen) as lab:
        runs = 10 if trial.quick else 24
        fed: list[weakref.ref[Any]] = []
        counts = []
        threads = []
        for number in range(runs):
            trial.count()
            copies = {name: array.copy() for name, array in feeds.items()}
            lab.session.run(None, copies)
            fed += [weakref.ref(array) for array in copies.values()]
            del copies
            threads.append(threading.active_count())
            if lab.bench is not None and number in (runs // 2, runs - 1):
                gc.collect()
                counts.append(lab.bench.live_bytes)
        gc.collect()
        alive = sum(each() is not None for each in fed)
        if alive > runs // 2:
            trial.find(
                said.FREE_AGAIN,
                f"{alive} of {len(fed)} arrays that were fed are kept after {runs} "
                "runs",
                case=case,
            )
        _find_growth(trial, counts, f"runs {runs // 2} to {runs}", case)
        if threads[-1] >= threads[0] + runs // 2:
            trial.find(
                said.FREE_AGAIN,
                f"{threads[-1] - threads[0]} threads more after {runs} runs",
                case=case,
            )


def _find_growth(trial: Trial, counts: list[int | None], what: str, case: Case) -> None:
    if len(counts) == 2 and None not in counts:
        first, last = counts
        assert first is not None
        assert last is not None
        if last > first:
            trial.find(
                said.FREE_AGAIN,
                f"live_bytes grew from {first} to {last} in {what}",
                case=case,
                kind=what,
            )


def _leaks_of_sessions(
    trial: Trial, specimen: Specimen, feeds: Mapping[str, Array], case: Case
) -> None:
    with laboratory(trial.subject, specimen) as keeper:
        _look_for_leftovers(trial, specimen, feeds, case)
        if keeper.bench is None:
            trial.leave_out("the EP works in the host's memory: no device is counted")
        bench = keeper.bench
        counts: list[int | None] = []
        if bench is None:
            return
        with counted(bench.context) as seen:
            for _ in range(5):
                trial.count()
                trial.subject.run(specimen.model, feeds)
                gc.collect()
                counts.append(bench.live_bytes)
            if seen.alive > 0:
                trial.find(
                    said.FREE_AGAIN,
                    f"{seen.alive} of {len(seen.arrays)} arrays are kept after 5 "
                    "sessions",
                    case=case,
                )
            if seen.streams > 0:
                trial.find(
                    said.CLOSE_STREAM,
                    f"{seen.streams} streams were left open by 5 sessions",
                    case=case,
                )
        _find_growth(trial, [counts[1], counts[-1]], "three sessions", case)


_SESSIONS: Final = 6

_SETTLES: Final = 1.0
"""Seconds in which threads that are to end do so, on a machine that does much else."""


def _look_for_leftovers(
    trial: Trial, specimen: Specimen, feeds: Mapping[str, Array], case: Case
) -> None:
    """Whether threads, open files or what was fed stays when sessions are closed."""
    fed: list[weakref.ref[Any]] = []

    def run() -> None:
        copies = {name: array.copy() for name, array in feeds.items()}
        fed.extend(weakref.ref(array) for array in copies.values())
        trial.subject.run(specimen.model, copies, checked=False)

    run()
    threads, files = threading.active_count(), _open_files()
    for _ in range(_SESSIONS):
        trial.count()
        run()
    gc.collect()
    end = time.monotonic() + _SETTLES
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.01)
    for what, more, sentence in (
        ("threads", threading.active_count() - threads, said.CLOSE_EP),
        ("open files", _open_files() - files, said.CLOSE_EP),
        (
            "arrays that were fed",
            sum(each() is not None for each in fed),
            said.CLOSE_EP,
        ),
    ):
        if more >= _SESSIONS // 2:
            text = f"{more} {what} are left by {_SESSIONS} sessions that were closed"
            trial.find(sentence, text, case=case, kind=what)


def _open_files() -> int:
    """How many this process has; 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


@check("memory", share=0.2)
def live_bytes(trial: Trial) -> None:
    """What is in use is counted, and no more when it is let go."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "live_bytes of three arrays of 4 MiB")
        if not trial.attempt(case):
            return
        count = (1 << 22) // specimen.dtype.numpy.itemsize
        with asking(trial, said.LIVE, case):
            before = bench.live_bytes
            if before is None:
                why = "live_bytes is not supplied: leaks are seen less well"
                trial.take_back(why)
                return
            trial.count()
            arrays = [bench.empty((count,), specimen.dtype) for _ in range(3)]
            held = bench.live_bytes
            assert held is not None
            if held - before < 3 << 22:
                trial.find(
                    said.LIVE, f"{held - before} bytes more, expected {3 << 22}",
                    case=case, kind="fewer",
                )  # fmt: skip
            arrays.clear()
            gc.collect()
            after = bench.live_bytes
            assert after is not None
            if after - before >= 1 << 22:
                trial.find(
                    said.LIVE,
                    f"{after - before} bytes more than before, when all were let go",
                    case=case,
                    kind="more",
                )


@check("memory", share=0.3)
def contexts(trial: Trial) -> None:
    """A context is closed after its last use without a failure, and another one made
    when it is used again."""
    for specimen in chosen(trial, single):
        case = specimen.case({}, "a context that is opened again")
        if not trial.attempt(case):
            return
        for _ in range(3):
            trial.count()
            with asking(trial, said.OPEN_AGAIN, case):
                _open_and_close(trial, specimen, case)
            gc.collect()


def _open_and_close(trial: Trial, specimen: Specimen, case: Case) -> None:
    failures: list[BaseException] = []
    with device_of(trial.subject, specimen) as bench:
        context = bench.context
        if hasattr(context, "__dict__"):
            # the host only logs what it raises
            vars(context)["close"] = _noting(context.close, failures)
        array = bench.put(np.full((64,), 3, specimen.dtype.numpy))
        if not (bench.get(array) == 3).all():
            trial.find(said.COPY, "other numbers in a context that was opened again")
        del bench, array, context
    gc.collect()
    for error in failures:
        trial.find(said.CLOSE_CONTEXT, f"raised {error!r}", case=case)


def _noting(
    close: Callable[[], None], failures: list[BaseException]
) -> Callable[[], None]:
    def closed() -> None:
        try:
            close()
        except BaseException as error:
            failures.append(error)
            raise

    return closed


@check("memory", share=0.3)
def closed_twice(trial: Trial) -> None:
    """Partitions and EPs may be closed again, and results outlive them."""
    for lab, specimen, case in examined(trial, "closed twice"):
        with asking(trial, said.RESULTS, case):
            trial.count()
            feeds = specimen.feeds(trial.numbers("closed"))
            with settled(lab) as stream:
                given = lab.run(lab.put(feeds, stream), None, stream)
            expected = specimen.expected(feeds)
            for sentence, close in (
                (said.CLOSE_PARTITION, lab.compiled.close),
                (said.CLOSE_EP, lab.provider.close),
            ):
                for _ in range(2):
                    with asking(trial, sentence, case):
                        close()
            compare(
                trial,
                lab,
                given,
                expected,
                case,
                said.GIVEN_AWAY,
                "when the EP was closed",
            )
