"""Bound outputs that are filled on a device, and constants there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.device_arrays import constant_on_device, fill_bound
from onnxplug_testing import (
    DeviceArray,
    Knobs,
    SimulatedContext,
    SimulatedExecutionProvider,
    SimulatedFactory,
)

MakeSimulated = Callable[..., SimulatedFactory]
HERE = ep.MemoryLocation("simulated", 0)
X = np.array([1, 2, 3, 4], np.float32)
MODEL = onnx.helper.make_model(
    onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [64])],
        [onnx.helper.make_tensor_value_info("y", 1, [64])],
        [onnx.numpy_helper.from_array(np.arange(64, dtype=np.float32), "w")],
    ),
    opset_imports=[onnx.helper.make_opsetid("", 21)],
    ir_version=10,
)


@pytest.fixture
def device() -> SimulatedContext:
    return SimulatedFactory(Knobs()).memory_spaces.create_context(HERE)


def put(device: SimulatedContext, array: np.ndarray) -> DeviceArray:
    made = device.device.empty(array.shape, ep.DataType.from_numpy(array.dtype))
    device.transfer.copy([(array, made)], None)
    return made


def get(device: SimulatedContext, array: DeviceArray) -> np.ndarray:
    found = np.zeros(array.shape, array.dtype)
    device.transfer.copy([(array, found)], None)
    return found


def test_bound_arrays_are_filled_on_the_device_in_the_order_of_the_stream(
    device: SimulatedContext,
) -> None:
    stream = device.create_stream()
    assert stream is not None
    first, second, bound = put(device, X), put(device, X + 1), put(device, 0 * X)
    device.transfer.copies.clear()
    filled = fill_bound([first, second], [None, bound], device, stream)
    assert filled == [first, bound]
    assert get(device, bound).tolist() == [0, 0, 0, 0]
    stream.synchronize()
    assert get(device, bound).tolist() == [2, 3, 4, 5]
    (copy, *_) = device.transfer.copies
    assert copy.source == copy.target == HERE


def test_a_result_that_is_the_bound_array_is_not_copied(
    device: SimulatedContext,
) -> None:
    bound = put(device, X)
    device.transfer.copies.clear()
    assert fill_bound([bound], [bound], device, None) == [bound]
    assert fill_bound([bound], [None], device, None) == [bound]
    assert not device.transfer.copies


@pytest.mark.parametrize("wrong", [X[:3], X.astype(np.float64)])
def test_nothing_is_written_where_one_does_not_fit(
    device: SimulatedContext, wrong: np.ndarray
) -> None:
    made, good, bad = put(device, X), put(device, 0 * X), put(device, wrong)
    with pytest.raises(ep.OutputMismatch, match=r"output 1 is float32\[4\], and the"):
        fill_bound([made, made], [good, bad], device, None)
    assert not get(device, good).any()


def compiled_constants(
    monkeypatch: pytest.MonkeyPatch, simulated: MakeSimulated, *, shares: bool
) -> list[Any]:
    """What two sessions of one model have of its constant."""
    found: list[Any] = []
    compile_ = SimulatedExecutionProvider.compile
    create = SimulatedFactory.create

    def create_kept(self: Any, devices: Any, options: Any, session: Any) -> Any:
        made = create(self, devices, options, session)
        made.weights = session.weights(made.location) if shares else None
        return made

    def compile_constant(self: Any, partition: ep.Partition) -> Any:
        array = constant_on_device(partition, "w", self.context, self.weights)
        found.append(array)
        with pytest.raises(LookupError, match="'x' is no constant"):
            constant_on_device(partition, "x", self.context)
        return compile_(self, partition)

    monkeypatch.setattr(SimulatedFactory, "create", create_kept)
    monkeypatch.setattr(SimulatedExecutionProvider, "compile", compile_constant)
    simulated()
    data = MODEL.SerializeToString()
    sessions = [
        onnxplug.InferenceSession(data, providers=["simulated"]) for _ in range(2)
    ]
    assert get(found[0].context, found[0]).tolist() == list(range(64))
    for session in sessions:
        session.close()
    return found


def test_sessions_share_a_constant_on_the_device(
    monkeypatch: pytest.MonkeyPatch, simulated: MakeSimulated
) -> None:
    first, second = compiled_constants(monkeypatch, simulated, shares=True)
    assert first is second


def test_without_a_store_each_has_its_own(
    monkeypatch: pytest.MonkeyPatch, simulated: MakeSimulated
) -> None:
    first, second = compiled_constants(monkeypatch, simulated, shares=False)
    assert first is not second
