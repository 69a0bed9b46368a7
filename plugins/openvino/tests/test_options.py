"""The options: what they come to, and what is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.ep import DeviceType, EpDevice, HardwareDevice
from onnxplug.errors import OnnxplugError, OptionError
from onnxplug_openvino.options import OPTIONS, Settings, read_settings

EP = "OpenVINOExecutionProvider"


def read(kind: DeviceType = DeviceType.CPU, threads: int = 0, **given: Any) -> Settings:
    device = EpDevice(ep_name=EP, device=HardwareDevice(type=kind))
    values = {name: option.default for name, option in OPTIONS.items()}
    return read_settings([device], values | given, threads)


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ({}, "CPU"),
        ({"device_type": "CPU"}, "CPU"),
        ({"device_type": "gpu.1"}, "GPU.1"),
        ({"device_type": "GPU", "device_id": "1"}, "GPU.1"),
        ({"device_id": "GPU.1"}, "GPU.1"),
        ({"device_type": "CPU", "device_id": "0"}, "CPU"),
        ({"device_type": "CPU", "device_id": "CPU"}, "CPU"),
        ({"device_type": "NPU"}, "NPU"),
        ({"device_type": "AUTO"}, "AUTO"),
        ({"device_type": "AUTO:GPU,CPU"}, "AUTO:GPU,CPU"),
        ({"device_type": "HETERO:GPU.1,CPU"}, "HETERO:GPU.1,CPU"),
        ({"device_type": "CPU_FP32"}, "CPU"),
        ({"device_type": "GPU_FP16"}, "GPU"),
    ],
)
def test_device_names(given: dict[str, str], device: str) -> None:
    assert read(**given).device == device


def test_the_sessions_device_is_the_default() -> None:
    assert read(DeviceType.GPU).device == "GPU"
    assert read(DeviceType.NPU).device == "NPU"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"device_type": "TPU"}, "expected CPU, GPU"),
        ({"device_type": "HETERO:"}, "after the colon"),
        ({"device_type": "AUTO:TPU"}, "after the colon"),
        ({"device_type": "CPU", "device_id": "3"}, "does not go with device CPU"),
        ({"device_type": "GPU", "device_id": "first"}, "expected a number"),
        ({"device_type": "CPU_FP16", "precision": "BF16"}, "'precision' says BF16"),
        ({"load_config": "{"}, "not JSON"),
        ({"load_config": "[1]"}, "cannot be read"),
        ({"load_config": '{"CPU": 1}'}, "object of objects"),
        ({"load_config": '{"TPU": {}}'}, "'TPU'"),
        ({"load_config": "no/such/file.json"}, "cannot be read"),
        ({"reshape_input": "x[1,"}, "expected input"),
        ({"reshape_input": "x[one]"}, "expected input"),
        ({"enable_opencl_throttling": True}, "concerns GPUs"),
    ],
)
def test_what_has_no_meaning_is_refused_with_a_reason(
    given: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        read(**given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"layout": "x[NCHW]"}, "ONNX fixes the layout"),
        ({"device_luid": "1"}, "device_id"),
        ({"enable_qdq_optimizer": True}, "by itself"),
        ({"context": "1"}, "OpenCL"),
        ({"enable_causallm": True}, "as written"),
        ({"weights_metadata_map": "1"}, "in memory"),
        ({"shared_context": True}, "sessions"),
    ],
)
def test_options_of_onnxruntime_without_meaning_here_tell_why(
    given: dict[str, Any], text: str, parse: Callable[..., Any]
) -> None:
    with pytest.raises(OptionError, match=f"cannot be set: .*{text}"):
        onnxplug.InferenceSession(parse("y = Relu (x)"), providers=[(EP, given)])


def test_float32_is_computed_in_float32_unless_told_otherwise() -> None:
    assert read().properties["INFERENCE_PRECISION_HINT"] == "f32"
    assert read(precision="BF16").properties["INFERENCE_PRECISION_HINT"] == "bf16"
    assert read(device_type="GPU_FP16").properties["INFERENCE_PRECISION_HINT"] == "f16"
    accurate = read(precision="ACCURACY").properties
    assert accurate == {
        "EXECUTION_MODE_HINT": "ACCURACY",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }


def test_activations_are_quantised_where_less_than_float32_is_asked_for() -> None:
    name = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
    assert read().properties[name] == 0
    assert name not in read(precision="BF16").properties
    assert name not in read(device_type="NPU").properties


def test_threads_come_from_the_option_or_else_from_the_session() -> None:
    assert read(threads=3).properties["INFERENCE_NUM_THREADS"] == 3
    assert read(threads=3, num_of_threads=2).properties["INFERENCE_NUM_THREADS"] == 2
    assert "INFERENCE_NUM_THREADS" not in read().properties


def test_the_config_outranks_the_other_options(tmp_path: Path) -> None:
    text = json.dumps({"CPU": {"NUM_STREAMS": "2"}, "GPU": {"NUM_STREAMS": "9"}})
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    for written in (text, str(path)):
        properties = read(num_streams=4, load_config=written).properties
        assert properties["NUM_STREAMS"] == "2"


def test_shapes_are_read_by_input() -> None:
    settings = read(reshape_input="data[1,3,60,80..100], mask [ 2 , ? ],scalar[]")
    assert settings.shapes == {
        "data": "[1,3,60,80..100]",
        "mask": "[2,?]",
        "scalar": "[]",
    }


def test_an_unknown_option_names_the_nearest(parse: Callable[..., Any]) -> None:
    with pytest.raises(OptionError, match="num_of_threads"):
        onnxplug.InferenceSession(
            parse("y = Relu (x)"), providers=[(EP, {"num_of_thread": 1})]
        )


def test_hardware_that_openvino_does_not_find_is_an_error(
    parse: Callable[..., Any], core: Any
) -> None:
    if "NPU" in core.available_devices:
        pytest.skip("this machine has an NPU")
    with pytest.raises(OnnxplugError, match="OpenVINO finds no NPU here"):
        onnxplug.InferenceSession(
            parse("y = Relu (x)"), providers=[(EP, {"device_type": "NPU"})]
        )


def test_a_precision_that_the_processor_has_not_is_an_error(
    parse: Callable[..., Any], core: Any
) -> None:
    if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor computes bfloat16")
    with pytest.raises(OptionError, match="cannot compute here"):
        onnxplug.InferenceSession(
            parse("y = Relu (x)"), providers=[(EP, {"precision": "BF16"})]
        )


@pytest.mark.parametrize(
    "given",
    [{"model_priority": "HIGH"}, {"load_config": '{"CPU": {"NO_SUCH": "1"}}'}],
    ids=["option", "config"],
)
def test_a_property_that_the_device_has_not_is_an_error(
    given: dict[str, str], parse: Callable[..., Any]
) -> None:
    with pytest.raises(OptionError, match="has no property"):
        onnxplug.InferenceSession(parse("y = Relu (x)"), providers=[(EP, given)])


def test_every_other_option_is_taken(
    parse: Callable[..., Any], alone: Callable[..., Any], tmp_path: Path
) -> None:
    session = alone(
        parse("y = Relu (x)"), device_type="CPU_FP32", num_of_threads=1, num_streams=2,
        cache_dir=str(tmp_path), device_id="0",
        load_config='{"CPU": {"PERFORMANCE_HINT": "LATENCY"}}',
    )  # fmt: skip
    x = np.array([[1, -1], [-2, 2]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
    assert any(tmp_path.iterdir()), "nothing was cached"


@pytest.mark.parametrize(
    "device", ["AUTO", "AUTO:CPU", "AUTO:-GPU,-NPU", "HETERO:CPU", "MULTI:CPU"]
)
def test_devices_that_choose_devices(
    device: str, parse: Callable[..., Any], alone: Callable[..., Any]
) -> None:
    session = alone(parse("y = Relu (x)"), device_type=device, num_of_threads=1)
    x = np.array([[1, -1], [-2, 2]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
