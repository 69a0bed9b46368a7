"""Whether captured work does, whenever it is launched, what was noted."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_memory import same
from onnxplug_testing.conformance.laboratory import (
    Array,
    Bench,
    asking,
    in_use,
    laboratory,
    poison,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import compare
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    chosen,
    differs,
    several,
    single,
)
from onnxplug_testing.conformance.trial import Trial

WARM_UP: Final = Sentence(
    "CapturePhase.WARM_UP",
    "An ordinary run, the first on these arrays: what is made once is made now.",
)
CLOSED: Final = Sentence("CapturedGraph.close", "Release the work and its memory")

NONE: Final = "the EP captures no runs"

_BYSTANDERS: Final = 24
"""Arrays of each shape that are made beside a captured graph: more than there are
blocks of memory that are free already, so that some get what the graph let go."""

_CAPTURED: Final = 3
"""After so many runs of a session they are captured, wherever they are."""


def option_of(trial: Trial) -> dict[str, Any] | None:
    """The option by which the EP is asked to capture, as users of others know it."""
    for name, option in trial.subject.factory.options.items():
        wanted = "capture" in name or name in ("enable_cuda_graph", "use_cuda_graph")
        if wanted and type(option.default) is bool and not option.refused:
            return {name: True}
    return None


@check("time", share=0.4)
def captured(trial: Trial) -> None:
    """Runs that are captured and replayed read what their inputs hold then."""
    options = option_of(trial)
    if options is None:
        trial.leave_out(f"{NONE}: no option of its asks for that")
        return
    for specimen in chosen(trial, single, several):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a run that is captured and replayed")
        if not trial.attempt(case):
            continue
        with asking(trial, said.CAPTURED_MEMORY, case):
            try:
                session = trial.subject.session(
                    specimen.model, options=options, checked=False
                )
            except (ep.SessionRefused, ep.OptionError) as error:
                trial.leave_out(f"{NONE}: {error}"[:200])
                continue
            with session, laboratory(trial.subject, specimen) as lab:
                _replay(trial, session, specimen, lab.on_device, case)


class Bystanders:
    """Arrays that are there while a captured graph is, and are none of its business."""

    def __init__(self, bench: Bench, like: Iterable[Array]) -> None:
        self._bench = bench
        self._pairs = [
            (bench.put(content), content)
            for array in like
            for content in (np.full_like(array, 3),) * _BYSTANDERS
        ]

    def look(self, trial: Trial, case: Case, what: str) -> None:
        """Find those that have other content than they were given."""
        changed = sum(
            not same(self._bench.get(array), content) for array, content in self._pairs
        )
        if changed:
            trial.find(
                said.OF_THE_GRAPH,
                f"{what} wrote to {changed} of {len(self._pairs)} arrays that were "
                "made when the graph had been captured",
                case=case,
                kind="bystanders",
            )


def _replay(
    trial: Trial,
    session: onnxplug.InferenceSession,
    specimen: Specimen,
    bench: Bench,
    case: Case,
) -> None:
    space, ordinal = bench.location.space, bench.location.ordinal

    def value(array: Array) -> onnxplug.OrtValue:
        return onnxplug.OrtValue.ortvalue_from_numpy(array, space, ordinal)

    first = specimen.feeds(trial.numbers("captured"))
    right = specimen.expected(first)
    binding = session.io_binding()
    values = {name: value(array) for name, array in first.items()}
    rooms = {
        name: value(poison(array.shape, specimen.dtype))
        for name, array in right.items()
    }
    for name, each in values.items():
        binding.bind_ortvalue_input(name, each)
    for name, each in rooms.items():
        binding.bind_ortvalue_output(name, each)
    others: Bystanders | None = None
    for number in range(7):
        trial.count()
        if number == _CAPTURED:
            others = Bystanders(bench, right.values())
        feeds = specimen.feeds(trial.numbers("captured", number))
        for name, array in feeds.items():
            values[name].update_inplace(array)
        session.run_with_iobinding(binding)
        # what is made in between must not get the memory of what was captured
        waste = [
            bench.put(poison(array.shape, specimen.dtype))
            for array in right.values()
            for _ in range(4)
        ]
        del waste
        gc.collect()
        expected = specimen.expected(feeds)
        for name, room in rooms.items():
            found = room.numpy()
            if not agrees(found, expected[name]):
                trial.find(
                    said.CAPTURED_MEMORY,
                    f"run {number + 1}: {name!r}: {differs(found, expected[name])}",
                    case=case,
                    kind=f"{number > 1} {name}",
                )
        if others is not None:
            others.look(trial, case, "runs that were replayed")


@check("time", share=0.3)
def noted(trial: Trial) -> None:
    """What is captured is not done before it is launched, and then each time."""
    options = option_of(trial)
    if options is None:
        trial.leave_out(f"{NONE}: no option of its asks for that")
        return
    for specimen in chosen(trial, single, several):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a run that is noted by hand")
        if not trial.attempt(case):
            continue
        with asking(trial, said.CAPTURE, case):
            try:
                trial.subject.session(
                    specimen.model, options=options, checked=False
                ).close()
            except (ep.SessionRefused, ep.OptionError) as error:
                trial.leave_out(f"{NONE}: {error}"[:200])
                continue
            with laboratory(trial.subject, specimen, options=options) as lab:
                capture = lab.provider.capture
                if capture is None:
                    trial.leave_out(f"{NONE}: ExecutionProvider.capture is None")
                else:
                    _note(trial, lab, capture, specimen, feeds, case)


def _spoil(
    bench: Bench,
    specimen: Specimen,
    rooms: Mapping[str, Any],
    like: Mapping[str, Array],
) -> None:
    """Fill *rooms* with what no run gives."""
    for name, array in like.items():
        bench.copy(poison(array.shape, specimen.dtype), rooms[name], None)


def _capture_again(
    trial: Trial,
    lab: Any,
    capture: ep.GraphCapture,
    specimen: Specimen,
    placed: Mapping[str, Any],
    before: Mapping[str, Any],
    stream: ep.Stream,
    case: Case,
) -> None:
    """What is captured later on a stream has nothing of what was captured *before*."""
    bench: Bench = lab.on_device
    feeds = specimen.feeds(trial.numbers("captured again"))
    expected = specimen.expected(feeds)
    rooms = {name: lab.room(name, array) for name, array in expected.items()}
    for name, array in feeds.items():
        bench.copy(array, placed[name], None)
    _spoil(bench, specimen, before, expected)
    trial.count()
    capture.begin(stream)
    lab.run(placed, rooms, stream, capture=ep.CapturePhase.CAPTURE)
    graph = capture.end(stream)
    graph.launch(stream)
    wait_for_all(stream)
    compare(trial, lab, rooms, expected, case, said.CAPTURE, "captured again,")
    for name, array in expected.items():
        if agrees(lab.get(name, before[name]), array):
            text = "what is captured later does what was captured before, too"
            trial.find(said.CAPTURE, text, case=case, kind="again")
    graph.close()


def _note(
    trial: Trial,
    lab: Any,
    capture: ep.GraphCapture,
    specimen: Specimen,
    feeds: Mapping[str, Array],
    case: Case,
) -> None:
    bench: Bench = lab.on_device
    expected = specimen.expected(feeds)
    placed = lab.put(feeds)
    rooms = {name: lab.room(name, array) for name, array in expected.items()}
    with bench.streams(2) as (stream, other):
        lab.run(placed, rooms, stream, capture=ep.CapturePhase.WARM_UP)
        bench.burden(stream)  # which keeps arrays of its own from now on
        wait_for_all(stream)
        what = "in a warm-up"
        compare(trial, lab, rooms, expected, case, WARM_UP, what)
        _spoil(bench, specimen, rooms, expected)
        aside = np.zeros_like(feeds["x"])
        there = bench.put(aside)
        before = in_use(bench)
        capture.begin(stream)
        lab.run(placed, rooms, stream, capture=ep.CapturePhase.CAPTURE)
        # of what nobody captures
        bench.copy(feeds["x"], there, other)
        bench.copy(there, aside, other)
        graph = capture.end(stream)
        wait_for_all(other)
        if not same(aside, feeds["x"]):
            text = "while a stream captured, work of another one was not done"
            trial.find(said.CAPTURE_NOTES, text, case=case, kind="other")
        others = Bystanders(bench, expected.values())
        trial.count()
        for name, room in rooms.items():
            if agrees(lab.get(name, room), expected[name]):
                trial.find(
                    said.CAPTURE_NOTES, "the work was done while noted", case=case
                )
        # the last but one is late if it is queued where it was captured
        launches = (stream, stream), (other, other), (other, stream), (stream, stream)
        for number, (on, busy) in enumerate(launches):
            trial.count()
            fresh = specimen.feeds(trial.numbers("noted", number))
            for name, array in fresh.items():
                bench.copy(array, placed[name], None)
            bench.burden(busy)
            graph.launch(on)
            back = {name: np.zeros_like(array) for name, array in expected.items()}
            for name, room in rooms.items():
                bench.copy(room, back[name], on)
            wait_for_all(on)
            for name, array in specimen.expected(fresh).items():
                if not agrees(back[name], array):
                    trial.find(
                        said.LAUNCH,
                        f"launch {number + 1}: {name!r}: {differs(back[name], array)}",
                        case=case,
                        kind=name,
                    )
        others.look(trial, case, "launches")
        _capture_again(trial, lab, capture, specimen, placed, rooms, stream, case)
        graph.close()
        del others
        after = in_use(bench)
        if before is not None and after is not None and after > before:
            text = f"{after - before} bytes are in use when the graph was closed"
            trial.find(CLOSED, text, case=case, kind="kept")
        source = feeds["x"]
        if not same(bench.get(bench.put(source)), source):
            trial.find(said.LAUNCH, "copies are wrong when it was closed", case=case)
