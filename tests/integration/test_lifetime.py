"""Sessions that are closed, changed or tapped while they, or options, are in use."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.errors import EpError, RunError
from onnxplug.plugins import registry
from onnxplug_testing import SimulatedFactory, ToyFactory

CPU = "CPUExecutionProvider"
SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] y) { p = Add (x, x) y = Mul (p, x) }
    """
)
LONG = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (int64 count, float x) => (float y)
    {
        y = Loop (count, , x) <body = steps (int64 i, bool c, float a)
            => (bool d, float b) { d = Identity (c) b = Sin (a) }>
    }
    """
)
X = np.array([1, 2], np.float32)
ENDLESS = {"count": np.array(10**9), "x": np.array(1, np.float32)}


class Waiting(ep.ExecutionProvider):
    """Takes every node; a run says when it has begun, and waits until it may go on."""

    def __init__(self, fails_to_close: bool) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.closed: list[str] = []
        self.fails_to_close = fails_to_close

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        provider = self

        class Waits(ep.CompiledPartition):
            def run(
                self,
                inputs: Sequence[Any],
                outputs: Sequence[Any | None],
                context: ep.RunContext | None,
            ) -> Sequence[Any]:
                provider.begun.set()
                assert provider.go_on.wait(10)
                assert not provider.closed, "closed while it runs"
                return [2 * inputs[0] * inputs[0]]

            def close(self) -> None:
                provider.closed.append("partition")
                if provider.fails_to_close:
                    raise OSError("the device is gone")

        return Waits()

    def close(self) -> None:
        self.closed.append("ep")


class WaitingFactory(ToyFactory):
    name = "WaitingExecutionProvider"
    fails_to_close = False

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> Any:
        self.made = Waiting(self.fails_to_close)
        return self.made


@pytest.fixture
def waiting() -> Iterator[WaitingFactory]:
    factory = WaitingFactory()
    registry.add(factory)
    yield factory
    registry.remove(factory.name)


@pytest.mark.parametrize("how", ["close", "set_providers"])
@pytest.mark.parametrize("options", [None, onnxplug.RunOptions()])
def test_what_a_run_uses_is_closed_after_it(
    waiting: WaitingFactory, how: str, options: onnxplug.RunOptions | None
) -> None:
    session = onnxplug.InferenceSession(MODEL, providers=[waiting.name])
    made, results = waiting.made, []
    thread = threading.Thread(
        target=lambda: results.extend(session.run(None, {"x": X}, options))
    )
    thread.start()
    assert made.begun.wait(10)
    if how == "close":
        session.close()
        with pytest.raises(RunError, match="closed"):
            session.run(None, {"x": X})
    else:
        session.set_providers(["cpu"])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X * X)
    assert made.closed == []
    made.go_on.set()
    thread.join(10)
    np.testing.assert_array_equal(results[0], 2 * X * X)
    assert made.closed == ["partition", "ep"]
    session.close()
    assert made.closed == ["partition", "ep"]


def test_set_providers_under_load_fails_no_run() -> None:
    session = onnxplug.InferenceSession(MODEL)
    stop, wrong = threading.Event(), []

    def load() -> None:
        while not stop.is_set():
            try:
                (result,) = session.run(None, {"x": X})
                assert (result == 2 * X * X).all()
            except Exception as error:  # noqa: BLE001
                wrong.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        session.set_providers(["cpu"])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_ep_is_closed_though_closing_its_partition_raises(
    waiting: WaitingFactory,
) -> None:
    waiting.fails_to_close = True
    session = onnxplug.InferenceSession(MODEL, providers=[waiting.name])
    with pytest.raises(
        EpError, match=f"{waiting.name} failed in close: OSError: the device is gone"
    ) as caught:
        session.close()
    assert (caught.value.ep, caught.value.stage) == (waiting.name, "close")
    assert isinstance(caught.value.__cause__, OSError)
    assert waiting.made.closed == ["partition", "ep"]
    session.close()  # which does nothing


def test_what_fails_to_close_hides_no_other_error(waiting: WaitingFactory) -> None:
    waiting.fails_to_close = True
    with (
        pytest.raises(ZeroDivisionError) as caught,
        onnxplug.InferenceSession(MODEL, providers=[waiting.name]),
    ):
        raise ZeroDivisionError
    assert "the device is gone" in caught.value.__notes__[0]
    assert waiting.made.closed == ["partition", "ep"]


def test_a_run_does_not_fail_for_what_fails_to_close_after_it(
    waiting: WaitingFactory, caplog: pytest.LogCaptureFixture
) -> None:
    waiting.fails_to_close = True
    session = onnxplug.InferenceSession(MODEL, providers=[waiting.name])
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(session.run(None, {"x": X}))
    )
    thread.start()
    assert waiting.made.begun.wait(10)
    with caplog.at_level(logging.WARNING, "onnxplug.session"):
        session.close()  # what the run uses is closed when it ends
        waiting.made.go_on.set()
        thread.join(10)
    np.testing.assert_array_equal(results[0][0], 2 * X * X)
    assert "the device is gone" in caplog.text
    assert waiting.made.closed == ["partition", "ep"]


def test_taps_run_on_the_eps_of_their_session(simulated: MakeSimulated) -> None:
    simulated()
    options = onnxplug.SessionOptions()
    session = onnxplug.InferenceSession(MODEL, options)
    # both are said after the session was made, and are for later ones
    options.add_provider(SIMULATED)
    onnxplug.set_default_providers([SIMULATED])
    try:
        p, y = session.run(["p", "y"], {"x": X})
        (tapped,) = session._variants
        assert tapped.get_providers() == session.get_providers() == [CPU]
    finally:
        onnxplug.set_default_providers([])
    np.testing.assert_array_equal(p, 2 * X)
    np.testing.assert_array_equal(y, 2 * X * X)


@pytest.mark.parametrize("model", [MODEL, LONG], ids=["a chain", "a loop"])
def test_what_was_compiled_for_a_session_goes_with_it(
    monkeypatch: pytest.MonkeyPatch, model: onnx.ModelProto
) -> None:
    """Not when garbage is collected next: a partition may hold gigabytes of weights."""
    compiled = []

    class Remembering(KernelExecutionProvider):
        def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
            if node.op_type in ("Loop", "If", "Scan"):
                return ep.Reason(ep.RefusalCode.OP)
            return lambda *values: values[0]

        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            made = super().compile(partition)
            compiled.append(weakref.ref(made))
            return made

    factory = ToyFactory()
    monkeypatch.setattr(
        factory, "create", lambda devices, options, session: Remembering()
    )
    registry.add(factory)
    gc.collect()
    gc.disable()
    try:
        session = onnxplug.InferenceSession(model, providers=[factory.name])
        assert compiled and all(each() is not None for each in compiled)
        del session
        assert all(each() is None for each in compiled)
    finally:
        gc.enable()
        registry.remove(factory.name)


MISFIT = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[n] x, float[m] z) => (float[k] y) { y = Add (x, z) }
    """
)
PAIR = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[n] x, float[m] z) => (seq(float[n]) y)
    { y = SequenceConstruct (x, z) }
    """
)


@pytest.mark.parametrize(
    ("model", "fails"), [(PAIR, False), (MISFIT, True)], ids=["a list", "a failure"]
)
def test_a_run_keeps_no_input_until_garbage_is_collected(
    model: onnx.ModelProto, fails: bool
) -> None:
    on_arrays = [("CPUExecutionProvider", {"compile": False})]
    session = onnxplug.InferenceSession(model, providers=on_arrays)
    z = np.ones(5, np.float32)

    def run() -> weakref.ref[Any]:
        x = np.ones(7, np.float32)
        if fails:
            with pytest.raises(onnxplug.errors.NodeError):
                session.run(None, {"x": x, "z": z})
        else:
            session.run(None, {"x": x, "z": z})
        return weakref.ref(x)

    run()
    gc.collect()
    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


def test_an_output_named_twice_is_given_twice() -> None:
    session = onnxplug.InferenceSession(MODEL)
    one, other = session.run(["y", "y"], {"x": X})
    one[:] = 0
    np.testing.assert_array_equal(other, 2 * X * X)


def test_a_cancelled_task_ends_no_other_run_of_its_options() -> None:
    session = onnxplug.InferenceSession(LONG)
    options = onnxplug.RunOptions()
    options.timeout = 20

    async def main() -> None:
        task = asyncio.create_task(session.arun(None, ENDLESS, options))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not options.terminate
    session.run(None, {**ENDLESS, "count": np.array(1)}, options)


def test_options_given_to_a_task_still_end_it() -> None:
    session = onnxplug.InferenceSession(LONG)
    options = onnxplug.RunOptions()

    async def main() -> None:
        task = asyncio.create_task(session.arun(None, ENDLESS, options))
        await asyncio.sleep(0.1)
        options.terminate = True
        with pytest.raises(onnxplug.errors.RunCancelled):
            await task

    asyncio.run(main())


def test_a_callback_that_raises_is_logged() -> None:
    session = onnxplug.InferenceSession(MODEL)
    called = threading.Event()
    kinds: list[type[BaseException] | None] = []

    class Logged(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kinds.append(record.exc_info[0] if record.exc_info else None)
            called.set()

    handler = Logged()
    logging.getLogger("onnxplug.session").addHandler(handler)
    try:
        session.run_async(None, {"x": X}, lambda *_: 1 / 0, None)
        assert called.wait(10)
    finally:
        logging.getLogger("onnxplug.session").removeHandler(handler)
    assert kinds == [ZeroDivisionError]


def test_a_session_with_files_in_memory_is_pickled() -> None:
    options = onnxplug.SessionOptions()
    content = bytes(8)
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [8])
    session = onnxplug.InferenceSession(MODEL, options)
    again = pickle.loads(pickle.dumps(session))
    assert again.get_session_options().external_files["w.bin"] == content
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], 2 * X * X)


def test_a_body_without_steps_can_be_timed_out() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (bool go, float x) => (float y)
        { y = Loop (, go, x) <body = b (int64 i, bool c, float a) => (bool c, float a)
            {}> }
        """
    )
    options = onnxplug.RunOptions()
    options.timeout = 0.2
    session = onnxplug.InferenceSession(model)
    with pytest.raises(onnxplug.errors.RunCancelled, match="timeout"):
        session.run(None, {"go": np.array(True), "x": ENDLESS["x"]}, options)


def test_items_that_cannot_be_stacked_are_told_with_their_node() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (int64 n, float[m] x) => (float[q] y, float[k, j] z)
        { y, z = Loop (n, , x) <body = b (int64 i, bool c, float[p] a)
            => (bool d, float[r] e, float[s] f)
            { d = Identity (c) e = Concat <axis = 0> (a, a) f = Identity (a) }> }
        """
    )
    session = onnxplug.InferenceSession(model)
    with pytest.raises(onnxplug.errors.NodeError, match=r"'f'.*\[2\], \[4\].*alike"):
        session.run(None, {"n": np.array(2), "x": X})
