"""Whether a partition treats arrays as it is to: its inputs, its results, its weights.

Beside it :mod:`.device_memory` and :mod:`.keeping` ask of a device's memory alone,
:mod:`.bound_outputs` of what is bound, :mod:`.left_over` of what is kept, and
:mod:`.each_operator` of all operators that the EP takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnx.helper as oh

import onnxplug
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import (
    bound_outputs,
    device_memory,
    each_operator,
    keeping,
    left_over,
)
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    poison,
)
from onnxplug_testing.conformance.partitions import (
    check_places,
    check_unwritten,
    compare,
    examined,
    settled,
)
from onnxplug_testing.conformance.specimens import (
    OPSET,
    Node,
    Specimen,
    agrees,
    differs,
    make,
    of_any_size,
    passing_on,
    several,
    taken,
    takes,
    weight,
)
from onnxplug_testing.conformance.trial import Trial

__all__ = ["bound_outputs", "device_memory", "each_operator", "keeping", "left_over"]


@check("memory", share=0.6)
def results(trial: Trial) -> None:
    """Results are in the right memory, of the right element type and shape, and belong
    to the host."""
    for lab, specimen, case in examined(trial, "results of several runs are kept"):
        with asking(trial, said.RESULTS, case):
            kept: list[tuple[dict[str, Any], dict[str, Array]]] = []
            for number in range(4):
                trial.count()
                feeds = specimen.feeds(trial.numbers(specimen.name, number))
                with settled(lab) as stream:
                    given = lab.run(lab.put(feeds, stream), None, stream)
                check_places(trial, lab, given, case)
                expected = specimen.expected(feeds)
                if not compare(trial, lab, given, expected, case):
                    break
                kept.append((given, expected))
            for given, expected in kept:
                compare(
                    trial, lab, given, expected, case, said.GIVEN_AWAY,
                    "when later runs had ended",
                )  # fmt: skip
            _overwrite(trial, lab, specimen, case)


def _overwrite(trial: Trial, lab: Laboratory, specimen: Specimen, case: Case) -> None:
    """Whether the next run is right when results of the one before were written to."""
    feeds = specimen.feeds(trial.numbers("overwritten"))
    for _ in range(2):
        trial.count()
        with settled(lab) as stream:
            inputs = lab.put(feeds, stream)
            given = lab.run(inputs, None, stream)
        expected = specimen.expected(feeds)
        what = "when results of the run before were written to"
        if not compare(trial, lab, given, expected, case, said.GIVEN_AWAY, what):
            return
        for name, array in given.items():
            if not isinstance(array, np.ndarray):
                waste = lab.room(name, expected[name])
                lab.on_device.copy(waste, array, None)
            elif array.flags.writeable and not any(
                np.may_share_memory(array, each)
                for each in inputs.values()
                if isinstance(each, np.ndarray)
            ):
                array[...] = 77


@check("memory", share=0.5)
def inputs(trial: Trial) -> None:
    """Inputs are not written to, and no result shares memory with one on a device."""
    for lab, specimen, case in examined(trial, "inputs are looked at after the run"):
        with asking(trial, said.RESULTS, case):
            feeds = _with_both_signs(specimen.feeds(trial.numbers("inputs")))
            with settled(lab) as stream:
                placed = lab.put(feeds, stream)
                before = {name: np.array(array) for name, array in feeds.items()}
                given = lab.run(placed, None, stream)
            trial.count()
            check_unwritten(trial, lab, placed, before, case)
            for name, array in given.items():
                if isinstance(array, np.ndarray):
                    continue
                expected = specimen.expected(feeds)[name]
                lab.on_device.copy(lab.room(name, expected), array, None)
            check_unwritten(
                trial, lab, placed, before, case, said.VIEWS, "when results were"
            )


def _with_both_signs(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """*feeds*, each second number negative: some operators leave others alone."""
    return {
        name: np.where(np.arange(array.size).reshape(array.shape) % 2, array, -array)
        for name, array in feeds.items()
    }


@check("memory", share=0.3)
def filled_anew(trial: Trial) -> None:
    """Arrays that are filled anew and fed again are read again."""
    for lab, specimen, case in examined(trial, "arrays that are filled anew"):
        with asking(trial, said.COMPUTED, case):
            fed = specimen.feeds(trial.numbers("filled", 0))
            with settled(lab) as stream:
                placed = lab.put(fed, stream)
            for number in range(3):
                trial.count()
                feeds = specimen.feeds(trial.numbers("filled", number))
                for name, array in placed.items():
                    if isinstance(array, np.ndarray):
                        array[...] = feeds[name]
                    else:
                        lab.on_device.copy(feeds[name], array, None)
                with settled(lab) as stream:
                    given = lab.run(placed, None, stream)
                what = f"fed the same arrays again, filled anew, in run {number}"
                expected = specimen.expected(feeds)
                if not compare(trial, lab, given, expected, case, said.COMPUTED, what):
                    break


@check("memory", share=0.3)
def rows_of_weights(trial: Trial) -> None:
    """What is looked up in a weight belongs to the caller, who may write to it."""
    draw = trial.numbers("rows")
    for dtype in (np.float32, np.float16, np.float64):
        table = draw.integers(1, 9, (6, 4)).astype(dtype)
        case = _looked_up(table)
        try:
            session = trial.subject.session(case.model)
        except Exception:  # noqa: BLE001 (asked elsewhere)
            continue
        trial.attempt(case)
        with asking(trial, said.WRITTEN_TO, case), session:
            for _ in range(3):
                for row, array in zip(
                    session.run(None, dict(case.feeds)), (table[2], table[1:3]),
                    strict=True,
                ):  # fmt: skip
                    if not agrees(row, array):
                        text = "Gather gives what was written to an earlier result"
                        what = f"{text}: {differs(row, array)}"
                        trial.find(said.WRITTEN_TO, what, case=case, kind="rows")
                    row[...] = 77
        return
    trial.leave_out("the EP takes no Gather of a weight")


def _looked_up(table: Array) -> Case:
    """A row of *table*, and two of them."""
    element = oh.np_dtype_to_tensor_dtype(table.dtype)
    graph = oh.make_graph(
        [
            oh.make_node("Gather", ["w", "i"], ["row"]),
            oh.make_node("Gather", ["w", "j"], ["rows"]),
        ],
        "looked up",
        [
            oh.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            oh.make_tensor_value_info("j", onnx.TensorProto.INT64, [2]),
        ],
        [oh.make_tensor_value_info(name, element, None) for name in ("row", "rows")],
        [onnx.numpy_helper.from_array(table, "w")],
    )
    imports = [oh.make_opsetid("", OPSET)]
    model = oh.make_model(graph, opset_imports=imports, ir_version=8)
    feeds = {"i": np.array(2), "j": np.array([1, 2])}
    return Case(model.SerializeToString(), feeds, "rows of a weight")


@check("memory", share=0.4)
def views(trial: Trial) -> None:
    """Operators that may pass their input on leave it alone all the same."""
    has = taken(trial)
    if has is None:
        return
    for specimen in trial.in_time(list(passing_on(has))):
        if not takes(trial.subject, specimen):
            trial.leave_out(f"the EP does not take {specimen.name}")
            continue
        feeds = specimen.feeds(trial.numbers(specimen.name))
        case = specimen.case(feeds, "results are written to")
        if not trial.attempt(case):
            continue
        with (
            asking(trial, said.VIEWS, case),
            trial.subject.session(specimen.model) as session,
        ):
            expected = list(specimen.expected(feeds).values())
            for _ in range(2):
                fed = {name: array.copy() for name, array in feeds.items()}
                found = session.run(None, fed)
                for array, right in zip(found, expected, strict=True):
                    if not agrees(array, right):
                        trial.find(
                            said.VIEWS, differs(array, right), case=case, kind="wrong"
                        )
                    array[...] = 77
                for name, array in fed.items():
                    if array.tobytes() != feeds[name].tobytes():
                        trial.find(
                            said.VIEWS,
                            f"writing to a result wrote to {name!r}, an input",
                            case=case,
                        )


@check("memory", share=0.4)
def strided_inputs(trial: Trial) -> None:
    """Arrays of the host are read with any strides, and where they are read-only."""
    for lab, specimen, case in examined(trial, "inputs with strides"):
        with asking(trial, said.RESULTS, case):
            plain = specimen.feeds(trial.numbers("strides"))
            expected = specimen.expected(plain)
            for name, change in _LAYOUTS.items():
                trial.count()
                feeds = {key: change(array) for key, array in plain.items()}
                with settled(lab) as stream:
                    given = lab.run(lab.put(feeds, stream), None, stream)
                what = f"fed arrays that are {name}"
                if not compare(trial, lab, given, expected, case, said.STRIDES, what):
                    break


def _transposed(array: Array) -> Array:
    return np.asfortranarray(array)


def _reversed(array: Array) -> Array:
    return np.asarray(array[::-1].copy()[::-1])


def _apart(array: Array) -> Array:
    room = np.full((*array.shape, 3), 9, array.dtype)
    room[..., 1] = array
    return np.asarray(room[..., 1])


def _pitched(array: Array) -> Array:
    room = np.full((*array.shape[:-1], array.shape[-1] + 3), 9, array.dtype)
    room[..., : array.shape[-1]] = array
    return np.asarray(room[..., : array.shape[-1]])


def _unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    moved = raw[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _read_only(array: Array) -> Array:
    kept = array.copy()
    kept.flags.writeable = False
    return kept


_LAYOUTS: Final = {
    "in the order of Fortran": _transposed,
    "reversed": _reversed,
    "apart": _apart,
    "rows of a larger one": _pitched,
    "not aligned": _unaligned,
    "read-only": _read_only,
}


@check("memory", share=0.4)
def sizes(trial: Trial) -> None:
    """Runs of other sizes, 0 among them, give what they are to, in any order."""
    for lab, specimen, case in examined(trial, "sizes that change", of_any_size):
        with asking(trial, said.RESULTS, case):
            for size in (4, 1, 7, 0, 4, 2, 0, 129, 3):
                trial.count()
                shapes = {name: (size, *s[1:]) for name, s in specimen.shapes.items()}
                feeds = specimen.feeds(trial.numbers("sizes", size), shapes)
                expected = specimen.expected(feeds)
                if lab.partition.value(next(iter(shapes))).shape not in (
                    None,
                    shapes[next(iter(shapes))],
                ) and all(
                    isinstance(each, int)
                    for each in lab.partition.value(next(iter(shapes))).shape or ()
                ):
                    # compiled for the sizes of one run: the host has others compiled
                    _in_session(trial, lab, size, feeds, expected, case)
                    continue
                for binds in (False, True):
                    with settled(lab) as stream:
                        rooms = {n: lab.room(n, a, stream) for n, a in expected.items()}
                        given = lab.run(
                            lab.put(feeds, stream), rooms if binds else None, stream
                        )
                    what = f"of size {size} after others{', bound,' * binds}"
                    compare(trial, lab, given, expected, case, what=what)
                    if binds and any(given[n] is not rooms[n] for n in rooms):
                        text = f"{what}: returned another array"
                        trial.find(said.BOUND, text, case=case, kind="another")
                    if binds:
                        compare(trial, lab, rooms, expected, case, said.BOUND, what)


def _in_session(
    trial: Trial,
    lab: Laboratory,
    size: int,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    case: Case,
) -> None:
    """Run the session, then with all outputs bound."""
    found = dict(zip(expected, lab.session.run(None, dict(feeds)), strict=True))
    rooms = {n: poison(a.shape, lab.specimen.dtype) for n, a in expected.items()}
    binding = lab.session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name, room in rooms.items():
        value = onnxplug.OrtValue.ortvalue_from_numpy(room)
        binding.bind_ortvalue_output(name, value)
    lab.session.run_with_iobinding(binding)
    for what, results in (("", found), (", bound", rooms)):
        for name, array in results.items():
            if not agrees(array, expected[name]):
                text = f"size {size}{what}: {differs(array, expected[name])}"
                trial.find(said.RESULTS, text, case=case, kind=f"size{what}")


@check("memory", share=0.4)
def weights(trial: Trial) -> None:
    """Weights that have the same bytes as others, or the same shape, are kept apart."""
    has = taken(trial)
    if has is None:
        return
    if not has.binary:
        trial.leave_out("the EP takes no node with a weight")
        return
    op_type, dtype = has.binary[0], has.dtype
    made: list[Specimen] = []
    for start, shape in (
        (1, (4, 6)),
        (1, (6, 4)),
        (1, (24,)),
        (2, (4, 6)),
        (1, (4, 6)),
    ):
        node = Node(op_type, ["x", "w"], "y")
        w = weight(dtype, shape, start)
        name = f"one {op_type} with a weight of {list(shape)}"
        made.append(make(name, dtype, [node], {"x": shape}, weights={"w": w}))
    case = made[0].case({}, "weights that look like others")
    if not trial.attempt(case):
        return
    opened = []
    try:
        for round_, specimen in itertools.product(range(2), made):
            trial.count()
            with asking(trial, said.WEIGHT_LAYOUT, case):
                feeds = specimen.feeds(trial.numbers(specimen.name, round_))
                session = trial.subject.session(specimen.model)
                opened.append(session)
                for _ in range(2):
                    (found,) = session.run(None, feeds)
                    (right,) = specimen.expected(feeds).values()
                    if not agrees(found, right):
                        trial.find(
                            said.WEIGHT_LAYOUT, differs(found, right), case=case,
                            kind=f"{len(opened)}",
                        )  # fmt: skip
    finally:
        for session in opened:
            session.close()


@check("memory", share=0.3)
def shared_weights(trial: Trial) -> None:
    """What is kept of weights for all sessions is not written to."""
    for lab, specimen, case in examined(trial, "weights that sessions share", several):
        with asking(trial, said.SHARED_WEIGHT, case):
            bench = lab.on_device
            weights = [each for each in bench.weights() if hasattr(each, "shape")]
            if not weights:
                trial.leave_out("the EP keeps no arrays in the store of weights")
                continue
            before = [bench.get(each).tobytes() for each in weights]
            for number in range(2):
                trial.count()
                lab.session.run(None, specimen.feeds(trial.numbers(number)))
            for each, content in zip(weights, before, strict=True):
                if bench.get(each).tobytes() != content:
                    trial.find(
                        said.SHARED_WEIGHT,
                        f"one of shape {list(each.shape)} was written to in a run",
                        case=case,
                    )
