"""Values in an adapter's memory, and what is left of runs and sessions."""

from __future__ import annotations

import gc
from contextlib import closing
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.ep import MemoryLocation
from onnxplug.plugins import registry
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.device.adapters import find_adapters
from onnxplug_directml.device.context import DmlContext
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.factory import DmlFactory

from .conftest import EP
from .standin import NPU, Windows


def open_one() -> DmlDevice:
    """A device on the GPU."""
    libraries = Libraries()
    return DmlDevice(libraries, find_adapters(libraries)[0])


X = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)


def on_device(array: np.ndarray[Any, Any], ordinal: int = 0) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "dml", ordinal)


def test_a_value_is_put_on_an_adapter_and_comes_back(
    windows: Windows, factory: DmlFactory
) -> None:
    value = on_device(X)
    assert value.device_name() == "dml"
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(2 * X)
    np.testing.assert_array_equal(value.numpy(), 2 * X)
    del value
    gc.collect()
    assert not windows.alive


def test_npus_are_counted_behind_dxgis_adapters(
    windows: Windows, factory: DmlFactory
) -> None:
    value = on_device(X, 2)
    assert list(windows.devices) == [NPU.luid]
    np.testing.assert_array_equal(value.numpy(), X)
    with pytest.raises(onnxplug.errors.OnnxplugError, match="there is no adapter 3"):
        on_device(X, 3)


def test_runs_on_bound_values_stay_on_the_adapter(
    windows: Windows, factory: DmlFactory, parse: Any
) -> None:
    # one whose results are not looked at, which is done on the host
    session = onnxplug.InferenceSession(parse("t = Neg(x) y = Exp(t)"), providers=[EP])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", "dml")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "dml"
    maps = windows.counts.by_method.get("Map", 0)
    binding.bind_ortvalue_input("x", y)
    session.run_with_iobinding(binding)
    assert windows.counts.by_method.get("Map", 0) == maps
    (z,) = binding.get_outputs()
    np.testing.assert_allclose(z.numpy(), np.exp(-np.exp(-X)), 1e-6)
    np.testing.assert_allclose(y.numpy(), np.exp(-X), 1e-6)
    room = on_device(np.zeros_like(X))
    binding.bind_ortvalue_output("y", room)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(room.numpy(), np.exp(-np.exp(-X)), 1e-6)


def test_a_bound_array_of_another_shape_is_not_written(alone: Any, parse: Any) -> None:
    session = alone(parse("y = Neg(x)"))
    room = on_device(np.zeros((3, 2), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_ortvalue_output("y", room)
    with pytest.raises(onnxplug.errors.InvalidArgument, match=r"\[2, ?3\]"):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(room.numpy(), np.zeros((3, 2)))


def test_runs_leave_nothing_behind(windows: Windows, alone: Any, parse: Any) -> None:
    session = alone(parse("m = Softmax(x) y = Neg(m)"))
    for _ in range(3):
        session.run(None, {"x": X})
    before, used = len(windows.alive), dict(windows.memory_used)
    for _ in range(20):
        session.run(None, {"x": X})
    assert len(windows.alive) == before
    assert windows.memory_used == used


def test_sessions_leave_nothing_behind(
    windows: Windows, alone: Any, parse: Any
) -> None:
    """One after another, and several of which the last one ends."""
    texts = ["m = Softmax(x) y = Neg(m)", "n = Neg(x) m = Exp(n) y = Neg(m)"]
    sessions = [alone(parse(text)) for text in texts]
    for session in sessions:
        session.run(None, {"x": X})
    device = registry.contexts.at(MemoryLocation("dml", 0)).context.device
    one = len(windows.alive)
    del session
    sessions.pop()
    gc.collect()
    device.collect()
    assert 0 < len(windows.alive) < one
    session = alone(parse(texts[1]))
    assert registry.contexts.at(MemoryLocation("dml", 0)).context.device is device
    del session, device
    sessions.clear()
    gc.collect()
    assert not windows.alive


def test_weights_are_given_back_once_directml_has_them(
    windows: Windows, alone: Any, parse: Any
) -> None:
    weights = np.ones((512, 512), np.float32)
    text = "y = MatMul(x, w)"
    model = parse(text, "float[2, 512] x, float[512, 512] w", "float[2, 512] y")
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = alone(model)
    x = np.ones((2, 512), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 512 * x)
    device = registry.contexts.at(MemoryLocation("dml", 0)).context.device
    device._make_room()
    used = sum(windows.memory_used.values())
    assert weights.nbytes <= used < 2 * weights.nbytes
    session.close()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_arrays_are_stacked_and_taken_there(
    windows: Windows, factory: DmlFactory, axis: int
) -> None:
    """Also of elements of one byte."""
    with closing(DmlContext(MemoryLocation("dml", 0), open_one)) as context:
        given = [
            np.arange(number, number + 30, dtype=np.int8).reshape(2, 5, 3)
            for number in range(4)
        ]
        arrays = []
        for each in given:
            arrays.append(context.new_array(each.shape, each.dtype, None))
            context.transfer.copy([(each, arrays[-1])], None)
        stacked = context.stack(arrays, axis, None)
        found = np.zeros(stacked.shape, np.int8)
        context.transfer.copy([(stacked, found)], None)
        np.testing.assert_array_equal(found, np.stack(given, axis))
        for index in range(found.shape[axis]):
            part = context.take(stacked, axis, index, None)
            taken = np.zeros(part.shape, np.int8)
            context.transfer.copy([(part, taken)], None)
            np.testing.assert_array_equal(taken, found.take(index, axis))


def test_what_is_in_use_is_counted(windows: Windows, factory: DmlFactory) -> None:
    with closing(open_one()) as device:
        before = device.used_bytes()
        memories = [device.memory(1 << 20) for _ in range(3)]
        assert device.used_bytes() == before + (3 << 20)
        memories.clear()
        assert device.used_bytes() == before
