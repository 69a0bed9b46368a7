"""Launches of one kernel, which adds a number, and memory for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_compiler.gpu.execution.device import Launches
from onnxplug_cuda.device import CudaDevice

ADD = """
namespace onnxplug {
typedef unsigned int u32;
typedef int i32;
struct Words { i32 of[2]; };
extern "C" __global__ void __launch_bounds__(32) kernel(
    const u32* __restrict__ b0, u32* __restrict__ b1, const Words words) {
  const u32 n = threadIdx.x + blockIdx.x * 32;
  if (n < words.of[0]) b1[n] = b0[n] + words.of[1];
}
}
"""
COUNT = 100


def added(
    device: CudaDevice, source: Any, target: Any, number: int, cleared: Any = None
) -> Launches:
    """A launch that adds *number* to the words of *source*."""
    kernel = device.kernel(ADD, (False, True), 32)
    # behind the numbers of another launch
    numbers = device.numbers(bytes(8) + np.array([COUNT, number], np.int32).tobytes())
    with device.lock:
        step = device.launch(
            kernel, numbers, 8, 8, (4, 1), ((source, 0, 0), (target, 0, 0))
        )
    return Launches((step,), cleared, (source, target))


def placed(device: CudaDevice, stream: Any, value: int = 0) -> Any:
    memory = device.memory(4 * COUNT, stream)
    stream.upload(memory, np.full(COUNT, value, np.uint32))
    return memory


def content(stream: Any, memory: Any) -> np.ndarray[Any, Any]:
    found = np.empty(COUNT, np.uint32)
    stream.fetch(memory, found)
    return found
