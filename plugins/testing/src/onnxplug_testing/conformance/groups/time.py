"""Whether work is in order: that of runs on streams that are busy, and of many threads.

What is asked of streams alone is in :mod:`.device_streams` and :mod:`.points`, of
captures in
:mod:`.captures`, of runs in the midst of others in :mod:`.within_runs`.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import (
    captures,
    device_streams,
    points,
    queued_copies,
    within_runs,
)
from onnxplug_testing.conformance.groups.device_streams import (
    busy,
    in_threads,
    taking_turns,
)
from onnxplug_testing.conformance.groups.each_operator import of_each_operator
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    laboratory,
    let_wait,
    poison,
    record,
    wait_for,
    wait_for_all,
)
from onnxplug_testing.conformance.laden import laden
from onnxplug_testing.conformance.late import (
    fetch,
    hold_against,
    large,
    late_feeds,
    queued,
)
from onnxplug_testing.conformance.partitions import settled
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    chosen,
    differs,
    of_any_size,
    several,
    single,
)
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial

__all__ = ["captures", "device_streams", "points", "queued_copies", "within_runs"]


@check("time", share=0.4)
def late_inputs(trial: Trial) -> None:
    """A run reads its inputs, and fills its outputs, when its stream comes to it."""
    for lab, specimen, case in queued(trial, "inputs that are late"):
        with asking(trial, said.QUEUED, case):
            for number in range(6):
                trial.count()
                feeds = specimen.feeds(trial.numbers(number))
                expected = specimen.expected(feeds)
                with lab.on_device.stream() as stream:
                    rooms = None
                    if number % 2:
                        rooms = {n: lab.room(n, each) for n, each in expected.items()}
                    placed = late_feeds(lab, feeds, stream)
                    given = lab.run(placed, rooms, stream)
                    found = fetch(lab, given, stream)
                    wait_for_all(stream)
                what = "inputs that were filled by earlier work of the stream"
                hold_against(trial, found, expected, said.QUEUED, what, case)


@check("time", share=1.2)
def late_operators(trial: Trial) -> None:
    """Each operator that the EP takes reads what its stream has made of its inputs when
    it comes to it, and not what they held when the run was queued."""

    def ask(lab: Laboratory, feeds: Mapping[str, Array], case: Case, node: str) -> None:
        there = lab.put(feeds)  # at once, so kept until the work is done
        with settled(lab) as stream:
            given = lab.run(there, None, stream)
        expected = {name: lab.get(name, array) for name, array in given.items()}
        with lab.on_device.stream() as stream:
            placed = late_feeds(lab, feeds, stream)
            given = lab.run(placed, None, stream)
            found = fetch(lab, given, stream)
            wait_for_all(stream)
        what = "inputs that were filled by earlier work of the stream"
        hold_against(trial, found, expected, said.QUEUED, what, case, node)

    for _ in busy(trial, "operators whose inputs are late"):
        of_each_operator(trial, "its inputs are late", ask)


@check("time", share=0.4)
def let_go_early(trial: Trial) -> None:
    """Arrays may be let go when a run has returned, while its work is queued."""
    for lab, specimen, case in queued(trial, "arrays that are let go early"):
        with asking(trial, said.QUEUED, case):
            bench = lab.on_device
            for number in range(5):
                trial.count()
                feeds = specimen.feeds(trial.numbers(number))
                expected = specimen.expected(feeds)
                with bench.stream() as stream:
                    bench.burden(stream)
                    placed = lab.put(feeds, stream)
                    lab.run(placed, None, stream)  # whose results nobody wants
                    given = lab.run(placed, None, stream)
                    shapes = [tuple(array.shape) for array in placed.values()]
                    del placed
                    others = [
                        bench.put(poison(shape, specimen.dtype), stream)
                        for shape in shapes * 3
                    ]
                    found = fetch(lab, given, stream)
                    wait_for_all(stream)
                    del others
                what = "inputs were let go when the run had returned"
                hold_against(trial, found, expected, said.HANDED_OUT, what, case)


@check("time", share=0.4)
def read_elsewhere(trial: Trial) -> None:
    """What a run leaves is read by another stream, or the host, after an event."""
    for lab, specimen, case in queued(trial, "results that another stream reads"):
        with asking(trial, said.QUEUED, case):
            for number in range(6):
                trial.count()
                feeds = specimen.feeds(trial.numbers(number))
                expected = specimen.expected(feeds)
                with lab.on_device.streams(2) as (first, second):
                    placed = late_feeds(lab, feeds, first)
                    given = lab.run(placed, None, first)
                    event = record(first)
                    if number % 2:
                        let_wait(second, event)
                        found = fetch(lab, given, second)
                        wait_for_all(second)
                        sentence, what = said.WAIT, "read by a stream that waited"
                    else:
                        wait_for(event)
                        found = {
                            name: lab.get(name, each) for name, each in given.items()
                        }
                        sentence, what = (
                            said.RECORD,
                            "read when an event was waited for",
                        )
                hold_against(trial, found, expected, sentence, what, case)


@check("time", share=0.5)
def overlapping_runs(trial: Trial) -> None:
    """Runs that overlap, on one stream or as many as allowed, share nothing."""
    for lab, specimen, case in queued(trial, "runs that overlap"):
        with asking(trial, said.QUEUED, case):
            limit = lab.compiled.max_concurrent_runs
            for number in range(4):
                trial.count()
                several_streams = number % 2 == 1
                rounds = [
                    specimen.feeds(trial.numbers(number, each)) for each in range(4)
                ]
                with lab.on_device.streams(4 if several_streams else 1) as streams:
                    found: list[dict[str, Array]] = []
                    events: list[ep.Event] = []
                    kept = []
                    for position, feeds in enumerate(rounds):
                        stream = streams[position % len(streams)]
                        if several_streams and limit is not None and position >= limit:
                            let_wait(stream, events[position - limit])
                        # made for no stream, so kept until the work is done
                        kept.append(late_feeds(lab, feeds, stream))
                        given = lab.run(kept[-1], None, stream)
                        events.append(record(stream))
                        found.append(fetch(lab, given, stream))
                    for stream in reversed(streams):
                        wait_for_all(stream)
                what = f"runs queued on {len(streams)} stream(s)"
                for feeds, each in zip(rounds, found, strict=True):
                    expected = specimen.expected(feeds)
                    hold_against(trial, each, expected, said.OWN_OF_RUNS, what, case)


@check("time", share=0.8)
def storm(trial: Trial) -> None:
    """Threads that run one session at once each get what is theirs."""
    for specimen in chosen(trial, single, large, of_any_size):
        case = specimen.case(
            specimen.feeds(trial.numbers(specimen.name)), "six threads run it"
        )
        if not trial.attempt(case):
            continue
        with (
            asking(trial, said.CONCURRENT, case),
            trial.subject.session(specimen.model, checked=False) as session,
        ):
            _storm(trial, session, specimen, case)


def _storm(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    case: Case,
) -> None:
    rounds = []
    for number in range(12):
        shapes = dict(specimen.shapes)
        if specimen.name.endswith("any size"):
            shapes = {name: (1 + number, *s[1:]) for name, s in shapes.items()}
        feeds = specimen.feeds(trial.numbers("storm", number), shapes)
        rounds.append((feeds, list(specimen.expected(feeds).values())))
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(30):
            if not trial.has_time:
                return
            feeds, expected = rounds[(turn * 5 + number) % len(rounds)]
            found = session.run(None, feeds)
            for array, right in zip(found, expected, strict=True):
                if not agrees(array, right):
                    wrong.append(differs(array, right))

    for error in in_threads(6, work):
        trial.find(
            said.broken_by(error, said.CONCURRENT), f"raised {error!r}", case=case
        )
    trial.count(6)
    if wrong:
        trial.find(
            said.CONCURRENT,
            f"{len(wrong)} of {6 * 30} runs are wrong: {wrong[0]}",
            case=case,
            kind="wrong",
        )


@check("time", share=0.4)
def first_runs(trial: Trial) -> None:
    """Threads that are the first to run a session, at once, each get what is theirs."""
    for specimen in chosen(trial, several, of_any_size):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        expected = list(specimen.expected(feeds).values())
        case = specimen.case(feeds, "six threads are the first to run it")
        if not trial.attempt(case):
            continue
        for _ in trial.in_time(range(6 if trial.quick else 30)):
            trial.count()
            with (
                asking(trial, said.CONCURRENT, case),
                trial.subject.session(specimen.model, checked=False) as session,
                taking_turns(),
            ):
                _run_first(trial, session, feeds, expected, case)


def _run_first(
    trial: Trial,
    session: onnxplug.InferenceSession,
    feeds: Mapping[str, Array],
    expected: Sequence[Array],
    case: Case,
) -> None:
    def work(number: int) -> None:
        found = session.run(None, dict(feeds))
        for array, right in zip(found, expected, strict=True):
            if not agrees(array, right):
                text = f"of threads that run it first, one has {differs(array, right)}"
                trial.find(said.CONCURRENT, text, case=case, kind="first")

    for error in in_threads(6, work):
        text = f"of threads that run it first, one raised {error!r}"[:400]
        trial.find(said.CONCURRENT, text, case=case, kind="first raised")


@check("time", share=0.6)
def many_sessions(trial: Trial) -> None:
    """Threads make sessions, run and close them while others do, too."""
    for specimen in chosen(trial, several):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "four threads make sessions of it")
        if not trial.attempt(case):
            continue
        expected = list(specimen.expected(feeds).values())
        wrong: list[str] = []

        def work(
            number: int,
            specimen: Specimen = specimen,
            feeds: dict[str, Array] = feeds,
            expected: list[Array] = expected,
            wrong: list[str] = wrong,
        ) -> None:
            for _ in range(4):
                if not trial.has_time:
                    return
                found = trial.subject.run(specimen.model, feeds, checked=False)
                for array, right in zip(found, expected, strict=True):
                    if not agrees(array, right):
                        wrong.append(differs(array, right))

        for error in in_threads(4, work):
            trial.find(said.broken_by(error, said.ANY_THREAD), f"{error!r}", case=case)
        trial.count(4)
        for what in wrong[:1]:
            trial.find(said.ANY_THREAD, what, case=case)


def space_of(trial: Trial, specimen: Specimen) -> ep.MemoryLocation:
    """Where the EP leaves outputs."""
    with (
        listening(trial.subject) as talk,
        trial.subject.session(specimen.model, checked=False),
    ):
        return talk.providers[-1].location


def on_device(array: Array, location: ep.MemoryLocation) -> onnxplug.OrtValue:
    """A value at *location*."""
    return onnxplug.OrtValue.ortvalue_from_numpy(
        array, location.space, location.ordinal
    )


@check("time", share=0.6)
def chains(trial: Trial) -> None:
    """Sessions that read what others leave queued are right, and values that outlive
    them, too."""
    for specimen in chosen(trial, single, large):
        location = space_of(trial, specimen)
        if location == ep.HOST:
            trial.leave_out("the EP works in the host's memory: nothing is queued")
            continue
        for turn in range(3):
            feeds = specimen.feeds(trial.numbers(specimen.name, turn))
            case = specimen.case(feeds, "four sessions in a row, on busy streams")
            if not trial.attempt(case):
                continue
            with (
                asking(trial, said.WAIT, case),
                laden(trial.subject, trial.draw(turn)),
            ):
                _chain(trial, specimen, feeds, location, case)


def _chain(
    trial: Trial,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    location: ep.MemoryLocation,
    case: Case,
) -> None:
    fed = {name: on_device(array, location) for name, array in feeds.items()}
    expected: dict[str, Array] = {}
    numbers: dict[str, Array] = dict(feeds)
    kept: list[tuple[list[onnxplug.OrtValue], dict[str, Array]]] = []
    for _ in range(4):
        with trial.subject.session(specimen.model, checked=False) as session:
            binding = session.io_binding()
            for name, value in fed.items():
                binding.bind_ortvalue_input(name, value)
            for name in specimen.outputs:
                binding.bind_output(name, location.space, location.ordinal)
            session.run_with_iobinding(binding)
            left = binding.get_outputs()
            del binding
        expected = specimen.expected(numbers)
        kept.append((left, expected))
        fed = {**fed, "x": left[0]}
        numbers = {**numbers, "x": expected[specimen.outputs[0]]}
        if float(np.abs(numbers["x"].astype(np.float64)).max(initial=0)) > 1e4:
            break
    gc.collect()
    for values, right in reversed(kept):
        found = {
            name: value.numpy()
            for name, value in zip(specimen.outputs, values, strict=True)
        }
        what = "values that sessions left queued, read when they were closed"
        hold_against(trial, found, right, said.GIVEN_AWAY, what, case)


@check("time", share=0.5)
def busy_sessions(trial: Trial) -> None:
    """Runs of a session on bound values are right while its streams are busy."""
    for specimen in chosen(trial, single, large):
        location = space_of(trial, specimen)
        if location == ep.HOST:
            trial.leave_out("the EP works in the host's memory: nothing is queued")
            continue
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "bound runs on busy streams")
        if not trial.attempt(case):
            continue
        with (
            asking(trial, said.RECORD, case),
            laden(trial.subject, trial.draw(specimen.name)) as load,
            trial.subject.session(specimen.model, checked=False) as session,
        ):
            _bound_runs(trial, session, specimen, location, case)
            _host_runs(trial, session, specimen, case)
            if not load.runs:
                trial.leave_out("no stream could be kept busy")


def _bound_runs(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    location: ep.MemoryLocation,
    case: Case,
) -> None:
    """Values are replaced in place as soon as a run has returned."""
    binding = session.io_binding()
    feeds = specimen.feeds(trial.numbers("bound", 0))
    values = {name: on_device(array, location) for name, array in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    kept = []
    for number in range(5):
        trial.count()
        feeds = specimen.feeds(trial.numbers("bound", number))
        for name, array in feeds.items():
            values[name].update_inplace(array)
        for name in specimen.outputs:
            binding.bind_output(name, location.space, location.ordinal)
        session.run_with_iobinding(binding)
        kept.append((binding.get_outputs(), specimen.expected(feeds)))
    for left, expected in kept:
        found = {
            name: value.numpy()
            for name, value in zip(specimen.outputs, left, strict=True)
        }
        what = "inputs that were updated when the run had returned"
        hold_against(trial, found, expected, said.RECORD, what, case)


def _host_runs(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    case: Case,
) -> None:
    for number in range(4):
        trial.count()
        feeds = specimen.feeds(trial.numbers("host", number))
        found = dict(zip(specimen.outputs, session.run(None, feeds), strict=True))
        expected = specimen.expected(feeds)
        what = "a run on busy streams"
        hold_against(trial, found, expected, said.SYNCHRONIZE, what, case)


@check("time", share=0.3)
def streams_of_users(trial: Trial) -> None:
    """A session that works on a stream of the user's leaves it open."""
    if "user_compute_stream" not in trial.subject.factory.options:
        trial.leave_out("the EP has no option user_compute_stream")
        return
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a stream of the user's")
        if not trial.attempt(case):
            continue
        with (
            asking(trial, said.ADOPTED_CLOSE, case),
            laboratory(trial.subject, specimen) as lab,
            lab.on_device.stream() as stream,
        ):
            options = {"user_compute_stream": str(stream.native_handle)}
            for _ in range(2):
                trial.count()
                with trial.subject.session(
                    specimen.model, options=options, checked=False
                ) as session:
                    found = dict(
                        zip(specimen.outputs, session.run(None, feeds), strict=True)
                    )
                expected = specimen.expected(feeds)
                what = "a run on a stream of the user's"
                hold_against(trial, found, expected, said.ADOPT, what, case)
                source = feeds["x"]
                back = np.zeros_like(source)
                lab.on_device.copy(lab.on_device.put(source, stream), back, stream)
                wait_for_all(stream)
                if back.tobytes() != source.tobytes():
                    trial.find(
                        said.ADOPTED_CLOSE, "it does nothing any more", case=case
                    )
