"""Kernels in CUDA C++ are compiled for GPUs of all generations, by NVRTC."""

from __future__ import annotations

import os
from typing import Any

import pytest

from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_testing.nvrtc import ARCHITECTURES, Nvrtc, find_nvrtc

from .cuda_on_cpu import Processor, Rendered
from .test_cuda import SAMPLES


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    found = find_nvrtc()
    if found is None:
        message = "NVRTC is not installed; pip install nvidia-cuda-nvrtc"
        if "nvrtc" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="module")
def texts(processor: Processor) -> dict[str, int]:
    """Each text of the samples once, and how many lanes a block of it has."""
    found = {}
    for make in SAMPLES.values():
        recorder: Recorder[Any] = Recorder(GpuTarget())
        make(recorder, processor)
        for launch in recorder.commands:
            found[Rendered(launch).text] = launch.kernel.lanes
    assert len(found) > 30
    return found


def test_gpus_of_all_generations_take_them(nvrtc: Nvrtc, texts: dict[str, int]) -> None:
    """Hopper takes each, and each of the others some, without a spilled register."""
    known = nvrtc.architectures()
    assert set(known) == set(ARCHITECTURES)
    for number, (text, lanes) in enumerate(texts.items()):
        for architecture in {"sm_90", known[number % len(known)]}:
            assert not nvrtc.compile(text, architecture).beyond(lanes), text


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gpu_of_this_generation_takes_all(
    architecture: str, nvrtc: Nvrtc, texts: dict[str, int]
) -> None:
    for text, lanes in texts.items():
        assert not nvrtc.compile(text, architecture).beyond(lanes), text


def test_what_a_kernel_takes_of_a_gpu_is_counted(nvrtc: Nvrtc) -> None:
    """A lane with more numbers than registers, a block with too many of them, and a
    shared array."""
    many = "".join(f"  float v{n} = p[{n}];\n" for n in range(200))
    many += "  for (int i = 0; i < n; i++) {\n"
    many += "".join(f"    v{n} = v{n} * v{(n + 7) % 200} + p[i];\n" for n in range(200))
    many += "  }\n" + "".join(f"  p[{n} + n] = v{n};\n" for n in range(200))
    head = "__global__ void __launch_bounds__({}) kernel(float* p, int n) {{\n{}}}"
    spilled = nvrtc.compile(head.format(1024, many), "sm_90a")
    assert spilled.registers <= 64
    assert "are spilled" in spilled.beyond(1024)
    free = nvrtc.compile(head.format(32, many), "sm_90a")
    assert free.registers > 200
    assert free.beyond(32) == ""
    assert "512 lanes of" in free.beyond(512)
    body = "__shared__ float s[300]; s[n] = p[n]; __syncthreads(); p[n] = s[n + 1];\n"
    assert nvrtc.compile(head.format(32, body), "sm_75").shared == 1200


def test_nvrtc_refuses_what_is_no_kernel(nvrtc: Nvrtc) -> None:
    with pytest.raises(ValueError, match="is undefined"):
        nvrtc.compile("__global__ void kernel() { nothing = 1; }", "sm_90a")
