"""Work captured from streams: noted, and done on the same memory by each launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.ep import CapturePhase, DataType
from onnxplug_testing import (
    Knobs,
    SimulatedContext,
    SimulatedFactory,
    SimulatedGraph,
    SimulatedStream,
    Stage,
)

HERE = ep.MemoryLocation("simulated", 0)
X = np.array([1, -2, 3, -4], np.float32)
Y = np.maximum(X, 0)  # what the chain computes
F32 = DataType.FLOAT32


def make_device(**knobs: Any) -> SimulatedContext:
    return SimulatedFactory(Knobs(captures=True, **knobs)).memory_spaces.create_context(
        HERE
    )


def noted(function: Callable[[], None]) -> tuple[SimulatedStream, SimulatedGraph]:
    stream = make_device().create_stream()
    stream.begin_capture()
    stream.enqueue(function)
    return stream, stream.end_capture()


# streams


def test_work_is_noted_and_done_by_each_launch() -> None:
    done: list[int] = []
    stream, graph = noted(lambda: done.append(1))
    stream.synchronize()
    assert done == []
    for count in (1, 2, 3):
        graph.launch(stream)
        assert len(done) == count - 1
        stream.synchronize()
        assert len(done) == count
    assert graph.launches == 3


def test_copies_read_and_write_the_same_arrays_again() -> None:
    device = make_device()
    stream, source, target = device.create_stream(), X.copy(), np.zeros_like(X)
    array = device.device.empty((4,), F32)
    stream.begin_capture()
    device.transfer.copy([(source, array), (array, target)], stream)
    np.testing.assert_array_equal(target, [0] * 4)
    graph = stream.end_capture()
    for scale in (1, 2):
        source[:] = X * scale
        graph.launch(stream)
        assert np.isnan(target).all()  # until somebody waits
        stream.synchronize()
        np.testing.assert_array_equal(target, X * scale)


def test_memory_made_meanwhile_is_the_graphs() -> None:
    device = make_device()
    stream, target = device.create_stream(), np.zeros_like(X)
    source = X.copy()
    stream.begin_capture()
    array = device.device.empty((4,), F32, stream)
    device.transfer.copy([(source, array), (array, target)], stream)
    del array
    graph = stream.end_capture()
    assert device.device.live_bytes == 16
    other = device.device.empty((4,), F32, stream)
    assert device.device.pool.reused == 0
    for _ in range(2):
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(target, X)
    graph.close()
    del other
    assert device.device.live_bytes == 0


def test_an_array_dropped_before_a_launch_is_an_error() -> None:
    device = make_device()
    stream, target = device.create_stream(), np.zeros_like(X)
    array = device.device.empty((4,), F32)
    stream.begin_capture()
    device.transfer.copy([(array, target)], stream)
    graph = stream.end_capture()
    del array  # the host keeps what the captured run was bound to
    graph.launch(stream)
    with pytest.raises(RuntimeError, match=r"float32\[4\], was dropped before work"):
        stream.synchronize()


# what cannot be captured

MISTAKES: dict[str, Callable[[SimulatedContext, SimulatedStream], object]] = {
    "its stream was synchronised": lambda _, stream: stream.synchronize(),
    "an event that it recorded was waited for": lambda _, stream: (
        stream.record().synchronize()
    ),
    "a stream waited for an event of it": lambda device, stream: (
        device.create_stream().wait(stream.record())
    ),
    "its stream waited for an event": lambda device, stream: stream.wait(
        device.create_stream().record()
    ),
    "another was begun on its stream": lambda _, stream: stream.begin_capture(),
    "memory of it was used without its stream": lambda device, stream: (
        device.transfer.copy([(device.device.empty((4,), F32, stream), X.copy())], None)
    ),
}


@pytest.mark.parametrize("why", MISTAKES)
def test_waiting_while_capturing_fails_the_capture(why: str) -> None:
    device, done = make_device(), []
    stream = device.create_stream()
    stream.begin_capture()
    stream.enqueue(lambda: done.append(1))
    for raises in (lambda: MISTAKES[why](device, stream), stream.end_capture):
        with pytest.raises(RuntimeError, match=f"on simulated:0 failed: {why}"):
            raises()
    stream.synchronize()
    assert done == []
    assert device.device.live_bytes == 0
    stream.begin_capture()  # the stream can be used again
    stream.enqueue(lambda: done.append(2))
    stream.end_capture().launch(stream)
    stream.synchronize()
    assert done == [2]


def test_asking_for_an_event_of_a_capture_fails_it_too() -> None:
    stream = make_device().create_stream()
    stream.begin_capture()
    assert stream.record().done() is False
    with pytest.raises(RuntimeError, match="failed: an event that it recorded was as"):
        stream.end_capture()


def test_captures_fail_on_demand() -> None:
    stream = make_device(fail_at=Stage.CAPTURE).create_stream()
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="failed: Knobs"):
        stream.end_capture()


# misuse


def test_a_stream_is_not_closed_while_it_captures() -> None:
    stream = make_device().create_stream()
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="closed while it captures"):
        stream.close()
    stream.end_capture().close()
    stream.close()


def test_captures_are_begun_where_there_are_some_and_before_they_end() -> None:
    plain = SimulatedFactory().memory_spaces.create_context(HERE).create_stream()
    with pytest.raises(RuntimeError, match="whose context does not capture"):
        plain.begin_capture()
    with pytest.raises(RuntimeError, match=r"ended on a stream .* that has none"):
        plain.end_capture()


def test_a_graph_is_launched_on_its_own_device() -> None:
    _, graph = noted(lambda: None)
    with pytest.raises(RuntimeError, match="simulated:0 was used for work of"):
        graph.launch(make_device().create_stream())


def test_a_closed_graph_is_not_launched() -> None:
    stream, graph = noted(lambda: None)
    graph.close()
    with pytest.raises(RuntimeError, match="launched after it was closed"):
        graph.launch(stream)
    with pytest.raises(RuntimeError, match="closed twice"):
        graph.close()


def test_a_graph_is_closed_when_its_work_is_done() -> None:
    stream, graph = noted(lambda: None)
    graph.launch(stream)
    with pytest.raises(RuntimeError, match="closed before work that it launched"):
        graph.close()
    stream.synchronize()
    graph.close()


def test_launches_do_not_overlap() -> None:
    stream, graph = noted(lambda: None)
    other = stream.context.create_stream()
    graph.launch(stream)
    graph.launch(stream)
    with pytest.raises(RuntimeError, match=r"two launches .* overlap"):
        graph.launch(other)
    assert other.wait(stream.record())
    graph.launch(other)
    other.synchronize()
    assert graph.launches == 3


def test_a_graph_left_open_keeps_its_context_open() -> None:
    stream, graph = noted(lambda: None)
    stream.close()
    with pytest.raises(RuntimeError, match="before 1 of its captured graphs"):
        stream.context.close()
    graph.close()
    stream.context.close()


# partitions


def test_a_partition_is_captured_and_launched(make_lab, chain, whole, context) -> None:
    lab = make_lab({"enable_graph_capture": True}, captures=True)
    compiled, stream = lab.provider.compile(whole(chain)), lab.stream()
    assert lab.provider.capture is not None
    x, y = lab.up(X), lab.up(np.zeros_like(X))
    compiled.run([x], [y], context(stream, capture=CapturePhase.WARM_UP))
    stream.begin_capture()
    compiled.run([x], [y], context(stream, capture=CapturePhase.CAPTURE))
    graph = stream.end_capture()
    stream.synchronize()
    for scale in (1, -1):
        lab.context.transfer.copy([(X * scale, x)], None)
        graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(lab.down(y), np.maximum(X * scale, 0))


def test_an_ep_that_waits_while_capturing_fails_the_capture(
    make_lab, chain, whole, context
) -> None:
    options = {"enable_graph_capture": True}
    lab = make_lab(options, captures=True, wait_while_capturing=True)
    compiled, stream = lab.provider.compile(whole(chain)), lab.stream()
    x, y = lab.up(X), lab.up(np.zeros_like(X))
    compiled.run([x], [y], context(stream, capture=CapturePhase.WARM_UP))
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="failed: its stream was synchronised"):
        compiled.run([x], [y], context(stream, capture=CapturePhase.CAPTURE))
    with pytest.raises(RuntimeError, match="failed: its stream was synchronised"):
        stream.end_capture()


@pytest.mark.parametrize(
    ("phase", "captures", "message"),
    [
        (CapturePhase.CAPTURE, True, "captured before a warm-up"),
        (CapturePhase.CAPTURE, False, "phase capture, and its stream does not capture"),
        (CapturePhase.WARM_UP, True, "phase warm-up, and its stream captures"),
        (None, True, "phase None, and its stream captures"),
    ],
)
def test_phases_are_checked(
    make_lab, chain, whole, context, phase, captures: bool, message: str
) -> None:
    lab = make_lab({"enable_graph_capture": True}, captures=True)
    compiled, stream = lab.provider.compile(whole(chain)), lab.stream()
    if captures:
        stream.begin_capture()
    with pytest.raises(RuntimeError, match=message):
        compiled.run([lab.up(X)], [None], context(stream, capture=phase))


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("what", ["waits", "on_host"])
def test_what_cannot_be_captured_is_refused(
    make_lab, make_graph, whole, asked: bool, what: str
) -> None:
    op, knobs = {
        "waits": ("NonZero", {"ops": frozenset({"NonZero"})}),
        "on_host": ("Abs", {"on_host": frozenset({DataType.INT64})}),
    }[what]
    graph = make_graph(
        [(op, ("x",), ("y",))],
        inputs=["x"],
        outputs=["y"],
        dtypes=dict.fromkeys("xy", DataType.INT64),
    )
    lab = make_lab({"enable_graph_capture": asked}, captures=True, **knobs)
    if not asked:
        assert not lab.provider.compile(whole(graph)).is_queued
        return
    with pytest.raises(ep.SessionRefused, match=f"cannot capture a partition of {op}"):
        lab.provider.compile(whole(graph))
