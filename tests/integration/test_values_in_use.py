"""Values that runs read and fill while others change, drop or look at them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import NodeError, OutputMismatch
from onnxplug.plugins import registry
from onnxplug.run.streams import Streams
from onnxplug_testing import SimulatedFactory, toy
from onnxplug_testing.simulated.streams import SimulatedEvent

SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]
X = np.arange(4, dtype=np.float32)
HEAD = '< ir_version: 10, opset_import: ["" : 21] >'


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} g {text}")


NEG = parse("(float[4] x) => (float[4] y) { y = Neg (x) }")
TWICE = parse("(float[4] x) => (float[4] y) { y = Add (x, x) }")


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "simulated")


def room() -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_shape_and_type([4], np.float32, "simulated")


def bound(
    session: onnxplug.InferenceSession,
    fed: onnxplug.OrtValue,
    filled: onnxplug.OrtValue | None = None,
) -> onnxplug.IOBinding:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", fed)
    if filled is None:
        binding.bind_output("y", "simulated")
    else:
        binding.bind_ortvalue_output("y", filled)
    return binding


def result(binding: onnxplug.IOBinding) -> np.ndarray:
    return binding.get_outputs()[0].numpy()


# an output in an input's array


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("limit", [1, None])
def test_an_output_may_be_in_the_array_of_an_input(
    simulated: MakeSimulated, captured: bool, limit: int | None
) -> None:
    simulated(captures=captured, max_concurrent_runs=limit)
    options = {"enable_graph_capture": True} if captured else {}
    session = onnxplug.InferenceSession(TWICE, providers=[(SIMULATED, options)])
    value = on_device(X)
    binding = bound(session, value, value)
    for step in range(1, 5):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(value.numpy(), 2**step * X)


PARTS = parse(
    "(float[4] x) => (float[4] y) { a = Add (x, x) b = Sin (a) y = Add (b, x) }"
)


@pytest.mark.parametrize("model", [TWICE, PARTS], ids=["one step", "several"])
@pytest.mark.parametrize("options", [None, onnxplug.RunOptions()])
def test_a_run_in_place_copies_nothing_there_and_waits_for_nothing(
    simulated: MakeSimulated, model: onnx.ModelProto, options: Any
) -> None:
    factory = simulated(ops=frozenset({"Add"}), max_concurrent_runs=None)
    session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    value, wanted = on_device(X), X
    binding = bound(session, value, value)
    for _ in range(4):
        factory.transfer.copies.clear()
        session.run_with_iobinding(binding, options)
        assert not value.ready
        assert not [c for c in factory.transfer.copies if c.source == c.target]
        (wanted,) = session.run(None, {"x": wanted})
    assert binding.get_outputs() == [value]
    np.testing.assert_array_equal(value.numpy(), wanted)


def test_a_value_filled_in_place_is_the_same_for_other_bindings(
    simulated: MakeSimulated,
) -> None:
    simulated(max_concurrent_runs=None)
    session = onnxplug.InferenceSession(TWICE, providers=[SIMULATED])
    value, target = on_device(X), room()
    in_place = bound(session, value, value)
    reading, filling = bound(session, value, target), bound(session, target, value)
    for step in range(3):
        session.run_with_iobinding(reading)  # the second time with nothing to look up
        np.testing.assert_array_equal(result(reading), 2 * 8.0**step * X)
        session.run_with_iobinding(in_place)
        session.run_with_iobinding(reading)
        np.testing.assert_array_equal(result(reading), 4 * 8.0**step * X)
        session.run_with_iobinding(filling)
        np.testing.assert_array_equal(value.numpy(), 8 * 8.0**step * X)


@pytest.mark.parametrize("shared", [False, True])
def test_an_input_that_is_an_output_is_read_before_it_is_filled_in_place(
    simulated: MakeSimulated, shared: bool
) -> None:
    simulated(max_concurrent_runs=None)
    model = parse("(float[4] x) => (float[4] y, float[4] x) { y = Add (x, x) }")
    session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    value = on_device(X)
    other = onnxplug.OrtValue.from_dlpack(value) if shared else None
    binding = bound(session, value, value)
    binding.bind_output("x", "simulated")
    for step in range(3):
        session.run_with_iobinding(binding)
        y, x = binding.copy_outputs_to_cpu()
        np.testing.assert_array_equal(x, 2**step * X)
        np.testing.assert_array_equal(y, 2 ** (step + 1) * X)
        if other is not None:  # memory that others see stays what it is
            np.testing.assert_array_equal(other.numpy(), y)


def test_what_does_not_fit_in_place_is_refused_and_nothing_changes(
    simulated: MakeSimulated,
) -> None:
    simulated(own_dtypes=frozenset({ep.DataType.FLOAT32}))
    model = parse("(float[N] x) => (float[M] y) { y = Concat <axis = 0> (x, x) }")
    session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    value = on_device(X)
    with pytest.raises(OutputMismatch, match=r"output 'y' is float32\[8\].*\[4\]"):
        session.run_with_iobinding(bound(session, value, value))
    np.testing.assert_array_equal(value.numpy(), X)


def test_what_does_not_fit_later_is_refused_as_in_the_first_run(
    simulated: MakeSimulated,
) -> None:
    dtypes = frozenset({ep.DataType.FLOAT32, ep.DataType.BOOL})
    simulated(ops=frozenset({"Compress"}), dtypes=dtypes, max_concurrent_runs=None)
    model = parse(
        "(float[N] x, bool[N] c) => (float[M] y) { y = Compress <axis = 0> (x, c) }"
    )
    session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    value, kept = on_device(X), on_device(np.ones(4, bool))
    binding = bound(session, value, value)
    binding.bind_ortvalue_input("c", kept)
    for _ in range(2):  # the second time with nothing to look up
        session.run_with_iobinding(binding)
    kept.update_inplace(np.array([True, False, True, False]))
    for _ in range(2):
        with pytest.raises(OutputMismatch, match=r"output 'y' is float32\[2\].*\[4\]"):
            session.run_with_iobinding(binding)
        assert value.shape() == [4]
    np.testing.assert_array_equal(value.numpy(), X)


# dropped, changed, shared


def test_a_bound_output_may_be_replaced_while_it_is_filled(
    simulated: MakeSimulated,
) -> None:
    simulated(max_concurrent_runs=None)
    session = onnxplug.InferenceSession(NEG, providers=[SIMULATED])
    binding = bound(session, on_device(X), room())
    for _ in range(4):
        session.run_with_iobinding(binding)
        binding.bind_ortvalue_output("y", room())
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(result(binding), -X)


@pytest.mark.parametrize(
    "model",
    [
        "(float[4] x) => (float[2,2] y) <int64[2] s = {2, 2}>"
        " { v = Reshape (x, s) y = Neg (v) }",
        "(float[4] x) => (float[1,4] y) <int64[1] s = {0}>"
        " { v = Unsqueeze (x, s) y = Neg (v) }",
    ],
)
def test_an_array_of_the_callers_may_be_changed_of_which_a_view_is_copied(
    simulated: MakeSimulated, model: str
) -> None:
    simulated(ops=frozenset({"Neg"}))
    session = onnxplug.InferenceSession(parse(model), providers=[SIMULATED])
    array = X.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y", "simulated")
    session.run_with_iobinding(binding)
    array[:] = 100
    np.testing.assert_array_equal(result(binding).ravel(), -X)


@pytest.mark.parametrize("limit", [1, None])
def test_memory_of_others_is_read_when_a_run_returns(
    simulated: MakeSimulated, limit: int | None
) -> None:
    simulated(max_concurrent_runs=limit)
    session = onnxplug.InferenceSession(NEG, providers=[SIMULATED])
    theirs = on_device(X)
    binding = bound(session, onnxplug.OrtValue.from_dlpack(theirs))
    for step in range(3):
        session.run_with_iobinding(binding)
        theirs.update_inplace(X + step + 1)  # which knows nothing of the run
        np.testing.assert_array_equal(result(binding), -(X + step))


def test_who_takes_a_value_by_dlpack_may_overwrite_it(
    simulated: MakeSimulated,
) -> None:
    simulated()
    session = onnxplug.InferenceSession(NEG, providers=[SIMULATED])
    value = on_device(X)
    binding = bound(session, value)
    session.run_with_iobinding(binding)
    other = onnxplug.OrtValue.from_dlpack(value)
    other.update_inplace(X + 100)
    np.testing.assert_array_equal(result(binding), -X)


def test_a_value_of_a_failed_run_is_filled_again(simulated: MakeSimulated) -> None:
    failing = [True]

    def neg(x: np.ndarray) -> np.ndarray:
        if failing[0] and x.any():
            raise ValueError("device error")
        return -x

    simulated(max_concurrent_runs=None, kernels={"Neg": neg})
    with onnxplug.InferenceSession(NEG, providers=[SIMULATED]) as session:
        fed, filled = on_device(X), room()
        binding = bound(session, fed, filled)
        session.run_with_iobinding(binding)
        with pytest.raises(NodeError, match="device error"):
            filled.numpy()
        failing[0] = False
        for _ in range(3):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(filled.numpy(), -X)
        failing[0] = True
        session.run_with_iobinding(binding)
        with pytest.raises(NodeError, match="device error"):
            filled.wait()
        filled.update_inplace(X)
        np.testing.assert_array_equal(filled.numpy(), X)
        with onnxplug.InferenceSession(TWICE, providers=[SIMULATED]) as other:
            other.run_with_iobinding(bound(other, on_device(X), fed))
            np.testing.assert_array_equal(fed.numpy(), 2 * X)


def test_who_waits_does_not_end_the_wait_for_a_later_run(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(max_concurrent_runs=None)
    session = onnxplug.InferenceSession(NEG, providers=[SIMULATED])
    fed, filled = on_device(X), room()
    binding = bound(session, fed, filled)
    session.run_with_iobinding(binding)
    synchronize = SimulatedEvent.synchronize
    waited, go_on = threading.Event(), threading.Event()

    def slow(event: SimulatedEvent) -> None:
        synchronize(event)
        if threading.current_thread() is not threading.main_thread():
            waited.set()
            go_on.wait(10)

    monkeypatch.setattr(SimulatedEvent, "synchronize", slow)
    waiting = threading.Thread(target=filled.wait)
    waiting.start()
    waited.wait(10)
    fed.update_inplace(X + 5)
    session.run_with_iobinding(binding)
    go_on.set()
    waiting.join()
    np.testing.assert_array_equal(filled.numpy(), -(X + 5))


# garbage, interrupts and threads


def test_a_binding_may_be_collected_while_another_one_gets_streams(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    session = onnxplug.InferenceSession(NEG, providers=[SIMULATED])

    def use() -> None:
        binding: Any = bound(session, on_device(X))
        session.run_with_iobinding(binding)
        binding.itself = binding

    use()
    make = Streams.__init__

    def collect_first(streams: Streams, *arguments: Any) -> None:
        gc.collect()
        make(streams, *arguments)

    monkeypatch.setattr(Streams, "__init__", collect_first)
    done = threading.Event()
    threading.Thread(target=lambda: (use(), done.set()), daemon=True).start()
    assert done.wait(20)


def test_a_stream_of_the_users_is_used_by_one_run_at_a_time(
    simulated: MakeSimulated,
) -> None:
    simulated(max_concurrent_runs=None, schedule="threaded")
    model = parse("(float[4] x) => (float[4] y) { h = Neg (x) y = Neg (h) }")
    owned = registry.contexts.at(ep.MemoryLocation("simulated", 0))
    stream = owned.context.create_stream()
    assert stream is not None
    options = {"user_compute_stream": stream.native_handle}
    failures: list[Exception] = []
    with onnxplug.InferenceSession(model, providers=[(SIMULATED, options)]) as session:
        session.run(["h"], {"x": X})

        def work(names: list[str] | None) -> None:
            try:
                for _ in range(50):
                    session.run(names, {"x": X})
            except Exception as error:  # noqa: BLE001 - the test's failure
                failures.append(error)

        # the second one's outputs are another plan's, of the same session
        threads = [threading.Thread(target=work, args=(n,)) for n in (None, ["h"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stream.synchronize()
    stream.close()
    assert failures == []


def test_contexts_are_closed_while_nothing_is_locked(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated()
    value = on_device(X)
    context = type(registry.contexts.at(ep.MemoryLocation("simulated", 0)).context)
    close = context.close
    found: list[bool] = []

    def look(closed: Any) -> None:
        close(closed)
        done = threading.Event()

        def ask() -> None:
            with pytest.raises(onnxplug.errors.EpError):
                registry.contexts.at(ep.MemoryLocation("nowhere", 0))
            done.set()

        threading.Thread(target=ask, daemon=True).start()
        found.append(done.wait(10))

    monkeypatch.setattr(context, "close", look)
    registry.remove(factory.name)
    del value
    gc.collect()
    assert found == [True]


# control flow where numpy reads the device's memory


@pytest.mark.parametrize("rounds", [0, 2])
def test_control_flow_on_an_ep_whose_memory_the_host_reads(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    place = ep.MemoryLocation("igpu", 0, host_accessible=True)
    monkeypatch.setattr(toy.ToyExecutionProvider, "location", place)
    model = parse(
        """(float[4] x, int64 n) => (float[4] y, float[k,4] z) <bool go = {1}> {
            y, z = Loop (n, go, x) <body = b
                (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] u) {
                    d = Identity (c) t = Add (s, s) u = Add (t, s)
                }>
        }"""
    )
    factory = toy.ToyFactory()
    registry.add(factory)
    try:
        session = onnxplug.InferenceSession(model, providers=[factory.name])
        last, every = session.run(None, {"x": X, "n": np.array(rounds)})
    finally:
        registry.remove(factory.name)
    np.testing.assert_array_equal(last, 2**rounds * X)
    wanted = [3 * 2**step * X for step in range(rounds)]
    np.testing.assert_array_equal(every, np.reshape(wanted, (rounds, 4)))
