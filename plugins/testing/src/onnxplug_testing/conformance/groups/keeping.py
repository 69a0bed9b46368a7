"""Whether a device's memory is kept and let go as it should be, whoever lets go of it,
and what is copied or returned is nobody else's."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_memory import (
    case_of,
    content,
    opened,
    same,
)
from onnxplug_testing.conformance.groups.device_streams import busy, within
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    Unfit,
    asking,
    has_streams,
    in_use,
    laboratory,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import compare, settled
from onnxplug_testing.conformance.specimens import (
    Node,
    Operators,
    Specimen,
    chosen,
    make,
)
from onnxplug_testing.conformance.trial import Trial

NEEDS: Final = Sentence(
    "DataTransfer.needs_copy",
    "Whether arrays in *source* cannot be used in *target* as they are.",
)
PLACE: Final = Sentence("DeviceContext.location", "Where it is.")

_LONG: Final = 10.0
"""Seconds after which what makes small arrays is thought to hang."""

_TURNS: Final = 24

_POOL: Final = 400
"""Arrays that are let go, one at each line of the EP's."""


@check("memory", share=0.1)
def garbage(trial: Trial) -> None:
    """Arrays may be let go at any time and in any thread, also in the midst of making
    others, as Python collects garbage."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "arrays that are let go while others are made")
        if not trial.attempt(case):
            return
        with asking(trial, said.FREE_AGAIN, case):
            before = in_use(bench)
            work = functools.partial(_let_go_within, bench, specimen)
            trial.count(_TURNS)
            if not within(_LONG, work):
                text = (
                    "Allocator.empty, or live_bytes, had not returned after "
                    f"{_LONG:.0f} s, as an array was let go in its midst"
                )
                trial.find(said.FREE_AGAIN, text, case=case, kind="hangs")
                return
            _let_go_elsewhere(bench, specimen)
            trial.count()
            after = in_use(bench)
            if before is not None and after is not None and after > before:
                text = f"{after - before} bytes are in use of arrays that are gone"
                trial.find(said.FREE_AGAIN, text, case=case, kind="kept")


def _let_go_within(bench: Bench, specimen: Specimen) -> None:
    """Let go of an array at each line of Python that is run to make another."""
    pool = [bench.device.empty((3,), specimen.dtype, None) for _ in range(_POOL)]

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if event == "line" and pool:
            pool.pop()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for number in range(_TURNS):
            size = (3, 64, 1000)[number % 3]
            bench.device.empty((size,), specimen.dtype, None)
            _ = bench.context.live_bytes
    finally:
        sys.settrace(before)


def _let_go_elsewhere(bench: Bench, specimen: Specimen) -> None:
    for stream_is_there in (False, has_streams(bench)):
        arrays = []
        if stream_is_there:
            with bench.stream() as stream:
                arrays = [bench.empty((64,), specimen.dtype, stream) for _ in range(4)]
        else:
            arrays = [bench.empty((64,), specimen.dtype) for _ in range(4)]
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()


# what is counted


@check("memory", share=0.1)
def counting(trial: Trial) -> None:
    """What is in use is counted anew when memory is handed out again, by whatever call
    and for whatever stream, and no more when it is let go."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "live_bytes of arrays that come and go")
        if bench.live_bytes is None:
            trial.leave_out("live_bytes is not supplied: leaks are seen less well")
            return
        if not trial.attempt(case):
            return
        with asking(trial, said.LIVE, case):
            for name, hold in _HOLDERS.items():
                for turn in range(3):
                    trial.count()
                    before = in_use(bench)
                    kept = hold(bench, specimen)
                    if kept is None:
                        break
                    held = in_use(bench)
                    del kept
                    after = in_use(bench)
                    assert before is not None
                    assert held is not None
                    assert after is not None
                    what = f"{name}, time {turn + 1}"
                    if held - before < _BYTES:
                        text = f"{what}: {held - before} bytes more, expected {_BYTES}"
                        trial.find(said.LIVE, text, case=case, kind=f"fewer {name}")
                    if after >= before + _BYTES // 32:
                        text = f"{what}: {after - before} bytes more when it is gone"
                        trial.find(said.LIVE, text, case=case, kind=f"more {name}")


_BYTES: Final = 1 << 20


def _count(specimen: Specimen) -> int:
    return _BYTES // specimen.dtype.numpy.itemsize


def _hold_one(bench: Bench, specimen: Specimen) -> Any:
    return bench.empty((_count(specimen),), specimen.dtype)


def _hold_many(bench: Bench, specimen: Specimen) -> Any:
    size = _count(specimen) // 32
    return [bench.empty((4, size // 4), specimen.dtype) for _ in range(32)]


def _hold_for_a_stream(bench: Bench, specimen: Specimen) -> Any:
    if not has_streams(bench):
        return None
    source = np.ones((_count(specimen),), specimen.dtype.numpy)
    with bench.stream() as stream:
        kept = bench.put(source, stream)
        wait_for_all(stream)
    return kept


def _hold_a_stack(bench: Bench, specimen: Specimen) -> Any:
    parts = [bench.empty((_count(specimen) // 2,), specimen.dtype) for _ in range(2)]
    made = bench.context.stack(parts, 0, None)
    return None if made is NotImplemented else made


_HOLDERS: Final = {
    "an array": _hold_one,
    "32 small arrays": _hold_many,
    "an array of a stream": _hold_for_a_stream,
    "what was stacked": _hold_a_stack,
}


@check("memory", share=0.1)
def queued_pairs(trial: Trial) -> None:
    """Several pairs that one call queues are all copied, each from its own source."""
    for bench, specimen, case in busy(trial, "several pairs that are queued"):
        with asking(trial, said.COPY_QUEUED, case):
            for size in (5, 1027):
                trial.count()
                numbers = trial.numbers("queued", size)
                sources = [
                    content(numbers, (size, number), specimen.dtype)
                    for number in (1, 3, 2)
                ]
                backs = [np.zeros_like(each) for each in sources]
                with bench.stream() as stream:
                    there = [
                        bench.empty(each.shape, specimen.dtype, stream)
                        for each in sources
                    ]
                    bench.burden(stream)
                    transfer = bench.context.transfer
                    transfer.copy(tuple(zip(sources, there, strict=True)), stream)
                    transfer.copy([], stream)
                    transfer.copy(list(zip(there, backs, strict=True)), stream)
                    wait_for_all(stream)
                if not all(map(same, sources, backs)):
                    text = "of three pairs that one call queued, one was not copied"
                    trial.find(said.COPY_QUEUED, text, case=case)


@check("memory", share=0.1)
def needs_of_places(trial: Trial) -> None:
    """A context is where it was asked for, and a copy is needed between its memory and
    the host's if numpy cannot use it, and none within it."""
    with opened(trial) as found:
        if found is None:
            return
        bench, specimen = found
        case = case_of(specimen, "whether copies are needed")
        if not trial.attempt(case):
            return
        here, transfer = bench.location, bench.context.transfer
        with asking(trial, NEEDS, case):
            found_at = bench.context.location
            if found_at != here or found_at.host_accessible != here.host_accessible:
                text = f"{found_at!r}, asked for {here!r}"
                trial.find(PLACE, text, case=case, kind="place")
            same_place = ep.MemoryLocation(here.space, here.ordinal)
            beside = ep.MemoryLocation(here.space, here.ordinal + 1)
            for source, target, wanted in (
                (here, same_place, False),
                (ep.HOST, here, not here.host_accessible),
                (here, ep.HOST, not here.host_accessible),
                (here, beside, True),
            ):
                trial.count()
                told = transfer.needs_copy(source, target)
                if told is not wanted and not (here.host_accessible and not told):
                    text = f"{told} from {source} to {target}; expected {wanted}"
                    trial.find(NEEDS, text, case=case, kind=f"{source} {target}")
            _odd_shapes(trial, bench, specimen, case)


def _odd_shapes(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    """Shapes that are lists, and arrays of the host with axes in any order."""
    trial.count()
    with asking(trial, said.EMPTY, case):
        array = bench.device.empty([2, 3], specimen.dtype, None)
        if tuple(array.shape) != (2, 3):
            text = f"{array.shape} for the shape [2, 3]"
            trial.find(said.EMPTY, text, case=case, kind="list")
    plain = content(trial.numbers("odd"), (2, 3, 5), specimen.dtype)
    for axes in itertools.permutations(range(3)):
        trial.count()
        source = plain.transpose(axes)
        room = np.zeros((*source.shape[:2], source.shape[2] + 3), source.dtype)
        target = room[..., : source.shape[2]]
        with asking(trial, said.COPY, case):
            bench.copy(bench.put(source), target, None)
            if not same(np.array(target), np.array(source)):
                text = f"an array with axes {axes} of another, to one with rows apart"
                trial.find(said.COPY, f"{text}: other bytes", case=case, kind="axes")


# results


def twins(has: Operators) -> Specimen:
    """Nodes that are alike, and outputs that are the same."""
    names = ["x", "z"] if has.binary else ["x"]
    op_type = (has.binary or has.unary)[0]
    return make(
        f"two {op_type} of the same",
        has.dtype,
        [Node(op_type, names, "y"), Node(op_type, names, "a")],
        dict.fromkeys(names, (4, 6)),
        outputs=["y", "a"],
    )


@check("memory", share=0.1)
def alike(trial: Trial) -> None:
    """Results that are alike are arrays of their own: to one the caller writes."""
    for specimen in chosen(trial, twins):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "one of two results is written to")
        if not trial.attempt(case):
            continue
        expected = specimen.expected(feeds)
        with (
            asking(trial, said.WRITTEN_TO, case),
            laboratory(trial.subject, specimen) as lab,
        ):
            if lab.bench is None:
                raise Unfit("the host copies what is alike")
            with settled(lab) as stream:
                given = lab.run(lab.put(feeds, stream), None, stream)
            waste: Array = np.full_like(expected["y"], 77)
            lab.bench.copy(waste, given["y"], None)
            rest = {"a": given["a"]}
            what = "when another result, of a node alike, was written to,"
            compare(trial, lab, rest, expected, case, said.WRITTEN_TO, what)
