"""Which devices are offered, and what is said where something is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug_compiler.gpu.execution.device import DeviceLost
from onnxplug_cuda import installation
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.factory import CudaFactory
from onnxplug_cuda.spaces import choose

from .standin import CuPy, Machine

CPU = HardwareDevice(type=DeviceType.CPU, vendor="Intel", vendor_id=0x8086)
AMD = HardwareDevice(type=DeviceType.GPU, vendor="AMD", vendor_id=0x1002)
H100 = HardwareDevice(
    type=DeviceType.GPU,
    vendor="NVIDIA",
    vendor_id=0x10DE,
    metadata={"pci_bus_id": "0000:65:00.0"},
)


def with_installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> CudaFactory:
    named = {name.replace("_", "-"): version for name, version in versions.items()}

    def find(name: str) -> str:
        if name not in named:
            raise installation.importlib.metadata.PackageNotFoundError(name)
        return named[name]

    monkeypatch.setattr(installation.importlib.metadata, "version", find)
    return CudaFactory()


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        ({}, "CuPy for CUDA is not installed"),
        ({"cupy_cuda12x": "13.6.0"}, "cupy-cuda12x 13.6.0 is older than 14.2"),
    ],
)
def test_without_its_engine_devices_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], reason: str
) -> None:
    factory = with_installed(monkeypatch, **versions)
    (refused,) = factory.supported_devices([CPU, AMD, H100])
    assert isinstance(refused, ep.RefusedDevice)
    assert (refused.device, refused.reason) == (H100, reason)
    assert "onnxplug-cuda[cu" in refused.remedy
    assert reason in [finding.message for finding in factory.diagnose()]


def test_gpus_of_nvidia_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = with_installed(monkeypatch, cupy_cuda13x="14.2.0")
    pairs: list[Any] = list(factory.supported_devices([CPU, AMD, H100]))
    assert [pair.device for pair in pairs] == [H100]
    assert pairs[0].metadata == {
        "version": "0.1.0",
        "engine_version": "14.2.0",
        "cuda_major": "13",
    }
    assert pairs[0].default_options == {"device_id": "-1"}


def test_what_computes_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"cupy-cuda13x": "14.2.0", "nvidia-cudnn-cu13": "9.19.1"}
    factory = with_installed(
        monkeypatch, **{key.replace("-", "_"): x for key, x in versions.items()}
    )
    (pair,) = factory.supported_devices([H100])
    assert isinstance(pair, ep.EpDevice)
    assert factory.engine_versions(pair) == versions


def test_listing_devices_loads_no_driver() -> None:
    program = (
        "import sys\n"
        "from onnxplug.ep import DeviceType, HardwareDevice\n"
        "from onnxplug_cuda.factory import CudaFactory\n"
        "gpu = HardwareDevice(type=DeviceType.GPU, vendor_id=0x10DE)\n"
        "list(CudaFactory().supported_devices([gpu]))\n"
        "print([n for n in sys.modules if n in ('cupy', 'numpy', 'cuda')])\n"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_a_gpu_is_meant_by_its_number_or_its_place(machine: Machine) -> None:
    cupy = CuPy(machine, devices=3)

    def at(address: str | None) -> list[ep.EpDevice]:
        facts = {} if address is None else {"pci_bus_id": address}
        gpu = HardwareDevice(
            type=DeviceType.GPU, vendor="NVIDIA", vendor_id=0x10DE, metadata=facts
        )
        return [ep.EpDevice(ep_name=CudaFactory.name, device=gpu)]

    assert choose(cupy, at("0000:12:00.0"), -1) == 2
    assert choose(cupy, at("0000:12:00.0"), 0) == 0
    assert choose(cupy, at(None), -1) == choose(cupy, [], -1) == 0
    with pytest.raises(ep.OptionError, match="'device_id' is 3, and CUDA sees 3"):
        choose(cupy, at(None), 3)
    with pytest.raises(LookupError, match="does not see the GPU at 0000:65"):
        choose(cupy, at("0000:65:00.0"), -1)
    machine.plan("getDeviceCount", 100)
    with pytest.raises(RuntimeError, match="CUDA_VISIBLE_DEVICES may hide them"):
        choose(cupy, at(None), 0)


@pytest.mark.parametrize(
    "function", ["driverGetVersion", "getDeviceCount", "deviceGetByPCIBusId"]
)
def test_where_cuda_does_nothing_more_the_device_is_lost(
    machine: Machine, function: str
) -> None:
    machine.plan(function, 700)
    gpu = HardwareDevice(
        type=DeviceType.GPU,
        vendor="NVIDIA",
        vendor_id=0x10DE,
        metadata={"pci_bus_id": "0000:10:00.0"},
    )
    with pytest.raises(DeviceLost, match="restart it"):
        choose(CuPy(machine), [ep.EpDevice(ep_name=CudaFactory.name, device=gpu)], -1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_the_child_of_a_fork_is_told(device: CudaDevice) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        told = 0
        try:
            signal.alarm(20)
            for use in (device.new_stream, device.ensure, lambda: device.memory(4)):
                try:
                    use()
                except RuntimeError as error:
                    told += "start processes by spawn" in str(error)
        finally:
            os._exit(told)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    device.new_stream().close()
