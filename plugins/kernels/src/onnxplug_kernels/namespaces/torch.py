"""PyTorch's namespace, over what array_api_compat makes of torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension
from onnxplug.ep import DataType
from onnxplug_kernels.namespaces.standard import Standard

_CREATING: Final = ("arange", "asarray", "empty", "eye", "full", "ones", "zeros")

_REDUCTIONS: Final = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""torch's names of ONNX's reductions."""

_BITS: Final = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}

_WRAPPING: Final = (
    "add",
    "bitwise_invert",
    "concat",
    "flip",
    "multiply",
    "negative",
    "sum",
    "subtract",
    "take_along_axis",
)
"""Functions that int64 computes rightly for uint64: their low bits are the same."""

_ORDERING: Final = (
    "abs",
    "argmax",
    "argmin",
    "floor_divide",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "max",
    "maximum",
    "min",
    "minimum",
    "pow",
    "prod",
    "remainder",
    "sign",
)
"""Other functions that torch lacks for unsigned integers of more than a byte."""


class Torch(Standard):
    """torch, with arrays that are made from nothing on one device.

    Args:
        torch: the module ``torch``.
        device: where they are made; torch's default device if left out.
    """

    compact: Any
    complex_of: Any
    strides: Any
    erf: Any
    fmod: Any
    swapaxes: Any
    tolist: Any = staticmethod(methodcaller("tolist"))
    item: Any = staticmethod(methodcaller("item"))

    def __init__(self, torch: Any, device: Any = None) -> None:
        import array_api_compat.torch as compat
        import torch as plain

        super().__init__(compat)
        self.torch: Any = plain
        self.device = device
        self._wide_unsigned = {plain.uint16, plain.uint32, plain.uint64}
        for name in _WRAPPING + _ORDERING:
            function = getattr(compat, name)
            setattr(self, name, self._of_unsigned(function, name))
        if device is not None:
            for name in _CREATING:
                function = getattr(compat, name)
                setattr(self, name, functools.partial(function, device=device))
        self.erf = plain.special.erf
        self.fmod = self._of_unsigned(plain.fmod, "fmod")
        self.complex_of = plain.complex
        self.compact = plain.Tensor.contiguous
        self.strides = plain.Tensor.stride
        self.swapaxes = plain.Tensor.swapaxes

    def _of_unsigned(
        self, function: Callable[..., Any], name: str
    ) -> Callable[..., Any]:
        """*function*, computed in int64 for unsigned integers that it does not take.

        Where the numbers of uint64 do not fit, numpy computes it on the host.
        """
        torch = self.torch

        @functools.wraps(function)
        def of_any(x: Any, *rest: Any, **options: Any) -> Any:
            dtype = (x[0] if isinstance(x, list | tuple) else x).dtype
            if dtype not in self._wide_unsigned:
                return function(x, *rest, **options)
            if dtype == torch.uint64 and name not in _WRAPPING:
                arrays = map(_on_host, (x, *rest))
                return self.from_numpy(
                    np.asarray(getattr(np, name)(*arrays, **options))
                )
            options.pop("dtype", None)
            result = function(*map(_as_int64, (x, *rest)), **options)
            keeps = result.dtype == torch.int64 and name not in ("argmax", "argmin")
            return result.to(dtype) if keeps else result

        return of_any

    # Between the host and the library

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Any:
        torch = self.torch
        if is_extension(x.dtype):
            dtype = self._dtype_like(x.dtype)
            bits = np.array(x, order="C").view(_BITS[x.itemsize])
            made = torch.from_numpy(bits).view(dtype)
        else:
            # torch takes neither backward strides nor memory that is not to be written
            made = torch.from_numpy(
                x if x.flags.writeable and x.flags.c_contiguous else np.array(x)
            )
        return made if self.device is None else made.to(self.device)

    def to_numpy(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x
        x = x.detach().cpu()
        data_type = self.data_type(x.dtype)
        if is_extension(data_type.numpy):
            bits = getattr(self.torch, np.dtype(_BITS[x.dtype.itemsize]).name)
            return x.contiguous().view(bits).numpy().view(data_type.numpy)
        return x.numpy()

    # Dtypes

    def is_narrow(self, dtype: Any) -> bool:
        return self.data_type(dtype).startswith("float8")

    def dtype(self, data_type: DataType) -> Any:
        found = getattr(self.torch, str(data_type), None)
        # torch has dtypes of fewer than 8 bits by name, and no function for them
        if found is None or data_type.bits < 8:
            raise TypeError(f"torch has no dtype {data_type}")
        return found

    def _computing_dtype(self, dtype: Any) -> Any:
        if dtype in (self.torch.uint16, self.torch.uint32):
            return self.torch.int64
        return super()._computing_dtype(dtype)

    # Arrays

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Any:
        return x.to(dtype, copy=copy)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def reshape(self, x: Any, shape: Any) -> Any:
        return x.reshape(tuple(shape))

    def permute_dims(self, x: Any, axes: Any) -> Any:
        return x.permute(axes)

    def slices(self, x: Any, index: tuple[slice, ...]) -> Any:
        backward = []
        forward = []
        for axis, (part, size) in enumerate(zip(index, x.shape, strict=False)):
            if part.step is not None and part.step < 0:
                # torch has no steps backward
                positions = range(*part.indices(size))[::-1]
                backward.append(axis)
                part = slice(0, 0)
                if positions:
                    part = slice(positions[0], positions[-1] + 1, positions.step)
            forward.append(part)
        x = x[tuple(forward)]
        return self.torch.flip(x, backward) if backward else x

    def windows(
        self, x: Any, kernel: Any, dilations: Any, strides: Any, count: Any
    ) -> Any:
        rank = len(kernel)
        last = x.stride()[x.ndim - rank :]
        steps = (
            step * stride
            for step, stride in zip((*dilations, *strides), (*last, *last), strict=True)
        )
        return x.as_strided(
            (*x.shape[: x.ndim - rank], *kernel, *count),
            (*x.stride()[: x.ndim - rank], *steps),
        )

    # Positions

    def gather(self, x: Any, index: tuple[Any, ...]) -> Any:
        return x[index]

    def scatter(
        self, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
    ) -> Any:
        if x.dtype in self._wide_unsigned:
            return super().scatter(x, index, updates, reduction)
        if reduction == "none":
            return x.index_put(index, updates)
        rows, positions, _ = self._rows(x, index)
        rest = rows.shape[1:]
        column = positions.reshape((-1, *(1,) * len(rest)))
        column = column.expand((column.shape[0], *rest))
        source = updates.reshape((-1, *rest))
        scattered = rows.scatter_reduce(0, column, source, _REDUCTIONS[reduction])
        return scattered.reshape(x.shape)

    def replaced(self, x: Any, positions: Any, values: Any) -> Any:
        return x.index_put_((positions,), values)

    def sums_at(self, positions: Any, weights: Any | None, size: int) -> Any:
        return self.torch.bincount(positions, weights, size)

    def top_indices(self, x: Any, k: int, *, largest: bool) -> Any:
        order = self.torch.sort(x, dim=-1, descending=largest, stable=True)
        return order.indices[..., :k]

    def distinct(self, x: Any) -> Any:
        return self.torch.unique(x)

    # Functions of elements

    def spectrum(self, x: Any, length: int | None, axis: int) -> Any:
        return self.torch.fft.fft(x, n=length, dim=axis)

    def shifted(self, x: Any, y: Any, *, left: bool) -> Any:
        if x.dtype not in self._wide_unsigned:
            return super().shifted(x, y, left=left)
        function = np.left_shift if left else np.right_shift
        return self.from_numpy(function(self.to_numpy(x), self.to_numpy(y)))

    def quotient(self, a: Any, b: Any) -> Any:
        if a.dtype in self._wide_unsigned:
            return self.floor_divide(a, b)
        return self.torch.div(a, b, rounding_mode="trunc")

    def bits(self, x: Any, dtype: Any) -> Any:
        return x.view(dtype)


def _as_int64(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return [_as_int64(each) for each in x]
    return x.long() if hasattr(x, "long") else x


def _on_host(x: Any) -> Any:
    return x.cpu().numpy() if hasattr(x, "cpu") else x
