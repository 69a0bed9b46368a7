"""Between numpy's arrays and torch's tensors on the host, without copies."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension
from onnxplug.ep import DataType
from onnxplug_torch.dtypes import torch_dtype

_CARRIERS: Final = {1: np.dtype(np.uint8), 2: np.dtype(np.int16)}
"""What carries element types that numpy itself lacks, by their size in bytes."""


class _Writable:
    """The memory of an array that is read-only, for torch, which knows no such thing.

    Kernels write to no input; torch would warn of each.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def to_tensor(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """A tensor that shares the memory of *array* where torch can.

    Raises:
        TypeError: tensors of torch do not hold its element type.
    """
    dtype = array.dtype
    if is_extension(dtype):
        kind = torch_dtype(torch, DataType.from_numpy(dtype))
        return to_tensor(torch, array.view(_CARRIERS[dtype.itemsize])).view(kind)
    if not dtype.isnative:
        return to_tensor(torch, array.astype(dtype.newbyteorder("=")))
    if any(step < 0 or step % dtype.itemsize for step in array.strides):
        array = array.copy()
    elif not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return torch.from_numpy(array)


def to_numpy(tensor: Any, dtype: DataType) -> np.ndarray[Any, Any]:
    """An array that shares the memory of *tensor*, which is on the host.

    Args:
        dtype: its element type.
    """
    wanted = dtype.numpy
    if not is_extension(wanted):
        array: np.ndarray[Any, Any] = tensor.numpy()
        return array
    import torch

    carrier = torch.uint8 if wanted.itemsize == 1 else torch.int16
    carried: np.ndarray[Any, Any] = tensor.contiguous().view(carrier).numpy()
    return carried.view(wanted)
