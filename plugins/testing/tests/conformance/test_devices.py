"""The groups memory, time and failure of the kit: they find what is planted in a device
EP, and nothing in one without mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.conformance import Finding, Settings, examine, preparation
from onnxplug_testing.conformance.groups import each_operator
from onnxplug_testing.measuring.variations import Variation
from onnxplug_testing.simulated import (
    DeviceArray,
    SimulatedAllocator,
    SimulatedContext,
    SimulatedDataTransfer,
    SimulatedEvent,
    SimulatedExecutionProvider,
    SimulatedPartition,
    SimulatedStream,
)
from onnxplug_testing.simulated.storage import Pool

GROUPS = ("memory", "time", "failure")
EP = "SimulatedExecutionProvider"
Patch = pytest.MonkeyPatch


def case_of(op_type: str, *inputs: Any) -> Variation:
    """A case of an operator, as those that ONNX has."""
    names = [f"x{number}" for number in range(len(inputs))]
    node = onnx.helper.make_node(op_type, names, ["y"])
    kind = onnx.helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    return Variation(
        case=op_type.lower(),
        kind="suite",
        node=node,
        since=13,
        opset=17,
        inputs=inputs,
        output_types=(kind,),
    )


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: Patch) -> None:
    """ONNX's cases take half a minute to write, and a few of others do here."""
    x = np.array([[-2, 1, 3], [4, -5, 6]], np.float32)
    cases = [case_of("Relu", x), case_of("Neg", x), case_of("Add", x, x[:1])]
    suite = {each.node.op_type: [each] for each in cases}
    for module in (each_operator, preparation):
        monkeypatch.setattr(module, "load_suite", lambda: suite)


def found(*only: str, budget: float = 0.0, **knobs: Any) -> list[Finding]:
    """What the kit finds in the simulated EP, in *budget* seconds or all it takes."""
    factory = SimulatedFactory(Knobs(**knobs))
    registry.add(factory)
    try:
        settings = Settings(isolated=False, quick=True, budget=budget)
        return examine(EP, only=only, settings=settings).findings
    finally:
        registry.remove(EP)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    "knobs",
    [
        {"captures": True, "max_concurrent_runs": None, "budget": 3.0},
        *(
            pytest.param(knobs, marks=pytest.mark.exhaustive)
            for knobs in (
                {"captures": True, "max_concurrent_runs": None},
                {},
                {"schedule": "threaded"},
                {"streams": False, "pinned": False, "stacks": False},
            )
        ),
    ],
    ids=["a part", "captures", "late", "threaded", "at once"],
)
def test_nothing_is_found_where_there_is_no_mistake(
    group: str, knobs: dict[str, Any]
) -> None:
    assert found(group, **knobs) == []


ON_THE_HOST = """
import sys
from onnxplug_testing.conformance import Settings, examine

checks = ["memory/results", "memory/allocator", "time/order", "failure/cancelled"]
settings = Settings(isolated=True, quick=True)
report = examine(sys.argv[1], only=checks, settings=settings)
assert report.findings == [], report.findings
assert report.tried > 10
reasons = {reason for each in report.checks for reason in each.untried}
assert reasons == {"the EP works in the host's memory"}, reasons
"""


@pytest.mark.parametrize("name", ["cpu", "openvino"])
def test_an_ep_on_the_host_is_told_what_was_not_tried(name: str) -> None:
    """In a process that has started no engine, whose threads no child would have."""
    if name == "openvino":
        pytest.importorskip("onnxplug_openvino")
        pytest.importorskip("openvino")
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_HOST, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# what is planted: what an EP does in place of what it is to do


def instead(owner: type, name: str) -> Callable[[Callable[..., Any]], Any]:
    """Plants the function below, which is given the method that it replaces."""

    def planted(wrong: Callable[..., Any]) -> Callable[[Patch], None]:
        def plant(patch: Patch) -> None:
            right = getattr(owner, name)
            patch.setattr(
                owner, name, lambda self, *a, **k: wrong(right, self, *a, **k)
            )

        plant.__name__ = wrong.__name__
        return plant

    return planted


KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def zeros(array: DeviceArray, stream: Any) -> None:
    content = np.zeros(array.shape, array.storage.dtype)
    if stream is None:
        array.storage.write(content)
    else:
        stream.enqueue(lambda: array.storage.write(content))


@instead(SimulatedPartition, "run")
def writes_to_input(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    given = run(self, inputs, outputs, context)
    zeros(inputs[0], context and context.stream)
    return given


@instead(SimulatedPartition, "run")
def returns_a_buffer(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    if any(array is not None for array in outputs):
        return run(self, inputs, outputs, context)
    buffers = getattr(self, "buffers", outputs)
    if any(b is None or b.shape != inputs[0].shape for b in buffers):
        buffers = outputs
    self.buffers = list(run(self, inputs, buffers, context))
    return self.buffers


@instead(SimulatedPartition, "run")
def leaves_bound_outputs(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    given = run(self, inputs, [None] * len(outputs), context)
    return [g if o is None else o for g, o in zip(given, outputs, strict=True)]


@instead(SimulatedPartition, "run")
def returns_other_than_bound(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    return run(self, inputs, [None] * len(outputs), context)


@instead(SimulatedPartition, "run")
def keeps_results(run: Any, self: Any, inputs: Any, outputs: Any, context: Any) -> Any:
    given = run(self, inputs, outputs, context)
    KEPT.extend(given)
    return given


@instead(SimulatedPartition, "run")
def ignores_its_stream(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    if context is not None:
        context = type("Context", (), {**vars(context), "stream": None})()
        context.capture = None
    return run(self, inputs, outputs, context)


@instead(SimulatedPartition, "run")
def leaves_results_on_the_host(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    given = run(self, inputs, outputs, context)
    return [np.zeros(array.shape, array.storage.dtype) for array in given]


@instead(SimulatedPartition, "run")
def hides_a_lack_of_memory(
    run: Any, self: Any, inputs: Any, outputs: Any, context: Any
) -> Any:
    try:
        return run(self, inputs, outputs, context)
    except MemoryError as error:
        raise RuntimeError("it did not work") from error


@instead(SimulatedContext, "live_bytes")
def counts_in_a_method(live_bytes: Any, self: Any) -> int:
    return 0


@instead(SimulatedPartition, "run")
def swallows(run: Any, self: Any, inputs: Any, outputs: Any, context: Any) -> Any:
    while True:
        try:
            return run(self, inputs, outputs, context)
        except ep.OutputMismatch:
            raise
        except Exception:  # noqa: BLE001
            time.sleep(0)


@instead(SimulatedPartition, "_targets")
def does_not_look_at_bound(
    targets: Any, self: Any, results: Any, outputs: Any, stream: Any
) -> Any:
    fitting = [
        None if o is None or o.shape != r.shape else o
        for o, r in zip(outputs, results, strict=True)
    ]
    return targets(self, results, fitting, stream)


@instead(SimulatedPartition, "close")
def closes_once(close: Any, self: Any) -> None:
    if self.closed:
        raise RuntimeError("closed already")
    close(self)


@instead(SimulatedExecutionProvider, "close")
def provider_closes_once(close: Any, self: Any) -> None:
    if self.closed:
        raise RuntimeError("closed already")
    close(self)


@instead(SimulatedContext, "data_type")
def data_type_lies(data_type: Any, self: Any, array: Any) -> Any:
    found_type = data_type(self, array)
    return ep.DataType.INT32 if found_type is ep.DataType.FLOAT32 else found_type


@instead(SimulatedContext, "take")
def takes_the_first(take: Any, self: Any, array: Any, axis: int, index: int, s: Any):  # type: ignore[no-untyped-def]
    return take(self, array, axis, 0, s)


@instead(SimulatedContext, "stack")
def stacks_in_front(stack: Any, self: Any, arrays: Any, axis: int, stream: Any) -> Any:
    return stack(self, arrays, 0, stream)


def counts_nothing(patch: Patch) -> None:
    patch.setattr(SimulatedContext, "live_bytes", 0)


@instead(SimulatedContext, "adopt_stream")
def adopts_another(adopt: Any, self: Any, handle: int) -> Any:
    return self.create_stream()


@instead(SimulatedAllocator, "empty")
def raises_another_error(empty: Any, self: Any, shape: Any, *rest: Any) -> Any:
    if np.prod(shape, dtype=np.float64) > 1e12:
        raise RuntimeError("no room")
    return empty(self, shape, *rest)


@instead(Pool, "make")
def hands_out_at_once(make: Any, self: Any, shape: Any, dtype: Any, queue: Any) -> Any:
    key = shape, dtype
    for place, (kept_key, made) in enumerate(KEPT):  # noqa: B007 (used below)
        if kept_key == key:
            del KEPT[place]
            break
    else:
        made = make(self, shape, dtype, None)
    storage, memory, _ = made
    return storage, memory, lambda: KEPT.append((key, made))


@instead(SimulatedDataTransfer, "copy")
def copies_later(copy: Any, self: Any, pairs: Any, stream: Any = None) -> None:
    if stream is not None:
        copy(self, pairs, stream)
        return
    for source, target in pairs:
        if isinstance(target, DeviceArray) and isinstance(source, np.ndarray):
            KEPT.append((source, target))
        else:
            copy(self, KEPT[:], None)
            KEPT.clear()
            copy(self, [(source, target)], None)


@instead(SimulatedDataTransfer, "copy")
def copies_the_first_pair(copy: Any, self: Any, pairs: Any, stream: Any = None) -> None:
    copy(self, list(pairs)[:1], stream)


@instead(SimulatedDataTransfer, "copy")
def forgets_strides(copy: Any, self: Any, pairs: Any, stream: Any = None) -> None:
    plain = [
        (
            np.ndarray(s.shape, s.dtype, np.asarray(s.base))
            if isinstance(s, np.ndarray) and s.base is not None and s.strides[0] > 0
            and not s.flags.c_contiguous and s.base.nbytes >= s.nbytes
            and s.base.flags.c_contiguous
            else s,
            t,
        )
        for s, t in pairs
    ]  # fmt: skip
    copy(self, plain, stream)


@instead(SimulatedEvent, "done")
def done_too_early(done: Any, self: Any) -> bool:
    return True


@instead(SimulatedEvent, "done")
def done_is_no_bool(done: Any, self: Any) -> str:
    return "no"


@instead(SimulatedEvent, "synchronize")
def event_does_not_wait(synchronize: Any, self: Any) -> None:
    return None


@instead(SimulatedStream, "wait")
def waits_for_nothing(wait: Any, self: Any, event: Any) -> bool:
    return True


@instead(SimulatedStream, "synchronize")
def stream_does_not_wait(synchronize: Any, self: Any) -> None:
    return None


@instead(SimulatedStream, "record")
def records_the_beginning(record: Any, self: Any) -> Any:
    if not hasattr(self, "first"):
        self.first = record(self)
    return self.first


@instead(SimulatedPartition, "_queue")
def shares_scratch(
    queue: Any, self: Any, sources: Any, outputs: Any, stream: Any, profiler: Any
) -> Any:
    self.scratch = sources
    proxies = [_Late(self, number) for number in range(len(sources))]
    return queue(self, proxies, outputs, stream, profiler)


class _Late:
    """An input as the partition has it when the work is done."""

    def __init__(self, owner: Any, number: int) -> None:
        self._owner, self._number = owner, number
        self.shape = owner.scratch[number].shape
        self.dtype = owner.scratch[number].dtype

    def read(self) -> Any:
        return self._owner.scratch[self._number].read()


PLANTED: list[tuple[Callable[[Patch], None], str, str]] = [
    (writes_to_input, "memory/inputs", "CompiledPartition.run"),
    (returns_a_buffer, "memory/results", "CompiledPartition.run"),
    (leaves_bound_outputs, "memory/bound", "CompiledPartition.run"),
    (returns_other_than_bound, "memory/bound", "CompiledPartition.run"),
    (keeps_results, "memory/leaks", "Allocator"),
    (does_not_look_at_bound, "memory/bound-wrongly", "CompiledPartition.run"),
    (closes_once, "memory/closed-twice", "CompiledPartition.close"),
    (provider_closes_once, "memory/closed-twice", "ExecutionProvider.close"),
    (data_type_lies, "memory/allocator", "DeviceContext.data_type"),
    (takes_the_first, "memory/parts", "DeviceContext.take"),
    (stacks_in_front, "memory/parts", "DeviceContext.stack"),
    (writes_to_input, "memory/each-operator", "CompiledPartition.run"),
    (
        leaves_results_on_the_host,
        "memory/each-operator",
        "CompiledPartition.output_locations",
    ),
    (counts_in_a_method, "memory/live-bytes", "DeviceContext.live_bytes"),
    (counts_nothing, "memory/live-bytes", "DeviceContext.live_bytes"),
    (raises_another_error, "memory/exhausted", "Allocator.empty"),
    (hands_out_at_once, "memory/handed-out-again", "Allocator"),
    (copies_later, "memory/at-once", "DataTransfer.copy"),
    (copies_the_first_pair, "memory/pairs", "DataTransfer.copy"),
    (forgets_strides, "memory/strides", "DataTransfer.copy"),
    (ignores_its_stream, "time/late-inputs", "CompiledPartition.run"),
    (ignores_its_stream, "time/late-operators", "CompiledPartition.run"),
    (shares_scratch, "time/overlapping-runs", "Many runs at once"),
    (done_too_early, "time/waiting", "Event.done"),
    (done_is_no_bool, "time/waiting", "Event.done"),
    (event_does_not_wait, "time/waiting", "Event.done"),
    (waits_for_nothing, "time/streams-that-wait", "Stream.wait"),
    (stream_does_not_wait, "time/waiting", "Stream.synchronize"),
    (records_the_beginning, "time/waiting", "Event.synchronize"),
    (adopts_another, "time/adopted", "DeviceContext.adopt_stream"),
    (hides_a_lack_of_memory, "failure/out-of-memory", "What is promised"),
    (swallows, "failure/signals", "raise_interruption"),
]


@pytest.mark.parametrize(
    ("plant", "check", "blamed"),
    PLANTED,
    ids=[f"{plant.__name__} {check}" for plant, check, _ in PLANTED],
)
def test_what_is_planted_is_found_and_blamed(
    plant: Callable[[Patch], None],
    check: str,
    blamed: str,
    monkeypatch: Patch,
) -> None:
    plant(monkeypatch)
    assert blamed in {each.sentence.of for each in found(check)}
