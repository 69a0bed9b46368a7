"""When the context of a device's memory is closed, and when there is another."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError
from onnxplug.plugins import PluginRegistry, registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.factory import SimulatedSpaces

SIMULATED = "SimulatedExecutionProvider"
HERE = ep.MemoryLocation("simulated", 0)
MakeSimulated = Callable[..., SimulatedFactory]
DOUBLE = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    double (float[4] x) => (float[4] y) { w = Constant<value = float[4] {1,1,1,1}> ()
                                          h = Mul (x, w) y = Add (h, x) }
    """
)
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def factory(simulated: MakeSimulated) -> SimulatedFactory:
    return simulated()


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    gc.collect()
    yield


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "simulated")


def session_on_device(**options: Any) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(DOUBLE, providers=[(SIMULATED, options)])


def bound_run(session: onnxplug.InferenceSession) -> onnxplug.IOBinding:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", "simulated")
    session.run_with_iobinding(binding)
    return binding


# the last use


def test_the_last_value_closes_it(factory: SimulatedFactory) -> None:
    first, second = on_device(X), on_device(X)
    context = factory.context()
    del first
    assert not context.is_closed
    np.testing.assert_array_equal(second.numpy(), X)
    del second
    assert context.is_closed


def test_closing_the_last_session_closes_it(factory: SimulatedFactory) -> None:
    first, second = session_on_device(), session_on_device()
    context = factory.context()
    for session in (first, second):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    first.close()
    assert not context.is_closed
    second.close()
    assert context.is_closed


def test_a_session_that_is_dropped_closes_it(factory: SimulatedFactory) -> None:
    session = session_on_device()
    session.run(None, {"x": X})
    del session
    gc.collect()
    assert factory.context().is_closed


def test_a_value_of_a_session_outlives_it(factory: SimulatedFactory) -> None:
    session = session_on_device()
    for _ in range(2):  # the second run is on the short path
        binding = bound_run(session)
    (value,) = binding.get_outputs()
    context = factory.context()
    session.close()
    del binding, session
    gc.collect()
    assert not context.is_closed
    np.testing.assert_array_equal(value.numpy(), 2 * X)
    del value
    assert context.is_closed


def test_a_binding_outlives_its_session(factory: SimulatedFactory) -> None:
    session = session_on_device()
    binding = bound_run(session)
    session.close()
    assert not factory.context().is_closed
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * X)
    del binding, session
    gc.collect()
    assert factory.context().is_closed


def test_what_is_captured_outlives_its_session(simulated: MakeSimulated) -> None:
    factory = simulated(captures=True)
    session = session_on_device(enable_graph_capture="1")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_ortvalue_output("y", on_device(X))
    for _ in range(3):
        session.run_with_iobinding(binding)
    context = factory.context()
    assert context.open_graphs
    session.close()
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    assert not context.is_closed
    del binding, session
    gc.collect()
    assert (context.is_closed, context.open_graphs) == (True, [])


def test_an_import_by_dlpack_is_a_use(factory: SimulatedFactory) -> None:
    lent = factory.memory_spaces.create_context(HERE).device.empty(
        [4], ep.DataType.FLOAT32
    )
    factory.contexts.clear()  # the device of another library
    value = onnxplug.OrtValue.from_dlpack(lent)
    context = factory.context()
    assert not context.is_closed
    del value
    assert context.is_closed


def test_what_is_lent_by_dlpack_keeps_it_open(factory: SimulatedFactory) -> None:
    value = on_device(X)
    capsule = value.__dlpack__()
    del value
    context = factory.context()
    assert not context.is_closed
    borrowed = context.from_dlpack(capsule)
    np.testing.assert_array_equal(borrowed.storage.read(), X)
    registry.remove(factory.name)
    gc.collect()
    assert context.is_closed


def test_a_session_that_is_not_made_closes_it(simulated: MakeSimulated) -> None:
    factory = simulated(refuse_session="not today")
    with pytest.raises(onnxplug.errors.SessionRefused):
        session_on_device()
    gc.collect()
    assert factory.context().is_closed


def test_an_ep_that_is_not_made_closes_it(
    factory: SimulatedFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = SimulatedFactory.create

    def fail(*arguments: Any) -> Any:
        create(*arguments)
        raise ZeroDivisionError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFactory, "create", fail)
        with pytest.raises(EpError, match="failed in create: ZeroDivisionError: oh"):
            session_on_device()
    factory.created.clear()
    assert factory.context().is_closed


def test_providers_that_are_replaced_close_it(factory: SimulatedFactory) -> None:
    session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
    context = factory.context()
    session.set_providers(["CPUExecutionProvider"])
    assert context.is_closed
    session.set_providers([SIMULATED])
    assert factory.context() is not context
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)


def test_an_ep_that_works_in_anothers_memory_uses_it(simulated: MakeSimulated) -> None:
    owner = simulated()
    simulated(name="GuestExecutionProvider", shares="simulated")
    session = onnxplug.InferenceSession(DOUBLE, providers=["GuestExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    context = owner.context()
    assert not context.is_closed
    session.close()
    assert context.is_closed


def test_the_last_values_memory_is_free_before_it_is_closed(
    factory: SimulatedFactory,
) -> None:
    value = on_device(X)
    order: list[str] = []
    weakref.finalize(value.raw.storage, order.append, "array")
    weakref.finalize(registry.contexts.at(HERE), order.append, "context")
    del value
    assert order == ["array", "context"]


# another one


def test_a_context_is_made_once(
    factory: SimulatedFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ep.MemoryLocation] = []
    create = SimulatedSpaces.create_context

    def count(self: SimulatedSpaces, location: ep.MemoryLocation) -> ep.DeviceContext:
        made.append(location)
        return create(self, location)

    monkeypatch.setattr(SimulatedSpaces, "create_context", count)
    ready = threading.Barrier(4)
    sessions = []

    def use() -> None:
        ready.wait()
        session = onnxplug.InferenceSession(DOUBLE, providers=[SIMULATED])
        sessions.append(session)
        session.run(None, {"x": X})

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    on_device(X)
    assert made == [ep.MemoryLocation("simulated", 0)]


def test_what_is_used_later_gets_another(factory: SimulatedFactory) -> None:
    made = []
    for _ in range(3):
        with session_on_device() as session:
            np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
        made.append(factory.context())
    assert len(set(made)) == 3
    assert all(context.is_closed for context in made)


def test_another_is_made_when_the_last_is_closed(
    factory: SimulatedFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, go_on = threading.Event(), threading.Event()
    close, create = SimulatedContext.close, SimulatedSpaces.create_context
    log: list[str] = []

    def close_slowly(self: SimulatedContext) -> None:
        closing.set()
        assert go_on.wait(20)
        close(self)
        log.append("closed")

    def note(self: SimulatedSpaces, location: ep.MemoryLocation) -> SimulatedContext:
        log.append("made")
        return create(self, location)

    values = [on_device(X)]
    monkeypatch.setattr(SimulatedContext, "close", close_slowly)
    monkeypatch.setattr(SimulatedSpaces, "create_context", note)
    dropping = threading.Thread(target=values.clear)
    dropping.start()
    assert closing.wait(20)
    asking = threading.Thread(target=lambda: values.append(on_device(X)))
    asking.start()
    asking.join(0.1)
    assert asking.is_alive()
    # meanwhile another location is to be had
    with pytest.raises(EpError, match="no installed EP has memory named 'nowhere'"):
        registry.contexts.at(ep.MemoryLocation("nowhere", 0))
    assert log == []
    go_on.set()
    for thread in (dropping, asking):
        thread.join(20)
    assert log == ["closed", "made"]
    np.testing.assert_array_equal(values[0].numpy(), X)


def test_threads_that_open_and_close_it_at_once(factory: SimulatedFactory) -> None:
    ready = threading.Barrier(6)
    wrong: list[object] = []

    def use(number: int) -> None:
        ready.wait()
        try:
            for turn in range(60):
                if (number + turn) % 3:
                    found = on_device(X + turn).numpy()
                else:
                    with session_on_device() as session:
                        (found,) = session.run(None, {"x": (X + turn) / 2})
                np.testing.assert_array_equal(found, X + turn)
        except BaseException as error:  # noqa: BLE001 - the test's failure
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert wrong == []
    assert factory.context().is_closed


def test_an_ep_that_asks_for_what_it_closes(
    factory: SimulatedFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    close = SimulatedContext.close

    def ask(self: SimulatedContext) -> None:
        close(self)
        registry.contexts.at(HERE)

    value = on_device(X)
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedContext, "close", ask)
        del value
    assert "was asked for while SimulatedExecutionProvider closes it" in caplog.text
    np.testing.assert_array_equal(on_device(X).numpy(), X)


def test_an_ep_that_asks_for_what_it_closes_while_another_thread_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = PluginRegistry()  # which takes all with it that may hang
    own.add(SimulatedFactory())
    close = SimulatedContext.close
    closing, go_on = threading.Event(), threading.Event()

    def ask(self: SimulatedContext) -> None:
        monkeypatch.undo()
        close(self)
        closing.set()
        assert go_on.wait(20)
        own.contexts.at(HERE)

    monkeypatch.setattr(SimulatedContext, "close", ask)
    held = [own.contexts.at(HERE)]
    dropping = threading.Thread(target=held.clear, daemon=True)
    dropping.start()
    assert closing.wait(20)
    waiting = threading.Thread(target=lambda: own.contexts.at(HERE), daemon=True)
    waiting.start()
    waiting.join(0.1)
    go_on.set()
    for thread in (dropping, waiting):
        thread.join(20)
        assert not thread.is_alive()
    assert "was asked for while SimulatedExecutionProvider closes it" in caplog.text


def test_what_fails_to_close_is_logged_and_made_anew(
    factory: SimulatedFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    close = SimulatedContext.close

    def fail(self: SimulatedContext) -> None:
        close(self)
        raise OSError("lost")

    session = session_on_device()
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedContext, "close", fail)
        session.close()
    assert f"{SIMULATED} failed in close: OSError: lost" in caplog.text
    np.testing.assert_array_equal(on_device(X).numpy(), X)


def test_a_library_is_unregistered_while_a_value_is_in_its_memory() -> None:
    factory = SimulatedFactory()
    onnxplug.register_ep_library("mine", factory)
    value = onnxplug.OrtValue.ortvalue_from_numpy(X, "simulated")
    onnxplug.unregister_ep_library("mine")
    np.testing.assert_array_equal(value.numpy(), X)
    assert not factory.closed
    del value
    gc.collect()  # exceptions of tests before may refer to frames, and these to it
    assert factory.closed


# kept


def test_a_factory_keeps_its_contexts(simulated: MakeSimulated) -> None:
    factory = simulated(keeps_contexts=True)
    with session_on_device() as session:
        session.run(None, {"x": X})
    context = factory.context()
    gc.collect()
    assert not context.is_closed
    on_device(X)
    assert factory.context() is context
    registry.remove(factory.name)
    assert context.is_closed


def test_kept_contexts_are_closed_before_the_factory_of_a_library() -> None:
    factory = SimulatedFactory(Knobs(keeps_contexts=True))
    onnxplug.register_ep_library("mine", factory)
    on_device(X)
    assert not factory.context().is_closed
    onnxplug.unregister_ep_library("mine")
    assert factory.context().is_closed
    assert factory.closed


def test_a_registry_of_its_own_takes_kept_contexts_with_it() -> None:
    factory = SimulatedFactory(Knobs(keeps_contexts=True))
    own = PluginRegistry()
    own.add(factory)
    own.contexts.at(HERE)
    assert not factory.context().is_closed
    del own
    gc.collect()
    assert factory.context().is_closed


def test_a_kept_context_is_closed_when_the_process_ends() -> None:
    program = textwrap.dedent(
        """
        import numpy as np, onnxplug
        from onnxplug.plugins import registry
        from onnxplug_testing import Knobs, SimulatedFactory
        from onnxplug_testing.simulated.context import SimulatedContext

        close = SimulatedContext.close
        SimulatedContext.close = lambda self: (close(self), print("closed"))
        registry.add(SimulatedFactory(Knobs(keeps_contexts=True)))
        onnxplug.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32), "simulated")
        print("used")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["used", "closed"], "")


# forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_child_of_a_fork_does_not_wait_for_a_thread_that_is_gone() -> None:
    program = textwrap.dedent(
        """
        import os, threading, numpy as np, onnxplug
        from onnxplug.plugins import registry
        from onnxplug_testing import SimulatedFactory
        from onnxplug_testing.simulated.context import SimulatedContext

        X = np.ones(2, np.float32)
        factory = SimulatedFactory()
        registry.add(factory)

        def on_device():
            return onnxplug.OrtValue.ortvalue_from_numpy(X, "simulated")

        close, closing, go_on = SimulatedContext.close, *map(
            lambda _: threading.Event(), range(2)
        )
        def close_slowly(self):
            closing.set()
            assert go_on.wait(20)
            close(self)

        values = [on_device()]
        SimulatedContext.close = close_slowly
        threading.Thread(target=values.clear).start()
        assert closing.wait(20)
        child = os.fork()
        if not child:
            SimulatedContext.close = close
            factory.contexts.clear()
            assert (on_device().numpy() == X).all()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        go_on.set()
        print(os.waitstatus_to_exitcode(status))
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == ("7", "")
