"""The contexts of arrays that other libraries lend and borrow by DLPack."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, InvalidArgument
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated import Stage
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.factory import SimulatedSpaces
from onnxplug_testing.simulated.streams import SimulatedStream

SIMULATED = "SimulatedExecutionProvider"
HERE = ep.MemoryLocation("simulated", 0)
MakeSimulated = Callable[..., SimulatedFactory]
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def factory(simulated: MakeSimulated) -> SimulatedFactory:
    return simulated()


def on_device(array: np.ndarray) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "simulated")


def lent_by(factory: SimulatedFactory) -> Any:
    """An array of the device's that another library made."""
    location = ep.MemoryLocation(min(factory.memory_spaces.owned), 0)
    array = factory.memory_spaces.create_context(location).device.empty(
        [4], ep.DataType.FLOAT32
    )
    factory.contexts.clear()
    return array


def without(name: str) -> property:
    """An attribute that cannot be read."""

    def fail(self: object) -> Any:
        raise KeyError(name)

    return property(fail, lambda self, value: None)


# lent and borrowed


def test_an_export_that_fails_lends_nothing(factory: SimulatedFactory) -> None:
    value = on_device(X)
    with pytest.raises(BufferError, match="shared as it is and where it is"):
        value.__dlpack__(copy=True)
    del value
    gc.collect()  # the exception's frames refer to it
    assert factory.context().is_closed


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "words"),
    [
        (
            SimulatedContext,
            "create_stream",
            lambda self: 7,
            "DeviceContext.create_stream: it returned 7; expected a Stream, or None",
        ),
        (
            SimulatedStream,
            "native_handle",
            without("native_handle"),
            "Stream.native_handle: KeyError: 'native_handle'",
        ),
    ],
)
def test_an_import_that_fails_closes_it(
    factory: SimulatedFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
    wrong: Any,
    words: str,
) -> None:
    lent = lent_by(factory)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wrong, raising=False)
        with pytest.raises(EpError) as caught:
            onnxplug.OrtValue.from_dlpack(lent)
    assert str(caught.value) == f"{SIMULATED} failed in {words}"
    caught = None  # type: ignore[assignment]  # its frames refer to the context
    gc.collect()
    assert (factory.context().is_closed, caplog.text) == (True, "")


def test_a_stream_that_cannot_be_closed_is_logged(
    factory: SimulatedFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lent = lent_by(factory)
    value = onnxplug.OrtValue.from_dlpack(lent)
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedStream, "close", without("close"))
        del value
    assert f"{SIMULATED} failed in Stream.close: KeyError: 'close'" in caplog.text
    (stream,) = factory.context().open_streams
    stream.close()


# looking


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    create = SimulatedSpaces.create_context

    def count(self: SimulatedSpaces, location: ep.MemoryLocation) -> SimulatedContext:
        made.append(str(location))
        return create(self, location)

    monkeypatch.setattr(SimulatedSpaces, "create_context", count)
    return made


class Foreign:
    """An array on a device of nobody's, or of an EP's."""

    def __init__(self, where: tuple[int, int]) -> None:
        self.where = where

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, **options: Any) -> Any:
        raise NotImplementedError


def test_looking_leaves_nothing_open_and_is_done_once(
    simulated: MakeSimulated, made: list[str]
) -> None:
    factories = [simulated(), simulated(name="OtherExecutionProvider")]
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="whose memory no installed EP owns"):
            onnxplug.OrtValue.from_dlpack(Foreign((99, 0)))
    assert sorted(made) == ["other:0", "simulated:0"]
    assert all(each.context().is_closed for each in factories)


def test_a_device_that_is_not_there_is_looked_for_once(
    factory: SimulatedFactory, made: list[str]
) -> None:
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="whose memory no installed EP owns"):
            onnxplug.OrtValue.from_dlpack(Foreign((99, 5)))
    assert made == ["simulated:5"]


def test_a_device_that_could_not_be_opened_is_looked_at_again(
    simulated: MakeSimulated, made: list[str]
) -> None:
    simulated(fail_at=Stage.CONTEXT)
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            onnxplug.OrtValue.from_dlpack(Foreign((99, 0)))
    assert made == ["simulated:0"] * 2


def test_a_device_that_dlpack_cannot_be_told_of_is_used_otherwise(
    simulated: MakeSimulated, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factory, other = simulated(), simulated(name="TheOtherExecutionProvider")
    lent = lent_by(other)
    made.clear()
    create = SimulatedSpaces.create_context

    class Mute(SimulatedContext):
        dlpack_device = without("dlpack_device")  # type: ignore[assignment]

    def mute(self: SimulatedSpaces, location: ep.MemoryLocation) -> SimulatedContext:
        context = create(self, location)
        if self is factory.memory_spaces:
            context.__class__ = Mute
        return context

    monkeypatch.setattr(SimulatedSpaces, "create_context", mute)
    for _ in range(2):
        np.testing.assert_array_equal(on_device(X).numpy(), X)
        assert factory.context().is_closed
        with pytest.raises(InvalidArgument, match="whose memory no installed EP owns"):
            onnxplug.OrtValue.from_dlpack(Foreign((99, 0)))
        assert factory.context().is_closed
    # it is asked every time, as it may answer the next
    assert made == [*["simulated:0"] * 2, "theother:0", *["simulated:0"] * 2]
    assert onnxplug.OrtValue.from_dlpack(lent).location.space == "theother"


def test_a_location_that_is_not_there_leaves_nothing_behind(
    factory: SimulatedFactory,
) -> None:
    def places() -> int:
        gc.collect()
        kinds = [type(each).__name__ for each in gc.get_objects()]
        return kinds.count("_Place")

    before = places()
    for ordinal in range(100, 200):
        for space in ("simulated", "nowhere"):
            with pytest.raises(EpError):
                registry.contexts.at(ep.MemoryLocation(space, ordinal))
    assert places() == before


def test_what_was_seen_of_an_ep_that_goes_meanwhile_is_not_seen_of_the_next(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated()
    lent = lent_by(factory)

    class Replaced(SimulatedContext):
        @property
        def dlpack_device(self) -> tuple[int, int]:  # type: ignore[override]
            if self.knobs is factory.knobs:  # the first time
                self.knobs = Knobs()
                registry.remove(SIMULATED)
                simulated()
            return (99, 0)

        @dlpack_device.setter
        def dlpack_device(self, value: tuple[int, int]) -> None: ...

    create = SimulatedSpaces.create_context

    def replaced(
        self: SimulatedSpaces, location: ep.MemoryLocation
    ) -> SimulatedContext:
        monkeypatch.undo()
        context = create(self, location)
        context.__class__ = Replaced
        return context

    monkeypatch.setattr(SimulatedSpaces, "create_context", replaced)
    with pytest.raises(InvalidArgument, match="whose memory no installed EP owns"):
        onnxplug.OrtValue.from_dlpack(lent)
    assert onnxplug.OrtValue.from_dlpack(lent).location == HERE


def test_what_was_seen_of_an_ep_is_forgotten_with_it(
    simulated: MakeSimulated, made: list[str]
) -> None:
    for _ in range(2):
        factory = simulated()
        with pytest.raises(InvalidArgument):
            onnxplug.OrtValue.from_dlpack(Foreign((99, 0)))
        registry.remove(factory.name)
    assert made == ["simulated:0"] * 2


def test_a_space_that_cannot_be_had_hides_no_other_of_its_ep(
    simulated: MakeSimulated,
) -> None:
    factory = simulated(device_count=1)
    lent = lent_by(factory)
    factory.memory_spaces.owned = frozenset({"nearby", "simulated"})
    create = factory.memory_spaces.create_context

    def only_one(location: ep.MemoryLocation) -> SimulatedContext:
        if location.space == "nearby":
            raise LookupError("not here")
        return create(location)

    factory.memory_spaces.create_context = only_one  # type: ignore[method-assign]
    value = onnxplug.OrtValue.from_dlpack(lent)
    assert value.location == HERE
