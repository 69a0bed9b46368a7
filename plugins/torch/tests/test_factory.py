"""Which devices are offered, and what is said where torch is missing."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug_torch import border
from onnxplug_torch import factory as module
from onnxplug_torch.devices import Place, match, obstacle, parse
from onnxplug_torch.factory import TorchFactory
from onnxplug_torch.installation import Build
from onnxplug_torch.options import OPTIONS

CPU = HardwareDevice(type=DeviceType.CPU, vendor="Intel", vendor_id=0x8086)
NVIDIA = HardwareDevice(type=DeviceType.GPU, vendor="NVIDIA", vendor_id=0x10DE)
AMD = HardwareDevice(type=DeviceType.GPU, vendor="AMD", vendor_id=0x1002)
INTEL = HardwareDevice(type=DeviceType.GPU, vendor="Intel", vendor_id=0x8086)
APPLE = HardwareDevice(type=DeviceType.GPU, vendor="Apple", vendor_id=0x106B)
NPU = HardwareDevice(type=DeviceType.NPU, vendor="Intel", vendor_id=0x8086)

CPU_BUILD = Build("2.13.0+cpu", "", "", "")
CUDA_BUILD = Build("2.13.0+cu130", "13.0", "", "")
HIP_BUILD = Build("2.13.0+rocm7", "", "7.0", "")


def with_build(monkeypatch: pytest.MonkeyPatch, build: Build | None) -> TorchFactory:
    monkeypatch.setattr(module, "find_build", lambda: build)
    monkeypatch.setitem(sys.modules, "torch", None)
    return TorchFactory()


def test_without_torch_devices_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factory = with_build(monkeypatch, None)
    refused = list(factory.supported_devices([CPU, NVIDIA, NPU]))
    assert [type(each) for each in refused] == [ep.RefusedDevice] * 2
    for each in refused:
        assert isinstance(each, ep.RefusedDevice)
        assert each.reason == "torch is not installed"
        assert "pytorch.org" in each.remedy
    (finding,) = factory.diagnose()
    assert finding.level is ep.Level.ERROR


def test_a_torch_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = with_build(monkeypatch, Build("2.5.1", "", "", ""))
    (refused,) = factory.supported_devices([CPU])
    assert isinstance(refused, ep.RefusedDevice)
    assert "2.5.1 is older than 2.6" in refused.reason


def test_gpus_follow_from_what_torch_was_built_for() -> None:
    devices = [CPU, NVIDIA, AMD, INTEL, NVIDIA, APPLE, NPU]
    places = [place for _, place in match(devices, CUDA_BUILD)]
    assert places[:2] == [Place("cpu", 0), Place("cuda", 0)]
    assert "built without ROCm" in places[2]
    assert "built without XPU" in places[3]
    assert places[4:6] == [Place("cuda", 1), Place("mps", 0)]
    assert len(places) == 6
    ((_, place),) = match([AMD], HIP_BUILD)
    assert isinstance(place, Place)
    # torch calls it cuda; its memory is another
    assert place.torch_name == "cuda:0"
    assert place.location == ep.MemoryLocation("hip", 0)
    assert parse("cuda:1", HIP_BUILD) == Place("hip", 1)


@pytest.mark.parametrize(
    ("build", "place", "reason"),
    [
        (CPU_BUILD, Place("cpu", 0), ""),
        (CPU_BUILD, Place("cpu", 1), "finds no device cpu:1"),
        (CPU_BUILD, Place("cuda", 0), "built without CUDA; install the build"),
        (CPU_BUILD, Place("xpu", 0), "built without XPU; install the build"),
        (CUDA_BUILD, Place("cuda", 1), ""),
        (CUDA_BUILD, Place("cuda", 2), "finds no device cuda:2"),
        # AMD's devices are torch's cuda, too, and their memory is not CUDA's
        (CUDA_BUILD, Place("hip", 0), "built without ROCm"),
        (HIP_BUILD, Place("cuda", 0), "built without CUDA"),
        (HIP_BUILD, Place("hip", 2), "finds no device cuda:2"),
        (CPU_BUILD, Place("mps", 0), ""),
        (CPU_BUILD, Place("mps", 1), "finds no device mps:1"),
    ],
    ids=str,
)
def test_what_keeps_torch_from_a_device(
    build: Build, place: Place, reason: str
) -> None:
    two = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    torch = SimpleNamespace(cuda=two, xpu=two, backends=SimpleNamespace(mps=two))
    found = obstacle(torch, build, place)
    assert reason in found and bool(reason) == bool(found)


def test_the_processor_is_for_those_who_name_the_ep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factory = with_build(monkeypatch, CUDA_BUILD)
    pairs = [
        pair
        for pair in factory.supported_devices([CPU, NVIDIA])
        if isinstance(pair, ep.EpDevice)
    ]
    assert [pair.by_name_only for pair in pairs] == [True, False]
    assert pairs[1].metadata["torch_device"] == "cuda:0"
    # an EP of the device's own maker comes before it
    assert pairs[1].ep_vendor != pairs[1].device.vendor


def test_a_loaded_torch_tells_name_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=150_000_000_000)
    cuda = SimpleNamespace(
        device_count=lambda: 1, get_device_properties=lambda _: properties
    )
    factory = with_build(monkeypatch, CUDA_BUILD)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    first, second = factory.supported_devices([NVIDIA, NVIDIA])
    assert isinstance(first, ep.EpDevice) and isinstance(second, ep.EpDevice)
    assert first.metadata["name"] == "NVIDIA H200"
    assert first.metadata["total_memory"] == "150000000000"
    # torch finds one of them only
    assert second.metadata.keys() == {"version", "engine_version", "torch_device"}


def test_the_doctor_is_told_what_torch_drives(torch: Any) -> None:
    (finding,) = TorchFactory().diagnose()
    assert finding.level is ep.Level.OK
    assert f"torch {torch.__version__} drives cpu" in finding.message


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_allowed_where_the_option_says_so(
    monkeypatch: pytest.MonkeyPatch, torch: Any, allowed: bool
) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    one = SimpleNamespace(is_available=lambda: True, device_count=lambda: 1)
    monkeypatch.setattr(module, "find_build", lambda: CUDA_BUILD)
    (pair,) = TorchFactory().supported_devices([NVIDIA])
    monkeypatch.setattr(torch, "cuda", one)
    # no device is there for more than the settings
    monkeypatch.setattr(border, "border_at", lambda *_: border.HostBorder(torch))
    assert isinstance(pair, ep.EpDevice)
    options = {name: option.default for name, option in OPTIONS.items()}
    context: Any = SimpleNamespace(intra_op_num_threads=0)
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = not allowed
        TorchFactory().create([pair], options | {"allow_tf32": allowed}, context)
        assert (matmul.allow_tf32, cudnn.allow_tf32) == (allowed, allowed)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


@pytest.mark.parametrize("policy", ["prefer_cpu", "max_performance", "max_efficiency"])
def test_no_policy_picks_the_processor(torch: Any, policy: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) '
        "{ y = Relu (x) }"
    )
    session = onnxplug.InferenceSession(model, policy=policy)
    assert "TorchExecutionProvider" not in session.get_providers()
    assert not [
        each for each in session.explain().eps if each.ep == "TorchExecutionProvider"
    ]
    by_name = onnxplug.InferenceSession(model, providers=["torch"])
    (node,) = by_name.explain().nodes
    assert node.ep == "TorchExecutionProvider"
    np.testing.assert_array_equal(
        by_name.run(None, {"x": np.array([-1, 2], np.float32)})[0], [0, 2]
    )


def test_listing_devices_imports_no_torch() -> None:
    program = (
        "import sys, onnxplug; onnxplug.get_ep_devices(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_its_operators_are_listed_without_torch() -> None:
    program = (
        "import sys; from onnxplug_torch.factory import TorchFactory; "
        "assert len(list(TorchFactory().operators())) > 150; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
