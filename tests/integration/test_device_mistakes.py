"""Mistakes planted in an EP with memory of its own: which are found, and how.

The table of docs/explanation/robustness.md has a row for each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, EpWarning
from onnxplug.run.results import CHECK_RESULTS
from onnxplug_testing import DeviceArray, SimulatedFactory
from onnxplug_testing.simulated import (
    SimulatedAllocator,
    SimulatedContext,
    SimulatedDataTransfer,
    SimulatedEvent,
    SimulatedPartition,
    SimulatedStream,
    Stage,
)

ROOT = Path(__file__).parents[2]
SIMULATED = "SimulatedExecutionProvider"
X = np.arange(1, 5, dtype=np.float32)
MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    g (float[4] x) => (float[4] y) { y = Abs (x) }
    """
)
Patch = pytest.MonkeyPatch
Run = Callable[..., Any]


class Found(StrEnum):
    """How a mistake is found."""

    ALWAYS = "always"
    CHECKED = "with `session.check_results`"
    VERIFIED = "by the check on the device"
    NOT = "not found"


def results(answer: Callable[..., Any]) -> Callable[[Patch], None]:
    """Plants what partitions return: ``answer(partition, inputs, results, stream)``."""

    def plant(patch: Patch) -> None:
        run = SimulatedPartition.run

        def run_wrongly(
            self: SimulatedPartition, inputs: Any, outputs: Any, context: Any
        ) -> Any:
            given = run(self, inputs, outputs, context)
            return answer(self, inputs, given, context and context.stream)

        patch.setattr(SimulatedPartition, "run", run_wrongly)

    return plant


def method(
    owner: type, name: str, wrong: Callable[..., Any]
) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, wrong)


def raises(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("lost")


def other(self: Any, shape: Any, dtype: Any, stream: Any) -> Any:
    """An array of the partition's device."""
    return self._context.device.empty(shape, dtype, stream)


def write(array: Any, stream: Any) -> None:
    """Queue zeros for *array*."""
    zeros = np.zeros(array.shape, np.float32)
    stream.enqueue(lambda: array.storage.write(zeros))


# what partitions do


def write_to_input(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
    write(inputs[0], stream)
    return given


KEPT: list[Any] = []
"""What partitions of a test keep."""


def return_again(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
    KEPT[:] = KEPT or given
    return list(KEPT)


def write_later(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
    for array in KEPT:
        write(array, stream)
    KEPT[:] = given
    return given


def leak(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
    KEPT.extend(given)
    return given


def close_context(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
    self._context.is_closed = True
    return given


def plant_weight(patch: Patch) -> None:
    """The EP has a weight in the store of its device, and writes to it in runs."""
    create = SimulatedFactory.create

    def create_with_weight(
        self: SimulatedFactory, devices: Any, options: Any, session: Any
    ) -> Any:
        made = create(self, devices, options, session)
        source = ep.WeightSource("weight", None, 0, 16)

        def make() -> DeviceArray:
            array = self.allocator().empty((4,), ep.DataType.FLOAT32)
            self.transfer.copy([(X, array)], None)
            return array

        KEPT.append(session.weights(made.location).get(source, "plain", make))
        return made

    def write_to_weight(self: Any, inputs: Any, given: Any, stream: Any) -> Any:
        write(KEPT[0], stream)
        return given

    patch.setattr(SimulatedFactory, "create", create_with_weight)
    results(write_to_weight)(patch)


def plant_swallowing(patch: Patch) -> None:
    patch.setattr(SimulatedEvent, "synchronize", lambda self: self.point.block())
    patch.setattr(
        SimulatedStream, "synchronize", lambda self: self.queue.here().block()
    )


def plant_copies_elsewhere(patch: Patch) -> None:
    copy = SimulatedDataTransfer.copy

    def copy_elsewhere(self: Any, pairs: Any, stream: Any = None) -> None:
        if stream is not None:
            if not KEPT:
                KEPT.append(stream.context.create_stream())
            stream = KEPT[0]
        copy(self, pairs, stream)

    patch.setattr(SimulatedDataTransfer, "copy", copy_elsewhere)


def empty_wrongly(change: Callable[[Any, Any], Any]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        empty = SimulatedAllocator.empty

        def planted(self: Any, shape: Any, dtype: Any, stream: Any = None) -> Any:
            return empty(self, *change(tuple(shape), dtype), stream)

        patch.setattr(SimulatedAllocator, "empty", planted)

    return plant


# what a program does


def on_device() -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(X, "simulated")


def bound_run(session: onnxplug.InferenceSession, target: Any = None) -> np.ndarray:
    """What runs give whose values stay on the device."""
    value = on_device()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    if target is None:
        binding.bind_output("y", "simulated")
    else:
        binding.bind_ortvalue_output("y", target)
    for _ in range(3):
        session.run_with_iobinding(binding)
    (found,) = binding.copy_outputs_to_cpu()
    return found


def filling_run(session: onnxplug.InferenceSession) -> np.ndarray:
    """As :func:`bound_run`, into a value of the program's."""
    return bound_run(session, on_device())


def plain_run(session: onnxplug.InferenceSession) -> np.ndarray:
    """What runs give that are fed by the host."""
    session.run(None, {"x": X})
    (found,) = session.run(None, {"x": X})
    return found


def chained_run(session: onnxplug.InferenceSession) -> np.ndarray:
    """What a session gives that reads what another one leaves queued."""
    with onnxplug.InferenceSession(MODEL, providers=[SIMULATED]) as first:
        leaves = first.io_binding()
        leaves.bind_ortvalue_input("x", on_device())
        leaves.bind_output("y", "simulated")
        first.run_with_iobinding(leaves)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", leaves.get_outputs()[0])
        binding.bind_output("y", "simulated")
        session.run_with_iobinding(binding)
        (found,) = binding.copy_outputs_to_cpu()
        return found


@dataclass(frozen=True)
class Mistake:
    """A mistake of an EP.

    Attributes:
        plant: makes it.
        found: how it is found.
        words: what the error says, of which the table has the beginning.
        run: what a program does.
        is_right: the results are right all the same.
        knobs: of the EP.
    """

    plant: Callable[[Patch], None]
    found: Found
    words: str = ""
    run: Callable[[onnxplug.InferenceSession], np.ndarray] = bound_run
    is_right: bool = True
    knobs: Mapping[str, Any] = field(default_factory=dict)


MISTAKES: dict[str, Mistake] = {
    "a result of another element type": Mistake(
        results(lambda p, i, r, s: [other(p, (4,), ep.DataType.FLOAT64, s)]),
        Found.ALWAYS,
        "returned float64[4] for 'y', an output of partition 0 (node Abs giving 'y'); "
        "expected",
    ),
    "a result of another shape": Mistake(
        results(lambda p, i, r, s: [other(p, (3,), ep.DataType.FLOAT32, s)]),
        Found.ALWAYS,
        "returned an array of shape [3] for 'y'",
    ),
    "an array of the host": Mistake(
        results(lambda p, i, r, s: [np.abs(X)]),
        Found.ALWAYS,
        "returned an array of the host, float32[4], for 'y'",
    ),
    "an object that is no array": Mistake(
        results(lambda p, i, r, s: [{"shape": (4,)}]),
        Found.ALWAYS,
        "returned a dict for 'y'",
    ),
    "another array than the bound one": Mistake(
        results(lambda p, i, r, s: [other(p, (4,), ep.DataType.FLOAT32, s)]),
        Found.ALWAYS,
        "returned another array than the one that was bound to the output for 'y'",
        filling_run,
    ),
    "`data_type` that lies": Mistake(
        method(SimulatedContext, "data_type", lambda s, a: ep.DataType.FLOAT64),
        Found.ALWAYS,
        "failed in Allocator.empty: it returned float64[4]; expected float32[4]",
    ),
    "`data_type` that names no element type": Mistake(
        method(SimulatedContext, "data_type", lambda s, a: "float32"),
        Found.ALWAYS,
        "failed in DeviceContext.data_type: it returned 'float32'; expected a DataType",
    ),
    "an allocator of other shapes": Mistake(
        empty_wrongly(lambda shape, dtype: ((*shape, 1), dtype)),
        Found.ALWAYS,
        "failed in Allocator.empty: it returned float32[4, 1]; expected float32[4] "
        "in simulated:0",
    ),
    "an allocator of other element types": Mistake(
        empty_wrongly(lambda shape, dtype: (shape, ep.DataType.INT32)),
        Found.ALWAYS,
        "failed in Allocator.empty: it returned int32[4]; expected float32[4]",
    ),
    "an allocator that gives nothing": Mistake(
        method(SimulatedAllocator, "empty", lambda *args: None),
        Found.ALWAYS,
        "failed in Allocator.empty: it returned None; expected float32[4]",
    ),
    "`create_stream` that gives no stream": Mistake(
        method(SimulatedContext, "create_stream", lambda self: 7),
        Found.ALWAYS,
        "failed in DeviceContext.create_stream: it returned 7; expected a Stream, "
        "or None",
    ),
    "`record` that returns nothing": Mistake(
        method(SimulatedStream, "record", lambda self: None),
        Found.ALWAYS,
        "failed in Stream.record: it returned None; expected an Event",
    ),
    "`wait` that returns nothing": Mistake(
        method(SimulatedStream, "wait", lambda self, event: None),
        Found.ALWAYS,
        "failed in Stream.wait: it returned None; expected True or False",
        chained_run,
    ),
    "`done` that returns a text": Mistake(
        method(SimulatedEvent, "done", lambda self: "no"),
        Found.ALWAYS,
        "failed in Event.done: it returned 'no'; expected True or False",
    ),
    "any exception of an event": Mistake(
        method(SimulatedEvent, "done", raises),
        Found.ALWAYS,
        "failed in Event.done: KeyError: 'lost'",
    ),
    "any exception of a stream": Mistake(
        method(SimulatedStream, "record", raises),
        Found.ALWAYS,
        "failed in Stream.record: KeyError: 'lost'",
    ),
    "a context that the EP closes": Mistake(
        results(close_context),
        Found.ALWAYS,
        "failed in run: RuntimeError: the context of simulated:0 was used after it "
        "was closed",
    ),
    "waits that do nothing": Mistake(
        method(SimulatedStream, "wait", lambda self, event: True),
        Found.CHECKED,
        "failed in run: Stream.wait() returned True, and what was queued on the stream "
        "after it was done before the event that it was to wait for",
        chained_run,
        is_right=False,
    ),
    "copies on another queue": Mistake(
        plant_copies_elsewhere,
        Found.CHECKED,
        "failed in run: what DataTransfer.copy() was to copy on a stream was not there",
        plain_run,
        is_right=False,
    ),
    "events that are done too early": Mistake(
        method(SimulatedEvent, "done", lambda self: True),
        Found.CHECKED,
        "left 'y', an output of partition 0 (node Abs giving 'y'), which changed after "
        "an event recorded behind its work was done",
    ),
    "`synchronize` of an event that does not wait": Mistake(
        method(SimulatedEvent, "synchronize", lambda self: None),
        Found.CHECKED,
        "failed in Event.synchronize: it returned before Event.done() is True",
        is_right=False,
    ),
    "`synchronize` that swallows errors, of a bound output": Mistake(
        plant_swallowing,
        Found.CHECKED,
        "did not write to the array bound to 'y'",
        filling_run,
        is_right=True,  # the program's value has the numbers of before
        knobs={"fail_at": Stage.WORK},
    ),
    "`synchronize` that swallows errors": Mistake(
        plant_swallowing,
        Found.NOT,
        is_right=False,
        knobs={"fail_at": Stage.WORK},
    ),
    "a write to an input": Mistake(
        results(write_to_input),
        Found.CHECKED,
        "wrote to 'x', an input of partition 0 (node Abs giving 'y'); it must not",
        is_right=False,
    ),
    "a write to a weight that sessions share": Mistake(
        plant_weight, Found.CHECKED, "wrote to a weight in simulated:0"
    ),
    "a view of an input": Mistake(
        results(lambda p, i, r, s: [DeviceArray(i[0].storage, p._context)]),
        Found.CHECKED,
        "returned for 'y', an output of partition 0 (node Abs giving 'y'), an array "
        "that shares memory with 'x', an input of partition 0",
    ),
    "an array returned again by the next run": Mistake(
        results(return_again),
        Found.CHECKED,
        "returned for 'y', an output of partition 0 (node Abs giving 'y'), an array "
        "that it returned in an earlier run",
    ),
    "a write to an output after its run": Mistake(results(write_later), Found.NOT),
    "arrays that the EP keeps": Mistake(results(leak), Found.NOT),
    "wrong numbers": Mistake(
        lambda patch: None,
        Found.VERIFIED,
        is_right=False,
        knobs={"kernels": {"Abs": lambda x: x + 1}},
    ),
    "an element type that it claims, and computes in another": Mistake(
        lambda patch: None,
        Found.VERIFIED,  # these numbers are right in either
        knobs={"kernels": {"Abs": lambda x: np.abs(x.astype("f2")).astype("f4")}},
    ),
}


@pytest.fixture
def kept(simulated: Callable[..., SimulatedFactory]) -> Iterator[None]:
    """What partitions keep goes before the EP does."""
    yield
    for each in KEPT:
        if isinstance(each, SimulatedStream):
            # a copy that nobody waited for finds its arrays gone
            with contextlib.suppress(RuntimeError):
                each.synchronize()
            each.close()
    KEPT.clear()


def outcome(mistake: Mistake, *, checked: bool) -> np.ndarray | EpError:
    """What a session gives, or raises when it is made or run."""
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(CHECK_RESULTS, "1" if checked else "0")
    try:
        with onnxplug.InferenceSession(MODEL, options, providers=[SIMULATED]) as made:
            return mistake.run(made)
    except EpError as error:
        return error


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("checked", [False, True], ids=["", "checked"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_as_the_table_says(
    simulated: Callable[..., SimulatedFactory],
    monkeypatch: Patch,
    name: str,
    checked: bool,
) -> None:
    mistake = MISTAKES[name]
    simulated(max_concurrent_runs=None, **mistake.knobs)
    with monkeypatch.context() as patch:
        mistake.plant(patch)
        found = outcome(mistake, checked=checked)
    if mistake.found is Found.ALWAYS or (checked and mistake.found is Found.CHECKED):
        assert isinstance(found, EpError), found
        assert found.ep == SIMULATED
        # where more is looked at, it may be found in another array
        if checked == (mistake.found is Found.CHECKED):
            assert str(found).startswith(f"{SIMULATED} {mistake.words}")
    else:
        assert isinstance(found, np.ndarray), found
        assert np.array_equal(found, X) == mistake.is_right


@pytest.mark.parametrize("name", ["synchronize", "close"])
def test_a_stream_that_fails_while_waits_are_tried(
    simulated: Callable[..., SimulatedFactory], monkeypatch: Patch, name: str
) -> None:
    simulated()
    method = getattr(SimulatedStream, name)

    def fail(self: SimulatedStream) -> None:
        method(self)
        raise KeyError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedStream, name, fail)
        found = outcome(Mistake(patch.setattr, Found.ALWAYS), checked=True)
    assert str(found) == f"{SIMULATED} failed in Stream.{name}: KeyError: 'lost'"
    assert isinstance(found, EpError)


def test_waits_are_not_tried_where_there_is_no_array_for_that(
    simulated: Callable[..., SimulatedFactory], monkeypatch: Patch
) -> None:
    simulated()
    empty = SimulatedAllocator.empty

    def only_floats(self: Any, shape: Any, dtype: Any, stream: Any = None) -> Any:
        if dtype is not ep.DataType.FLOAT32:
            raise TypeError("only float32 is here")
        return empty(self, shape, dtype, stream)

    monkeypatch.setattr(SimulatedAllocator, "empty", only_floats)
    found = outcome(Mistake(monkeypatch.setattr, Found.NOT), checked=True)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize(
    "name", [name for name in MISTAKES if MISTAKES[name].found is Found.VERIFIED]
)
def test_wrong_numbers_are_found_on_the_device(
    simulated: Callable[..., SimulatedFactory],
    monkeypatch: Patch,
    tmp_path: Path,
    name: str,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)  # of a busy machine
    probe = ep.Probe(
        family="abs",
        operators=frozenset({("", "Abs", ep.DataType.FLOAT32)}),
        model=MODEL.SerializeToString(),
        inputs={"x": X / 10},
        tolerance=(1e-5, 1e-6),
    )
    simulated(probes=(probe,), **MISTAKES[name].knobs)
    with pytest.warns(EpWarning, match="'abs'"):
        made = onnxplug.InferenceSession(MODEL, providers=[SIMULATED, "cpu"])
    assert [node.ep for node in made.explain().nodes] == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(plain_run(made), X)


def test_arrays_that_an_ep_keeps_are_counted_by_the_simulated_device(
    simulated: Callable[..., SimulatedFactory], kept: None, monkeypatch: Patch
) -> None:
    factory = simulated(max_concurrent_runs=None)
    with onnxplug.InferenceSession(MODEL, providers=[SIMULATED]) as session:
        bound_run(session)
        before = factory.allocator().live_bytes
        bound_run(session)
        assert factory.allocator().live_bytes == before
        results(leak)(monkeypatch)
    with onnxplug.InferenceSession(MODEL, providers=[SIMULATED]) as session:
        bound_run(session)
        assert factory.allocator().live_bytes == before + 3 * X.nbytes


def test_the_table_has_these_mistakes() -> None:
    text = (ROOT / "docs" / "explanation" / "robustness.md").read_text("utf-8")
    head, how = (
        "| mistake | found | in which words, or why not |\n| --- | --- | --- |\n",
        {},
    )
    for row in text.split(head)[1].split("\n\n")[0].splitlines():
        name, found, words = (cell.strip() for cell in row.strip("| ").split(" | "))
        how[name] = found
        mistake = MISTAKES[name]
        if mistake.words:
            said = words.split("`")[1].split("…")
            assert said[0].strip()
            where = 0
            for part in said:
                where = mistake.words.find(part.strip(), where)
                assert where >= 0, (name, part)
        else:
            assert words
    assert how == {name: str(mistake.found) for name, mistake in MISTAKES.items()}
