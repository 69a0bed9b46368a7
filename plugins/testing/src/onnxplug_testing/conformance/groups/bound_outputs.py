"""Whether outputs that the caller bound are filled, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.laboratory import (
    Array,
    Breach,
    Laboratory,
    asking,
    wait_for_all,
)
from onnxplug_testing.conformance.partitions import ALL, compare, examined, settled
from onnxplug_testing.conformance.specimens import (
    agrees,
    chosen,
    differs,
)
from onnxplug_testing.conformance.trial import Trial


@check("memory", share=0.6)
def bound(trial: Trial) -> None:
    """Arrays that are bound to outputs are filled and returned, all or some of them."""
    for lab, specimen, case in examined(trial, "outputs are bound"):
        with asking(trial, said.RESULTS, case):
            names = specimen.outputs
            for number, some in enumerate(
                itertools.chain.from_iterable(
                    itertools.combinations(names, count)
                    for count in range(1, len(names) + 1)
                )
            ):
                trial.count()
                feeds = specimen.feeds(trial.numbers("bound", number))
                expected = specimen.expected(feeds)
                with settled(lab) as stream:
                    rooms = {
                        name: lab.room(name, expected[name], stream) for name in some
                    }
                    given = lab.run(lab.put(feeds, stream), rooms, stream)
                what = f"with {', '.join(some)} bound"
                for name, room in rooms.items():
                    if given[name] is not room:
                        trial.find(
                            said.BOUND, f"{what}: returned another array", case=case
                        )
                compare(trial, lab, given, expected, case, said.BOUND, what)
                compare(trial, lab, rooms, expected, case, said.BOUND, what)


@check("memory", share=0.4)
def bound_wrongly(trial: Trial) -> None:
    """An array that does not fit an output is refused before anything is written."""
    for lab, specimen, case in examined(trial, "an array that does not fit is bound"):
        with asking(trial, said.RESULTS, case):
            feeds = specimen.feeds(trial.numbers("wrong"))
            expected = specimen.expected(feeds)
            for name in specimen.outputs:
                for what, like in _misfits(expected[name]):
                    trial.count()
                    _bind_wrongly(trial, lab, feeds, expected, name, like, what, case)


def _misfits(right: Array) -> Iterator[tuple[str, Array]]:
    yield "a larger array", np.concatenate([right, right])
    yield "a smaller array", right[1:]
    yield "an array of another rank", right.reshape(-1)
    other = np.int32 if right.dtype.kind == "f" else np.float32
    yield "an array of another element type", right.astype(other)


def _bind_wrongly(
    trial: Trial,
    lab: Laboratory,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    wrong: str,
    like: Array,
    what: str,
    case: Case,
) -> None:
    with lab.stream() as stream:
        try:
            rooms = {
                name: lab.room(name, like if name == wrong else array, stream)
                for name, array in expected.items()
            }
        except Breach:
            trial.leave_out(f"the device makes no arrays of {like.dtype}")
            return
        placed = lab.put(feeds, stream)
        if stream is not None:
            wait_for_all(stream)
        before = {name: lab.get(name, room).tobytes() for name, room in rooms.items()}
        try:
            lab.run(placed, rooms, stream)
        except ep.OutputMismatch:
            pass
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            trial.find(
                said.MISMATCH, f"{what} for {wrong!r}: raised {error!r}", case=case,
                kind=f"raised {type(error)}",
            )  # fmt: skip
        else:
            trial.find(said.MISMATCH, f"{what} was accepted for {wrong!r}", case=case)
        if stream is not None:
            wait_for_all(stream)
    for name, room in rooms.items():
        if lab.get(name, room).tobytes() != before[name]:
            trial.find(
                said.MISMATCH,
                f"{what} was bound to {wrong!r}, and {name!r} was written",
                case=case,
            )


@check("memory", share=0.3)
def in_place(trial: Trial) -> None:
    """What says that it fills outputs in place of inputs does so."""
    for lab, specimen, case in examined(trial, "an output in place of an input"):
        with asking(trial, said.RESULTS, case):
            if not lab.compiled.in_place:
                trial.leave_out("the partition leaves it to the host")
                continue
            for name, output in itertools.product(specimen.shapes, specimen.outputs):
                feeds = specimen.feeds(trial.numbers("in place", name, output))
                expected = specimen.expected(feeds)
                if expected[output].shape != feeds[name].shape:
                    continue
                trial.count()
                with settled(lab) as stream:
                    placed = lab.put(
                        {key: array.copy() for key, array in feeds.items()}, stream
                    )
                    given = lab.run(placed, {output: placed[name]}, stream)
                what = f"with {output!r} in place of {name!r}"
                compare(trial, lab, given, expected, case, said.IN_PLACE, what)


@check("memory", share=0.4)
def bindings(trial: Trial) -> None:
    """Sessions are right however their values are bound, and what is bound overlaps."""
    for specimen in chosen(trial, *ALL):
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "values bound on the host, overlapping")
        if not trial.attempt(case):
            continue
        expected = specimen.expected(feeds)
        with (
            asking(trial, said.BOUND, case),
            trial.subject.session(specimen.model) as session,
        ):
            for name, output in itertools.product(feeds, expected):
                if feeds[name].shape != expected[output].shape:
                    continue
                trial.count()
                _bind_over(trial, session, feeds, expected, name, output, case)


def _bind_over(
    trial: Trial,
    session: onnxplug.InferenceSession,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    name: str,
    output: str,
    case: Case,
) -> None:
    """Bind *output* where *name* is, and then a row further."""
    for shift in (0, 1):
        rows, *rest = feeds[name].shape
        room = np.zeros((rows + shift, *rest), feeds[name].dtype)
        source, target = room[:rows], room[shift:]
        source[...] = feeds[name]
        binding = session.io_binding()
        for key, array in feeds.items():
            binding.bind_cpu_input(key, source if key == name else array)
        for key in expected:
            if key != output:
                binding.bind_output(key)
                continue
            value = onnxplug.OrtValue.ortvalue_from_numpy(target)
            binding.bind_ortvalue_output(key, value)
        session.run_with_iobinding(binding)
        found = dict(zip(expected, binding.copy_outputs_to_cpu(), strict=True))
        for key, array in found.items():
            if not agrees(array, expected[key]):
                trial.find(
                    said.BOUND,
                    f"{output!r} bound {shift} rows behind {name!r}: {key!r}: "
                    f"{differs(array, expected[key])}",
                    case=case,
                    kind=f"shift {shift}",
                )
