"""Arrays on a GPU, which other libraries read and lend without copies.

Sources: ``dlpack.h`` of DLPack 1.1; *CUDA Array Interface (Version 3)* in Numba's
documentation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension
from onnxplug.authoring.dlpack import TYPES, WHOLE, Tensor, export, tensor_of
from onnxplug_compiler.gpu.execution.array import DeviceArray
from onnxplug_cuda.options import LEGACY
from onnxplug_cuda.pool import ALIGNMENT, foreign
from onnxplug_cuda.shared import UNKNOWN, Shared

_CPU, _CUDA = 1, 2
"""DLPack's types of devices."""

_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
"""numpy's kinds of element types, by DLPack's codes."""


class CudaArray(DeviceArray):
    """An array on a GPU."""

    __slots__ = ()

    @property
    def address(self) -> int:
        """Of the first element."""
        return int(self.memory.address)  # type: ignore[attr-defined]

    def lend(self, stream: int) -> None:
        """Let another library use the memory, in work on a stream of CUDA's.

        Raises:
            DeviceLost: the content was lost.
        """
        self.check()
        shared: Shared = self.device.shared  # type: ignore[attr-defined]
        shared.lend(self.memory, stream)  # type: ignore[arg-type]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's array interface, version 3.

        Raises:
            AttributeError: it has no such element type.
            DeviceLost: the content was lost.
        """
        if is_extension(self.dtype):
            raise AttributeError(
                f"CUDA's array interface has no {self.dtype}; DLPack has"
            )
        self.lend(LEGACY)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.nbytes else 0, False),
            "version": 3,
            "strides": None,
            "stream": LEGACY,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        shared: Shared = self.device.shared  # type: ignore[attr-defined]
        return _CUDA, shared.driver.properties.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the memory, whose content is there for work on *stream*.

        Raises:
            BufferError: a copy or another device is asked for, or DLPack has no such
                element type.
            ValueError: *stream* is none of CUDA's; 0, which may mean two, is none of
                DLPack's.
            DeviceLost: the content was lost.
        """
        if stream is not None and (stream == 0 or stream < UNKNOWN):
            raise ValueError(
                f"stream is {stream}; expected CUDA's handle of one, 1 for the default "
                "one, 2 for the thread's, or -1 for no wait"
            )
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(
                "an array on a GPU is given by DLPack as it is and where it is; to "
                "copy it to the host, use OrtValue.numpy()"
            )
        # -1 says that whoever reads it waits by other means
        self.lend(LEGACY if stream is None else stream)
        seen = np.asarray(_Addresses(self)).view(self.dtype).reshape(self.shape)
        capsule = export(seen, max_version=max_version)
        tensor = tensor_of(capsule)
        tensor.device_type, tensor.device_id = self.__dlpack_device__()
        return capsule


class _Addresses:
    """An array's memory as numpy describes memory, which reads nothing of it.

    A capsule of numpy's then keeps the array, and is freed by numpy's own function.
    """

    def __init__(self, array: CudaArray) -> None:
        self._array = array
        self.__array_interface__ = {
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "data": (array.address, False),
            "version": 3,
        }


class _Capsule:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


def imported(device: Any, capsule: Any) -> CudaArray:
    """An array that shares the memory of a capsule.

    Args:
        device: of the memory.

    Raises:
        ValueError: its memory is of another device, or not aligned as DLPack has it, or
            its elements are none of ours or not in C order.
        ValueTypeError: it is no capsule, or was used already.
    """
    tensor = tensor_of(capsule)
    found = tensor.device_type, tensor.device_id
    expected = _CUDA, device.driver.properties.ordinal
    if found != expected:
        raise ValueError(
            f"a DLPack capsule is of device {found}; expected {expected}, "
            f"{device.driver.properties}"
        )
    dtype = _dtype(tensor)
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides and not _is_contiguous(shape, tensor.strides[: tensor.ndim]):
        raise ValueError(
            f"a DLPack capsule of shape {list(shape)} has elements that are not next "
            "to each other; give a contiguous copy, as tensor.contiguous() makes"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if nbytes and address % ALIGNMENT:
        raise ValueError(
            f"a DLPack capsule has memory from {address:#x} on, which is no multiple "
            f"of {ALIGNMENT}, as DLPack asks for; give a copy, as tensor.clone() makes"
        )
    owner = _owner(capsule, tensor, dtype)
    return CudaArray(device, foreign(address, nbytes, owner), shape, dtype)


def _owner(capsule: Any, tensor: Tensor, dtype: np.dtype[Any]) -> object:
    """What keeps a capsule's memory: numpy's array of it, which nobody reads."""
    said = tensor.device_type, tensor.device_id, tensor.code, tensor.bits
    tensor.device_type, tensor.device_id = _CPU, 0
    if dtype.itemsize <= 8:
        tensor.code, tensor.bits = WHOLE, 8 * dtype.itemsize
    try:
        return np.from_dlpack(_Capsule(capsule))
    finally:
        # whoever made it may look at it when it is freed
        tensor.device_type, tensor.device_id, tensor.code, tensor.bits = said


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    if tensor.lanes == 1:
        narrow = TYPES.get((tensor.code, tensor.bits))
        if narrow is not None:
            return narrow.numpy
        kind = _KINDS.get(tensor.code)
        if kind is not None and tensor.bits % 8 == 0:
            try:
                return np.dtype(f"{kind}{tensor.bits // 8}")
            except TypeError:
                pass
    raise ValueError(
        f"a DLPack capsule has elements of code {tensor.code}, {tensor.bits} bits and "
        f"{tensor.lanes} lanes, which are none of ONNX's"
    )


def _is_contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    """Whether elements lie in C order without gaps."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return 0 in shape
        step *= size
    return True
