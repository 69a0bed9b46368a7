"""Whatever a plugin raises, and wherever, is told as its own failure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, OnnxplugError
from onnxplug.plugins import registry
from onnxplug.session.ort_value import OrtValue
from onnxplug_testing import SimulatedFactory
from onnxplug_testing.simulated import (
    Stage,
    context,
    memory,
    partition,
    provider,
    streams,
    transfer,
)
from onnxplug_testing.simulated.factory import SimulatedSpaces

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] z) { y = Add (x, x) z = Neg (y) }
    """
)
FEED = {"x": np.ones(2, np.float32)}
NAME = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

CALLS = [
    (SimulatedFactory, "supported_devices", "devices"),
    (SimulatedFactory, "create", "create"),
    (SimulatedSpaces, "create_context", "create"),
    (context.SimulatedContext, "allocator", "create"),
    (context.SimulatedContext, "create_stream", "run"),
    (context.SimulatedContext, "data_type", "run"),
    (provider.SimulatedExecutionProvider, "get_capability", "get_capability"),
    (provider.SimulatedExecutionProvider, "compile", "compile"),
    (provider.SimulatedExecutionProvider, "close", "close"),
    (partition.SimulatedPartition, "run", "run"),
    (partition.SimulatedPartition, "close", "close"),
    (transfer.SimulatedDataTransfer, "can_copy", "run"),
    (transfer.SimulatedDataTransfer, "needs_copy", "run"),
    (transfer.SimulatedDataTransfer, "copy", "run"),
    (memory.SimulatedAllocator, "empty", "run"),
    (streams.SimulatedStream, "record", "run"),
    (streams.SimulatedEvent, "synchronize", "run"),
    (streams.SimulatedStream, "close", "close"),
]


def use() -> None:
    with onnxplug.InferenceSession(MODEL, providers=[NAME]) as session:
        session.run(None, FEED)


@pytest.mark.parametrize(("owner", "method", "stage"), CALLS)
@pytest.mark.parametrize("raised", [ZeroDivisionError("oh"), SystemExit(3)])
def test_a_call_that_raises(
    simulated: MakeSimulated,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    stage: str,
    raised: BaseException,
) -> None:
    simulated(streams=True)
    original = getattr(owner, method)

    def fail(self: Any, *arguments: Any, **named: Any) -> Any:
        if method in ("close", "synchronize"):
            original(self)
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, fail)
        with pytest.raises(EpError, match=f"{NAME}.*{type(raised).__name__}") as caught:
            use()
    assert (caught.value.ep, caught.value.stage) == (NAME, stage)
    assert re.search(rf"{NAME} failed (in|to) (\w+\.)?{method}\b", str(caught.value))
    assert str(caught.value).count(type(raised).__name__) == 1
    use()


def test_a_failure_of_another_ep_has_its_cause_once(simulated: MakeSimulated) -> None:
    simulated(fail_at=Stage.CONTEXT)
    guest = "GuestExecutionProvider"
    simulated(name=guest, shares="simulated")
    with pytest.raises(EpError) as caught:
        onnxplug.InferenceSession(MODEL, providers=[guest])
    assert caught.value.ep == guest
    assert str(caught.value) == (
        f"{guest} failed in create: {NAME} failed in create_context: SimulatedFailure: "
        f"{NAME} was told to fail at create_context"
    )


def test_an_error_without_a_text_has_no_colon_at_its_end(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()

    def fail(*arguments: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(SimulatedSpaces, "create_context", fail)
    with pytest.raises(EpError) as caught:
        use()
    assert str(caught.value) == f"{NAME} failed in create_context: RuntimeError"


def test_what_an_ep_says_of_its_own_failure_is_not_told_twice(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [
        ep.Finding(level=ep.Level.ERROR, message=message, remedy=remedy)
        for message, remedy in (
            ("lab is not installed", "pip install lab"),
            ("the driver is old", "a new one"),
        )
    ]
    simulated(findings=tuple(findings))

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("lab is not installed")

    monkeypatch.setattr(SimulatedFactory, "create", fail)
    with pytest.raises(EpError) as caught:
        use()
    assert str(caught.value) == (
        f"{NAME} failed in create: RuntimeError: lab is not installed\n"
        "pip install lab\nthe driver is old; a new one"
    )


@pytest.mark.parametrize(("owner", "method", "stage"), CALLS)
def test_an_interrupt_is_the_users(
    simulated: MakeSimulated,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    stage: str,
) -> None:
    simulated(streams=True)
    original = getattr(owner, method)

    def interrupt(self: Any, *arguments: Any, **named: Any) -> Any:
        if method in ("close", "synchronize"):
            original(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            use()
    use()


class Timeout(Exception):
    """What a service raises in its handler of signals."""


@pytest.mark.parametrize(("owner", "method", "stage"), CALLS)
@pytest.mark.parametrize("raised", [Timeout("late"), SystemExit(3)])
def test_what_a_signal_handler_raises_is_the_users(
    simulated: MakeSimulated,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    stage: str,
    raised: BaseException,
) -> None:
    simulated(streams=True)
    original = getattr(owner, method)

    def handle(number: int, frame: Any) -> None:
        raise raised

    def interrupted(self: Any, *arguments: Any, **named: Any) -> Any:
        if method in ("close", "synchronize"):
            original(self)
        signal.raise_signal(signal.SIGTERM)
        return original(self, *arguments, **named)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, interrupted)
            with pytest.raises(type(raised)) as caught:
                use()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value is raised
    assert raised.__context__ is None
    use()


@pytest.mark.parametrize("method", ["empty", "copy"])
def test_memory_outside_a_session(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    simulated()
    owner, what = (
        (memory.SimulatedAllocator, "Allocator.empty")
        if method == "empty"
        else (transfer.SimulatedDataTransfer, "DataTransfer.copy")
    )

    def fail(self: Any, *arguments: Any) -> Any:
        raise SystemExit(3)

    monkeypatch.setattr(owner, method, fail)
    with pytest.raises(EpError, match=f"{NAME} failed in {what}: SystemExit: 3"):
        OrtValue.ortvalue_from_numpy(FEED["x"], "simulated")


def test_a_factory_that_fails_to_close(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(SimulatedFactory, "close", fail)
    onnxplug.register_ep_library("mine", SimulatedFactory())
    onnxplug.unregister_ep_library("mine")
    assert f"{NAME} failed in close: SystemExit: 3" in caplog.text
    assert NAME not in [record.name for record in registry.records()]


def test_several_that_fail_to_close_are_all_told(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    for owner in (partition.SimulatedPartition, provider.SimulatedExecutionProvider):

        def fail(self: Any) -> None:
            raise OSError(type(self).__name__)

        monkeypatch.setattr(owner, "close", fail)
    session = onnxplug.InferenceSession(MODEL, providers=[NAME])
    with pytest.raises(EpError, match="SimulatedPartition") as caught:
        session.close()
    assert "OSError: SimulatedExecutionProvider" in caught.value.__notes__[0]


def test_what_fails_to_close_does_not_hide_why_there_is_no_session(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()

    def fail(self: Any, *arguments: Any) -> None:
        raise OSError("first" if arguments else "second")

    owner = provider.SimulatedExecutionProvider
    monkeypatch.setattr(owner, "compile", fail)
    monkeypatch.setattr(owner, "close", fail)
    with pytest.raises(OnnxplugError, match="first"):
        onnxplug.InferenceSession(MODEL, providers=[NAME])


@pytest.mark.parametrize("limit", [0, -1, 1.5, "two"])
def test_a_limit_that_would_let_no_run_begin(
    simulated: MakeSimulated, limit: Any
) -> None:
    simulated(max_concurrent_runs=limit)
    with pytest.raises(EpError, match=f"max_concurrent_runs is {limit!r}"):
        onnxplug.InferenceSession(MODEL, providers=[NAME])
