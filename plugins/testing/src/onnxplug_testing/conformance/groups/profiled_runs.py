"""Whether runs that are profiled by hand compute what others do, and tell of
themselves alone."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.captures import option_of
from onnxplug_testing.conformance.groups.device_streams import in_threads, taking_turns
from onnxplug_testing.conformance.groups.recorders import (
    BEGAN,
    LOOKED_FOR,
    NODE,
    OF_A_RUN,
    UNTIL,
    Event,
    Recorder,
)
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    RunNow,
    asking,
    is_done,
    laboratory,
    record,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import compare, examined
from onnxplug_testing.conformance.specimens import Specimen, agrees, chosen, single
from onnxplug_testing.conformance.trial import Trial, in_words

_CLOCK: Final = 1_000_000
"""ns by which events may be outside of what was seen."""

_PATIENCE: Final = 60_000_000
"""ns for which a stream is looked at; a device need not do anything before somebody
waits."""


@check("profiling", share=0.2)
def records(trial: Trial) -> None:
    """What is recorded is well formed, has details that JSON can hold, and comes before
    the run ends, or when the host asks for it; runs that are profiled compute what
    others do, and tell of themselves alone."""
    for lab, specimen, case in examined(trial, "runs that are recorded"):
        with asking(trial, UNTIL, case):
            made, first, second = (
                _profiled(trial, lab, specimen, case, number) for number in range(3)
            )
            if not made.events:
                trial.take_back("the EP records nothing of its own")
                continue
            _look_at_operators(trial, lab, first, case)
            for pair in ((made, first), (first, second)):
                _tell_apart(trial, pair, case)
            _look_at_rows(trial, lab, specimen, case)
            _in_threads(trial, lab, specimen, case, len(_of_nodes(first)))
            _without(trial, lab, specimen, (made, first, second), case)
            _cancelled(trial, lab, specimen, case)


def _context(
    lab: Laboratory, stream: ep.Stream | None, recorder: Recorder | None
) -> RunNow:
    context = RunNow(stream, lab.run_options)
    context.profiler = recorder
    return context


def _profiled(
    trial: Trial, lab: Laboratory, specimen: Specimen, case: Case, number: int
) -> Recorder:
    """What is recorded of a run whose stream is late, and whose results are right."""
    feeds = specimen.feeds(trial.numbers(specimen.name, number))
    trial.count()
    with lab.stream() as stream:
        recorder = Recorder(stream)
        placed = lab.put(feeds, stream)
        behind = None
        if stream is not None:
            lab.on_device.burden(stream)
            behind = record(stream)
        before = time.perf_counter_ns()
        given = lab.run(placed, None, stream, context=_context(lab, stream, recorder))
        recorder.has_ended = True
        reached = _not_before(behind)
        if stream is not None:
            wait_for_all(stream)
        recorder.tell()
        after = time.perf_counter_ns()
        what = "in a run that is profiled"
        compare(trial, lab, given, specimen.expected(feeds), case, what=what)
    for event in recorder.events:
        wrong = event.wrong
        if wrong is not None:
            trial.find(*wrong, case=case, kind=f"form {wrong[0].says[:20]}")
            continue
        begins = max(before, reached) if event.category == "Node" else before
        _look_at_times(trial, event, begins, after, case)
    for name in recorder.late:
        text = (
            f"{name!r} was recorded after the run, while its work was queued, and not "
            "by what when_done calls"
        )
        trial.find(UNTIL, text, case=case, kind="late")
    return recorder


def _not_before(behind: ep.Event | None) -> int:
    """Until when the stream surely had not come to what is queued after *behind*, in
    ns; 0 if it may have all the time."""
    seen, end = 0, time.perf_counter_ns() + _PATIENCE
    while behind is not None and time.perf_counter_ns() < end:
        asked = time.perf_counter_ns()
        if is_done(behind):
            break
        seen = asked
        time.sleep(0.0005)
    return seen


def _look_at_times(
    trial: Trial, event: Event, begins: int, ends: int, case: Case
) -> None:
    early = begins - event.start_ns
    if early > _CLOCK:
        text = f"{event.name!r} began {early} ns before the stream came to its work"
        trial.find(BEGAN, text, case=case, kind="early")
    late = event.start_ns + event.duration_ns - ends
    if late > _CLOCK:
        text = f"{event.name!r} ended {late} ns after all was done"
        trial.find(BEGAN, text, case=case, kind="ended late")


def _look_at_operators(
    trial: Trial, lab: Laboratory, recorder: Recorder, case: Case
) -> None:
    """Whether events of the nodes are of these, in their order, and of their tiers."""
    events = [each for each in recorder.events if each.operator is not None]
    found = [
        str(each.operator) for each in sorted(events, key=lambda each: each.start_ns)
    ]
    nodes = onnx.load_model_from_string(case.model).graph.node
    expected = [node.op_type for node in nodes]
    # of a row of nodes, each reading what the one before gave, there is one order
    in_a_row = all(
        one.output[0] in other.input for one, other in itertools.pairwise(nodes)
    )
    is_wrong = Counter(found) != Counter(expected)
    # what is no word may be of several at once
    if not all(map(str.isidentifier, found)):
        found = []
    if len(found) == len(expected) and (is_wrong or (in_a_row and found != expected)):
        text = f"nodes are {', '.join(expected)}; recorded are {', '.join(found)}"
        trial.find(LOOKED_FOR, text, case=case, kind="operators")
    report = lab.compiled.report
    tiers = set() if report is None else set(report.tiers.values())
    for event in events:
        tier = event.details.get("tier")
        if tiers and tier is not None and tier not in tiers:
            text = f"{event.name!r} has the tier {tier!r}; the report has {tiers}"
            trial.find(LOOKED_FOR, text, case=case, kind="tier")


def _of_nodes(recorder: Recorder) -> list[Event]:
    return [
        each
        for each in recorder.events
        if each.category == "Node" and type(each.start_ns) is int
    ]


def _tell_apart(trial: Trial, recorders: Sequence[Recorder], case: Case) -> None:
    """Find events of a run that are recorded, or told, of another one."""
    first, second = map(_of_nodes, recorders)
    if len(first) != len(second):
        counts = f"{len(first)} events of nodes, then {len(second)}"
        text = f"two runs of one partition have {counts}"
        trial.find(OF_A_RUN, text, case=case, kind="counts")
    elif first and max(each.start_ns for each in first) > min(
        each.start_ns for each in second
    ):
        text = "events of a run began when the one that was queued behind it had begun"
        trial.find(BEGAN, text, case=case, kind="of another")


def _look_at_rows(
    trial: Trial, lab: Laboratory, specimen: Specimen, case: Case
) -> None:
    """Two runs are queued before anybody is told of the first."""
    if lab.bench is None:
        return
    feeds = specimen.feeds(trial.numbers("rows"))
    with lab.stream() as stream:
        if stream is None:
            return
        placed = lab.put(feeds, stream)
        lab.on_device.burden(stream)
        recorders = [Recorder(stream), Recorder(stream)]
        kept = []
        for each in recorders:
            trial.count()
            context = _context(lab, stream, each)
            kept.append(lab.run(placed, None, stream, context=context))
        wait_for_all(stream)
        del kept
    for each in recorders:
        each.tell()
    _tell_apart(trial, recorders, case)


def _in_threads(
    trial: Trial, lab: Laboratory, specimen: Specimen, case: Case, count: int
) -> None:
    """Threads profile runs at once, and each is told of its own."""
    limit = lab.compiled.max_concurrent_runs
    if limit is not None and limit < 2:
        return
    counts: list[int] = []
    feeds = specimen.feeds(trial.numbers("threads"))

    def work(_: int) -> None:
        for _turn in range(4 if trial.quick else 12):
            with lab.stream() as stream:
                recorder = Recorder(stream)
                placed = lab.put(feeds, stream)
                context = _context(lab, stream, recorder)
                kept = lab.run(placed, None, stream, context=context)
                if stream is not None:
                    wait_for_all(stream)
                del kept
                recorder.tell()
            counts.append(len(_of_nodes(recorder)))

    trial.count(2)
    with taking_turns():
        failed = in_threads(2, work)
    for error in failed:
        ep.raise_interruption(error)
        text = f"of threads that profile runs at once, one {in_words(error)}"
        trial.find(OF_A_RUN, text, case=case, kind="threads raised")
    wrong = [each for each in counts if each != count]
    if wrong:
        text = f"of threads that profile runs at once, one has {wrong[0]} events of"
        trial.find(OF_A_RUN, f"{text} nodes, alone {count}", case=case, kind="threads")


def _without(
    trial: Trial,
    lab: Laboratory,
    specimen: Specimen,
    recorders: Sequence[Recorder],
    case: Case,
) -> None:
    """A run that is not profiled records nothing, also not in those before."""
    feeds = specimen.feeds(trial.numbers("without"))
    trial.count()
    with lab.stream() as stream:
        placed = lab.put(feeds, stream)
        given = lab.run(placed, None, stream, context=_context(lab, stream, None))
        if stream is not None:
            wait_for_all(stream)
        expected = specimen.expected(feeds)
        compare(trial, lab, given, expected, case, what="after runs that are profiled")
    number = sum(len(each.late) for each in recorders)
    if number:
        text = f"{number} events were recorded of runs that had ended before"
        trial.find(UNTIL, text, case=case, kind="kept")


def _cancelled(trial: Trial, lab: Laboratory, specimen: Specimen, case: Case) -> None:
    """A run that is profiled is cancelled like others."""
    feeds = specimen.feeds(trial.numbers("cancelled"))
    trial.count()
    with lab.stream() as stream:
        placed = lab.put(feeds, stream)
        context = _context(lab, stream, Recorder(stream))
        context.cancelled = True
        try:
            given = lab.run(placed, None, stream, context=context)
        except ep.RunCancelled:
            return
        if stream is not None:
            wait_for_all(stream)
        what = "in a run that is profiled, and cancelled,"
        expected = specimen.expected(feeds)
        compare(trial, lab, given, expected, case, said.CANCELLED, what)


@check("profiling", share=0.1)
def captured_runs(trial: Trial) -> None:
    """Runs that are captured may be profiled."""
    options = option_of(trial)
    if options is None:
        trial.leave_out("the EP captures no runs: no option of its asks for that")
        return
    for specimen in chosen(trial, single):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "a run that is captured, and profiled")
        if not trial.attempt(case):
            continue
        with asking(trial, said.CAPTURE, case):
            try:
                entered = laboratory(trial.subject, specimen, options=options)
                with entered as lab:
                    _capture(trial, lab, feeds, case)
            except (ep.SessionRefused, ep.OptionError) as error:
                trial.take_back(f"the EP captures no runs: {error}"[:160])


def _capture(
    trial: Trial, lab: Laboratory, feeds: Mapping[str, Array], case: Case
) -> None:
    capture: Any = lab.provider.capture or lab.on_device.context.capture
    if capture is None:
        trial.take_back("the EP captures no runs: ExecutionProvider.capture is None")
        return
    expected = lab.specimen.expected(feeds)
    placed = lab.put(feeds)
    rooms = {name: lab.room(name, array) for name, array in expected.items()}
    with lab.on_device.stream() as stream:
        for phase in ep.CapturePhase:
            recorder = Recorder(stream)
            context = _context(lab, stream, recorder)
            context.capture = phase
            if phase is ep.CapturePhase.CAPTURE:
                wait_for_all(stream)
                capture.begin(stream)
            lab.run(placed, rooms, stream, context=context)
        try:
            graph = capture.end(stream)
        except Exception as error:  # noqa: BLE001 (whatever an EP raises)
            ep.raise_interruption(error)
            text = f"what is captured in a run that is profiled {in_words(error)}"
            trial.find(said.CAPTURE, text, case=case, kind="profiled")
            return
        graph.launch(stream)
        wait_for_all(stream)
        graph.close()
    for name, room in rooms.items():
        if not agrees(lab.get(name, room), expected[name]):
            text = f"{name!r} is wrong when it was captured in a run that is profiled"
            trial.find(said.LAUNCH, text, case=case, kind="wrong")
    noted = _of_nodes(recorder)
    if noted:
        text = f"{len(noted)} events of nodes are of work that was noted, and not done"
        trial.find(NODE, text, case=case, kind="noted")
