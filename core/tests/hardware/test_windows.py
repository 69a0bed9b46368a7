"""Windows: what becomes of the answers of DXGI, DXCore and the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from onnxplug.ep import DeviceType, HardwareDevice
from onnxplug.hardware import windows
from onnxplug.hardware.windows import DxcoreAdapter, DxgiAdapter


@dataclass
class Answers:
    """What a system says."""

    gpus: Sequence[DxgiAdapter] = ()
    compute: Sequence[DxcoreAdapter] = ()
    cpu: tuple[str, str] = ("GenuineIntel", "Intel(R) Core(TM) Ultra 7 155H")

    def processor(self) -> tuple[str, str]:
        return self.cpu

    def dxgi(self) -> Sequence[DxgiAdapter]:
        return self.gpus

    def dxcore(self) -> Sequence[DxcoreAdapter]:
        return self.compute


IGPU = DxgiAdapter(
    luid=0x1_0000_ABCD,
    number=0,
    vendor_id=0x8086,
    device_id=0x7D55,
    description="Intel(R) Arc(TM) Graphics",
    video_memory=128 << 20,
    performance_rank=1,
)
DGPU = DxgiAdapter(
    luid=70000,
    number=1,
    vendor_id=0x10DE,
    device_id=0x28A1,
    description="NVIDIA GeForce RTX 4050 Laptop GPU",
    video_memory=5921 << 20,
    performance_rank=0,
)
BASIC_RENDER = DxgiAdapter(
    luid=80000,
    number=2,
    vendor_id=0x1414,
    device_id=0x8C,
    description="Microsoft Basic Render Driver",
    software=True,
    performance_rank=2,
)
NPU = DxcoreAdapter(
    luid=90000,
    vendor_id=0x8086,
    device_id=0x7D1D,
    description="Intel(R) AI Boost",
    gpu=False,
    integrated=True,
)


def core(adapter: DxgiAdapter, *, integrated: bool | None) -> DxcoreAdapter:
    """The same adapter as DXCore sees it."""
    return DxcoreAdapter(
        luid=adapter.luid,
        vendor_id=adapter.vendor_id,
        device_id=adapter.device_id,
        description=adapter.description,
        hardware=not adapter.software,
        integrated=integrated,
    )


def test_a_laptop_with_two_gpus_and_an_npu() -> None:
    laptop = Answers(
        gpus=[IGPU, DGPU, BASIC_RENDER],
        compute=[
            NPU,
            core(BASIC_RENDER, integrated=False),
            core(DGPU, integrated=False),
            core(IGPU, integrated=True),
        ],
    )
    assert windows.find(laptop) == [
        HardwareDevice(
            type=DeviceType.CPU,
            vendor="Intel",
            vendor_id=0x8086,
            metadata={"Description": "Intel(R) Core(TM) Ultra 7 155H"},
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="Intel",
            vendor_id=0x8086,
            device_id=0x7D55,
            metadata={
                "LUID": "4295011277",
                "DxgiAdapterNumber": "0",
                "DxgiVideoMemory": "128 MB",
                "DxgiHighPerformanceIndex": "1",
                "Discrete": "0",
                "Description": "Intel(R) Arc(TM) Graphics",
            },
        ),
        HardwareDevice(
            type=DeviceType.GPU,
            vendor="NVIDIA",
            vendor_id=0x10DE,
            device_id=0x28A1,
            metadata={
                "LUID": "70000",
                "DxgiAdapterNumber": "1",
                "DxgiVideoMemory": "5921 MB",
                "DxgiHighPerformanceIndex": "0",
                "Discrete": "1",
                "Description": "NVIDIA GeForce RTX 4050 Laptop GPU",
            },
        ),
        HardwareDevice(
            type=DeviceType.NPU,
            vendor="Intel",
            vendor_id=0x8086,
            device_id=0x7D1D,
            metadata={
                "LUID": "90000",
                "Discrete": "0",
                "Description": "Intel(R) AI Boost",
            },
        ),
    ]


def test_the_order_of_answers_does_not_matter() -> None:
    gpus = [IGPU, DGPU, BASIC_RENDER]
    compute = [NPU, core(DGPU, integrated=False), core(IGPU, integrated=True)]
    one = windows.find(Answers(gpus=gpus, compute=compute))
    other = windows.find(Answers(gpus=gpus[::-1], compute=compute[::-1]))
    assert one == other


def test_software_does_not_count_in_the_performance_order() -> None:
    fastest = DxgiAdapter(
        luid=1, number=5, vendor_id=0x1414, device_id=0x8C, performance_rank=-1
    )
    found = windows.find(Answers(gpus=[fastest, DGPU, IGPU]))
    ranks = [gpu.metadata["DxgiHighPerformanceIndex"] for gpu in found[1:]]
    assert ranks == ["1", "0"]


def test_an_old_windows_without_dxcore_and_preferences() -> None:
    old = DxgiAdapter(luid=5, number=0, vendor_id=0x1002, device_id=0x6FDF)
    [_, gpu] = windows.find(Answers(gpus=[old]))
    assert gpu.vendor == "AMD"
    assert gpu.metadata == {
        "LUID": "5",
        "DxgiAdapterNumber": "0",
        "DxgiVideoMemory": "0 MB",
    }


def test_the_basic_render_driver_is_known_by_its_ids_too() -> None:
    unmarked = DxgiAdapter(luid=5, number=0, vendor_id=0x1414, device_id=0x8C)
    assert len(windows.find(Answers(gpus=[unmarked]))) == 1


def test_a_gpu_without_graphics_is_a_gpu() -> None:
    h100 = DxcoreAdapter(luid=5, vendor_id=0x10DE, device_id=0x2330, integrated=False)
    [_, gpu] = windows.find(Answers(compute=[h100]))
    assert (gpu.type, gpu.metadata) == (
        DeviceType.GPU,
        {"LUID": "5", "Discrete": "1"},
    )


def test_a_snapdragon_laptop() -> None:
    adreno = DxgiAdapter(luid=1, number=0, vendor_id=0x4D4F4351, device_id=0x36334330)
    hexagon = DxcoreAdapter(
        luid=2, vendor_id=0x4D4F4351, device_id=0x41304430, gpu=False
    )
    found = windows.find(
        Answers(
            gpus=[adreno],
            compute=[hexagon],
            cpu=("Qualcomm Technologies Inc", "Snapdragon(R) X Elite "),
        )
    )
    assert {device.vendor for device in found} == {"Qualcomm"}
    assert {device.vendor_id for device in found} == {0x4D4F4351}
    assert found[0].metadata == {"Description": "Snapdragon(R) X Elite"}


@pytest.mark.parametrize("identity", ["", "Somebody Else"])
def test_a_system_that_says_nothing_has_a_cpu(identity: str) -> None:
    [cpu] = windows.find(Answers(cpu=(identity, "")))
    assert cpu == HardwareDevice(type=DeviceType.CPU, vendor=identity)
