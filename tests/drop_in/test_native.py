"""What programs use of ONNX Runtime's native module, here and there alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnxruntime.capi import _pybind_state
from onnxruntime.capi import onnxruntime_inference_collection as collection

import onnxplug_onnxruntime as ort
from onnxplug.errors import OptionError, PluginNotFound

THEIRS = SimpleNamespace(
    module=onnxruntime,
    native=_pybind_state,
    normalise=collection.check_and_normalize_provider_args,
)
OURS = SimpleNamespace(
    module=ort, native=ort, normalise=ort.check_and_normalize_provider_args
)
BOTH = pytest.mark.parametrize("runtime", [THEIRS, OURS], ids=["theirs", "ours"])
CPU = "CPUExecutionProvider"


def identity(dtype: str) -> bytes:
    text = (
        f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[N, 2] X) => '
        f"({dtype}[N, 2] Y) {{ Y = Identity (X) }}"
    )
    return onnx.parser.parse_model(text).SerializeToString()


@BOTH
def test_a_session_of_values_takes_its_arguments_in_another_order(runtime: Any) -> None:
    session = runtime.module.InferenceSession(identity("float"), providers=[CPU])
    x = np.float32([[1, 2]])
    value = runtime.module.OrtValue.ortvalue_from_numpy(x)
    vector = session._sess.run_with_ort_values(
        {"X": value._get_c_value()}, ["Y"], runtime.module.RunOptions()
    )
    assert isinstance(vector, runtime.native.OrtValueVector)
    result = runtime.module.OrtValue(vector[0])
    assert (result.numpy() == x).all() and len(vector) == 1


@BOTH
@pytest.mark.parametrize("dtype", ["float", "uint8", "bool", "float16"])
def test_bindings_take_devices_as_objects(runtime: Any, dtype: str) -> None:
    native = runtime.native
    device = native.OrtDevice(
        native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0
    )
    array = np.arange(8).reshape(-1, 2).astype(dtype if dtype != "float" else "f")
    session = runtime.module.InferenceSession(identity(dtype), providers=[CPU])
    value = native.OrtValue.ortvalue_from_numpy(array, device)
    binding = native.SessionIOBinding(session._sess)
    binding.bind_ortvalue_input("X", value)
    binding.bind_output("Y", device)
    session._sess.run_with_iobinding(binding, None)
    assert isinstance(binding.get_outputs(), native.OrtValueVector)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), array)
    filled = np.empty_like(array)
    binding = native.SessionIOBinding(session._sess)
    binding.bind_input("X", device, array.dtype, array.shape, value.data_ptr())
    binding.bind_output("Y", device, array.dtype, array.shape, filled.ctypes.data)
    session._sess.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(filled, array)


@BOTH
def test_addresses_of_narrow_types_are_bound(runtime: Any) -> None:
    array = np.array([[1, 2]], ml_dtypes.bfloat16)
    filled = np.empty_like(array)
    session = runtime.module.InferenceSession(identity("bfloat16"), providers=[CPU])
    binding = session.io_binding()
    kind = TensorProto.BFLOAT16
    binding.bind_input("X", "cpu", 0, kind, array.shape, array.ctypes.data)
    binding.bind_output("Y", "cpu", 0, kind, filled.shape, filled.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(filled, array)


KNOWN = ["a", "b", "c"]


@BOTH
@pytest.mark.parametrize(
    ("providers", "options", "expected"),
    [
        (None, None, ([], [])),
        (["a", "b"], None, (["a", "b"], [{}, {}])),
        ([("a", {1: 2}), "b"], None, (["a", "b"], [{"1": "2"}, {}])),
        (["a", "b"], [{1: 2}, {}], (["a", "b"], [{"1": "2"}, {}])),
        (["a", "b", "a"], [{"x": 1}, {}, {"y": 2}], (["a", "b"], [{"x": "1"}, {}])),
    ],
)
def test_arguments_for_eps_are_read_alike(
    runtime: Any, providers: Any, options: Any, expected: Any
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert runtime.normalise(providers, options, KNOWN) == expected
    assert len(caught) == (providers == ["a", "b", "a"])
    with pytest.warns(UserWarning, match="not in available provider names"):
        runtime.normalise(["d"], None, KNOWN)


@BOTH
@pytest.mark.parametrize(
    ("providers", "options"),
    [
        (3, None),
        ([3], None),
        (["a"], 3),
        (["a"], ["not dict"]),
        (["a", "b"], [{1: 2}]),
        ([("a", {1: 2})], [{3: 4}]),
    ],
)
def test_wrong_arguments_for_eps_are_errors_alike(
    runtime: Any, providers: Any, options: Any
) -> None:
    with pytest.raises(ValueError):
        runtime.normalise(providers, options, KNOWN)


@BOTH
def test_arenas_keep_their_settings(runtime: Any) -> None:
    config = runtime.module.OrtArenaCfg(8, 0, 4, 2)
    assert (config.max_mem, config.arena_extend_strategy) == (8, 0)
    assert (config.initial_chunk_size_bytes, config.max_dead_bytes_per_chunk) == (4, 2)
    config = runtime.module.OrtArenaCfg({"max_power_of_two_extend_bytes": 17})
    assert config.max_power_of_two_extend_bytes == 17
    assert config.initial_growth_chunk_size_bytes == -1
    with pytest.raises((RuntimeError, ValueError)):
        runtime.module.OrtArenaCfg({"size": 17})


@BOTH
@pytest.mark.parametrize(
    "ask",
    [
        lambda ort: ort.SessionOptions().get_session_config_entry("KEY"),
        lambda ort: ort.RunOptions().get_run_config_entry("KEY"),
    ],
)
def test_entries_that_were_not_set_are_errors_alike(
    runtime: Any, ask: Callable[[Any], Any]
) -> None:
    message = "Options does not have configuration with key: KEY"
    with pytest.raises(RuntimeError, match=message) as caught:
        ask(runtime.module)
    assert runtime is THEIRS or isinstance(caught.value, OptionError)


@BOTH
def test_a_session_cannot_change_to_eps_that_nobody_knows(runtime: Any) -> None:
    session = runtime.module.InferenceSession(
        identity("float"), providers=[CPU], enable_fallback=0
    )
    with (
        warnings.catch_warnings(),
        pytest.raises(RuntimeError, match="Unknown Provider Type: Invalid") as caught,
    ):
        warnings.simplefilter("ignore", UserWarning)
        session.set_providers(["Invalid"])
    assert runtime is THEIRS or isinstance(caught.value, PluginNotFound)
    assert "Build Info" in runtime.module.get_build_info()
