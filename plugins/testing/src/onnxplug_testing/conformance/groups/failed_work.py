"""Whether work that failed is told of, with what is behind it, and nothing is kept.

Beside it :mod:`.failure` asks of what the host is told, run by run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import onnx

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.captures import NONE, option_of
from onnxplug_testing.conformance.groups.device_streams import Foreign, busy
from onnxplug_testing.conformance.groups.each_operator import Named
from onnxplug_testing.conformance.groups.left_over import counted
from onnxplug_testing.conformance.groups.points import look_behind
from onnxplug_testing.conformance.injection import Place, injected
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    Breach,
    Laboratory,
    Unfit,
    asking,
    device_of,
    has_streams,
    laboratory,
    record,
    wait,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import compare
from onnxplug_testing.conformance.specimens import (
    OPSET,
    Specimen,
    agrees,
    chosen,
    several,
    single,
    takes,
)
from onnxplug_testing.conformance.taps import ignoring_failures
from onnxplug_testing.conformance.trial import Trial

ASKED: Final = Sentence(
    "Event",
    "One that was recorded while its stream captured is for work that was captured "
    "with it only; to ask or wait for it fails the capture.",
)

NO_STREAMS: Final = "the device has no streams: its work is done at once"

_FAILS: Final = 4
"""Runs that fail in a row, between two looks at what is in use."""


def _looked_up() -> tuple[Specimen, Case]:
    """A model whose work fails when it is done: an index is out of range."""
    x, wrong = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([1, 99])
    element = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["x", "i"], ["y"])],
        "looked up",
        [
            onnx.helper.make_tensor_value_info("x", element, [4, 6]),
            onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [2]),
        ],
        [onnx.helper.make_tensor_value_info("y", element, None)],
    )
    imports = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    case = Case(
        model.SerializeToString(), {"x": x, "i": wrong}, "an index out of range"
    )
    shapes = {"x": (4, 6), "i": (2,)}
    specimen = Specimen(
        case.name, case.model, ep.DataType.FLOAT32, shapes, Named(["y"])
    )
    return specimen, case


@check("failure", share=0.2)
def told_of_again(trial: Trial) -> None:
    """An event behind work that failed raises whenever it is waited for, and so does
    one of a stream that waits for it."""
    specimen, case = _looked_up()
    if takes(trial.subject, specimen):
        if trial.attempt(case):
            with (
                asking(trial, said.RAISES_AGAIN, case),
                laboratory(trial.subject, specimen) as lab,
            ):
                _tell_of(trial, lab.on_device, case, _running(lab, case))
        return
    trial.leave_out("the EP takes no Gather, whose work may fail")
    for specimen in chosen(trial, single):
        case = specimen.case({}, "behind work of another device, which failed")
        if trial.attempt(case):
            with asking(trial, said.RAISES_AGAIN, case):
                _by_others(trial, specimen, case)


def _running(lab: Laboratory, case: Case) -> Callable[[ep.Stream], None]:
    def fail(stream: ep.Stream) -> None:
        lab.run(lab.put(case.feeds, stream), None, stream)

    return fail


def failing_work(trial: Trial, bench: Bench) -> Callable[[ep.Stream], None]:
    """Work of the device that fails: a run of an index that is out of range, where the
    EP takes that, or else a wait for work of another device that failed.

    Raises:
        Unfit: there is neither.
    """
    specimen, case = _looked_up()
    if not takes(trial.subject, specimen):
        return _wait_for_others
    entered = laboratory(trial.subject, specimen)
    lab = entered.__enter__()

    def fail(stream: ep.Stream) -> None:
        lab.run(lab.put(case.feeds, stream), None, stream)

    # closed with the process: what failed may keep it
    _OPEN.append(entered)
    return fail


_OPEN: Final[list[Any]] = []


def _wait_for_others(stream: ep.Stream) -> None:
    event = Foreign(RuntimeError("the work of another device failed"))
    event.flag.set()
    if not wait(stream, event):
        raise Unfit("its streams wait for no events of other devices")


def _by_others(trial: Trial, specimen: Specimen, case: Case) -> None:
    """Have a stream wait for the work of another device, if it does that."""

    with device_of(trial.subject, specimen) as bench:
        _tell_of(trial, bench, case, _wait_for_others)


def _tell_of(
    trial: Trial, bench: Bench, case: Case, fail: Callable[[ep.Stream], None]
) -> None:
    """Queue work that fails, by *fail*, and wait for what is behind it."""
    if not has_streams(bench):
        raise Unfit(NO_STREAMS)
    content = np.arange(6, dtype=np.float32)
    with _failing(bench) as first, _failing(bench) as second:
        fail(first)
        event = record(first)
        waits = wait(second, event)
        there = bench.put(content, second)
        behind = record(second)
        told = [_raises(event) for _ in range(3)]
        if not told[0]:
            trial.take_back("the device tells of no failure in its work")
            return
        if not all(told):
            text = "Event.synchronize raised what the work had, and did not again"
            trial.find(said.RAISES_AGAIN, text, case=case)
        if waits and not _raises(behind):
            text = "nothing is raised by a stream that waited for work that failed"
            trial.find(said.WAIT_FAILED, text, case=case)
        del there


@contextmanager
def _failing(bench: Bench) -> Iterator[ep.Stream]:
    """A stream, of whose failures nothing is to be known when it is closed."""
    with ignoring_failures(), bench.stream() as stream:
        yield stream


def _raises(event: ep.Event) -> bool:
    try:
        event.synchronize()
    except Exception as error:  # noqa: BLE001 (whatever the work raised)
        ep.raise_interruption(error)
        return True
    return False


@check("time", share=0.1)
def failed_points(trial: Trial) -> None:
    """An event behind work that failed is done, and to ask it raises nothing; other
    streams know nothing of the failure, and the failed one is closed like others."""
    for bench, specimen, case in busy(trial, "events behind work that failed"):
        with asking(trial, said.DONE, case):
            fail = failing_work(trial, bench)
            look_behind(trial, bench, specimen, fail, case)


@check("failure", share=0.1)
def behind_failures(trial: Trial) -> None:
    """What is behind work that failed is told of it, and nobody else."""
    for bench, specimen, case in busy(trial, "behind work that failed"):
        with asking(trial, said.RAISES_AGAIN, case):
            fail = failing_work(trial, bench)
            look_behind(trial, bench, specimen, fail, case)


@check("failure", share=0.3)
def kept_by_failures(trial: Trial) -> None:
    """Runs that fail, again and again in one session, leave nothing behind."""
    for specimen in chosen(trial, several):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        with asking(trial, said.FREE_AGAIN), laboratory(trial.subject, specimen) as lab:
            if lab.bench is None:
                raise Unfit("the EP works in the host's memory: no device fails")
            places = [
                *(Place("allocator", "empty", call) for call in range(2, 7)),
                *(Place("transfer", "copy", call) for call in range(1, 4)),
            ]
            trial.draw(specimen.name).shuffle(places)
            for place in trial.in_time(places):
                case = specimen.case(feeds, f"{place}, in {2 * _FAILS} runs")
                if trial.attempt(case):
                    _fail_often(trial, lab, feeds, place, case)


def _fail_often(
    trial: Trial, lab: Laboratory, feeds: Mapping[str, Array], place: Place, case: Case
) -> None:
    bench = lab.on_device
    with counted(bench.context) as seen:
        # garbage is only collected, which takes long, where something may be kept
        for collects in (False, True):
            counts: list[int] = []
            while len(counts) < 3:
                if not all(_fails(trial, lab, feeds, place) for _ in range(_FAILS)):
                    trial.take_back("the host makes no such call in a plain run")
                    return
                lab.session.run(None, dict(feeds))  # when it is done, so is all before
                if collects:
                    gc.collect()
                live = bench.live_bytes
                counts.append(seen.alive if live is None else live)
            if not counts[0] < counts[1] < counts[2]:
                return
    what = "live_bytes" if bench.live_bytes is not None else "arrays that are kept"
    numbers = " to ".join(map(str, counts))
    text = f"{what} grew from {numbers} with each {_FAILS} runs that failed"
    trial.find(said.FREE_AGAIN, f"{place}: {text}", case=case, kind="grew")


def _fails(
    trial: Trial, lab: Laboratory, feeds: Mapping[str, Array], place: Place
) -> bool:
    """Whether a run fails at *place*."""
    with injected(trial.subject, place, lab.on_device.context) as injection:
        try:
            lab.session.run(None, dict(feeds))
        except Exception as error:  # noqa: BLE001 (it is to fail)
            ep.raise_interruption(error)
            return injection.came
    return False


@check("failure", share=0.2)
def failed_captures(trial: Trial) -> None:
    """A stream whose capture failed captures no more, and has done nothing of it."""
    options = option_of(trial)
    if options is None:
        trial.leave_out(f"{NONE}: no option of its asks for that")
        return
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        for name, spoil in _SPOILERS.items():
            case = specimen.case(feeds, f"a capture in which {name} is waited for")
            if not trial.attempt(case):
                continue
            with asking(trial, said.CAPTURE_FAILED, case):
                try:
                    entered = laboratory(trial.subject, specimen, options=options)
                    with entered as lab:
                        _spoil(trial, lab, feeds, spoil, case)
                except (ep.SessionRefused, ep.OptionError) as error:
                    trial.leave_out(f"{NONE}: {error}"[:200])


_SPOILERS: Final[Mapping[str, Callable[[ep.Stream], Any]]] = {
    "an event": lambda stream: stream.record().synchronize(),
    "an event, by asking whether it is done,": lambda stream: stream.record().done(),
    "the stream": lambda stream: stream.synchronize(),
}
"""What is waited for, while nothing may be."""


def _spoil(
    trial: Trial,
    lab: Laboratory,
    feeds: Mapping[str, Array],
    spoil: Callable[[ep.Stream], Any],
    case: Case,
) -> None:
    capture = lab.provider.capture or lab.on_device.context.capture
    if capture is None:
        raise Unfit(f"{NONE}: ExecutionProvider.capture is None")
    expected = lab.specimen.expected(feeds)
    placed = lab.put(feeds)
    rooms = {name: lab.room(name, array) for name, array in expected.items()}
    with lab.on_device.stream() as stream:
        lab.run(placed, rooms, stream, capture=ep.CapturePhase.WARM_UP)
        wait_for_all(stream)
        rooms = {name: lab.room(name, array) for name, array in expected.items()}
        capture.begin(stream)
        with ignoring_failures():
            lab.run(placed, rooms, stream, capture=ep.CapturePhase.CAPTURE)
            spoil(stream)
        try:
            capture.end(stream).close()
        except Exception as error:  # noqa: BLE001 (whatever it raises)
            ep.raise_interruption(error)
        else:
            if spoil is _SPOILERS["the stream"]:
                trial.take_back("the capture is good all the same")
            else:
                text = (
                    "the capture is good though an event recorded in it was asked for"
                )
                trial.find(ASKED, text, case=case, kind="asked")
            return
        try:
            wait_for_all(stream)
            for name, room in rooms.items():
                if agrees(lab.get(name, room), expected[name]):
                    text = "work of a capture that failed was done"
                    trial.find(said.CAPTURE_FAILED, text, case=case)
            given = lab.run(placed, rooms, stream)
            wait_for_all(stream)
        except Breach as error:
            text = f"afterwards the stream {error}"
            trial.find(said.CAPTURE_FAILED, text, case=case)
            raise Unfit("a stream that is of no use") from error
        what = "in a run on the stream whose capture failed"
        compare(trial, lab, given, expected, case, said.CAPTURE_FAILED, what)
