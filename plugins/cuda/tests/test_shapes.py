"""Shapes of workgroups by generation."""

from __future__ import annotations

import pytest

from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.options import Settings
from onnxplug_cuda.shapes import shapes_for
from onnxplug_cuda.target import CudaTarget


@pytest.mark.parametrize(
    ("capability", "elements"),
    [
        ((6, 1), ""),
        ((7, 0), ""),
        ((7, 5), "f16 i8"),
        ((8, 0), "f16 bf16 i8"),
        ((12, 0), "f16 bf16 i8"),
    ],
)
def test_tensor_cores_multiply_what_their_generation_has(
    capability: tuple[int, int], elements: str
) -> None:
    shapes = shapes_for(capability)
    shapes.check()
    assert shapes.tensor_cores == elements
    has_tf32 = elements == "f16 bf16 i8"
    rounding = shapes_for(capability, tf32=True).tensor_cores
    assert rounding == elements + " tf32" * has_tf32
    assert shapes.row_lanes % 32 == shapes.few_lanes % 32 == 0


@pytest.mark.parametrize("count", [40, 132])
def test_workgroups_are_counted_against_multiprocessors(
    device: CudaDevice, count: int
) -> None:
    driver = device.driver
    assert driver.properties.multiprocessors == 132
    driver.properties = driver.properties._replace(multiprocessors=count)
    shapes = CudaTarget(device, Settings()).shapes
    shapes.check()
    assert shapes.busy == count
