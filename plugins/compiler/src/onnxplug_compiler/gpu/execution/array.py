"""Arrays in the memory of a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug_compiler.gpu.execution.device import Device, DeviceStream, Memory


class DeviceArray:
    """An array on a device, in C order from the beginning of its memory.

    Attributes:
        device, memory: where it is.
        shape: sizes.
        dtype: numpy's.
    """

    __slots__ = ("__weakref__", "device", "dtype", "memory", "shape")

    def __init__(
        self,
        device: Device,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self.device = device
        self.memory = memory
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self) -> None:
        """Check that its content is there.

        Raises:
            DeviceLost: it was in a device that was lost.
        """
        if not self.device.has(self.memory):
            raise self.device.lost()


def new_array(
    device: Device,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    stream: DeviceStream | None = None,
    mode: str = "",
) -> DeviceArray:
    """An array of unspecified content, of the device's own class.

    Args:
        stream, mode: of its memory; see :meth:`~.device.Device.memory`.

    Raises:
        MemoryError: there is not enough memory.
        TypeError: its elements are no bytes.
    """
    if dtype.hasobject:
        raise TypeError(f"arrays on {device} hold numbers; {dtype} was asked for")
    nbytes = math.prod(shape) * dtype.itemsize
    memory = device.memory(nbytes, stream, mode)
    array: DeviceArray = device.array_type(device, memory, shape, dtype)
    return array
