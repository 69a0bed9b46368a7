"""numpy's namespace, in which the calls that kernels make take the least time."""

from __future__ import annotations

from operator import attrgetter, getitem, methodcaller
from typing import Any, Final

import numpy as np

from onnxplug.authoring.arrays import is_extension
from onnxplug.ep import DataType
from onnxplug_kernels.erf import FLOAT32_COEFFICIENTS, erf
from onnxplug_kernels.namespaces.standard import Standard, scattered

_NATIVE_FLOATS: Final = frozenset({"float32", "float64", "complex64", "complex128"})


class NumpyLike(Standard):
    """A library with numpy's dtypes, methods of arrays, and ufuncs.

    numpy's functions look at their arguments before they call a method of the array;
    what is here calls the method at once.
    """

    compact: Any
    distinct: Any
    fmod: Any
    is_narrow: Any
    kind: Any
    round: Any
    size: Any = staticmethod(attrgetter("size"))
    strides: Any = staticmethod(attrgetter("strides"))
    itemsize: Any = staticmethod(attrgetter("itemsize"))
    itemsize_of: Any = staticmethod(attrgetter("itemsize"))
    slices: Any = staticmethod(getitem)
    gather: Any = staticmethod(getitem)
    copy: Any = staticmethod(methodcaller("copy"))
    tolist: Any = staticmethod(methodcaller("tolist"))
    item: Any = staticmethod(methodcaller("item"))

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.kind = attrgetter("kind")
        self.is_narrow = is_extension
        for data_type in DataType:
            if hasattr(library, data_type):
                # an instance, as arrays have: to be compared by identity
                setattr(self, data_type, data_type.numpy)
        self.wide_floats = frozenset(map(np.dtype, (np.float32, np.float64)))
        self.as_strided = library.lib.stride_tricks.as_strided
        self.round = library.rint
        self.compact = library.ascontiguousarray
        self.distinct = library.unique
        self.fmod = library.fmod
        # methods here, functions with the same meaning in the standard
        self.cumulative_sum = library.cumsum
        self.cumulative_prod = library.cumprod

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Any:
        return self.library.asarray(x)

    def dtype(self, data_type: DataType) -> Any:
        return data_type.numpy

    def data_type(self, dtype: Any) -> DataType:
        return DataType.from_numpy(dtype)

    def _computing_dtype(self, dtype: Any) -> Any:
        name = dtype.name
        if name in _NATIVE_FLOATS or dtype.kind in "iubO":
            return dtype
        return np.dtype(np.int32 if name.startswith(("int", "uint")) else np.float32)

    def _limits(self, dtype: Any) -> tuple[Any, Any]:
        if dtype.kind == "b":
            return False, True
        import ml_dtypes  # 6 ms that most models need not pay

        # of ml_dtypes' own types, kind says little
        is_integer = "int" in dtype.name
        info: Any = (ml_dtypes.iinfo if is_integer else ml_dtypes.finfo)(dtype)
        number = int if is_integer else float
        return number(info.min), number(info.max)

    @staticmethod
    def astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
        if copy:
            return x.astype(dtype)
        return x if x.dtype is dtype else x.astype(dtype, copy=False)

    def complex_of(self, real: Any, imaginary: Any) -> Any:
        return real + 1j * imaginary

    def spectrum(self, x: Any, length: int | None, axis: int) -> Any:
        return self.library.fft.fft(x, n=length, axis=axis)

    @staticmethod
    def owned(x: Any) -> Any:
        return x if x.base is None else x.copy()

    @staticmethod
    def reshape(x: Any, shape: Any) -> Any:
        return x.reshape(shape)

    @staticmethod
    def permute_dims(x: Any, axes: Any) -> Any:
        return x.transpose(axes)

    @staticmethod
    def swapaxes(x: Any, first: int, second: int) -> Any:
        return x.swapaxes(first, second)

    @staticmethod
    def squeeze(x: Any, axis: Any) -> Any:
        return x.squeeze(axis)

    @staticmethod
    def sum(
        x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
    ) -> Any:
        return x.sum(axis=axis, dtype=dtype, keepdims=keepdims)

    @staticmethod
    def prod(
        x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
    ) -> Any:
        return x.prod(axis=axis, dtype=dtype, keepdims=keepdims)

    @staticmethod
    def max(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return x.max(axis=axis, keepdims=keepdims)

    @staticmethod
    def min(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return x.min(axis=axis, keepdims=keepdims)

    @staticmethod
    def mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        return x.mean(axis=axis, keepdims=keepdims)

    @staticmethod
    def into(function: Any, *operands: Any, out: Any) -> Any:
        return function(*operands, out=out)

    def windows(
        self, x: Any, kernel: Any, dilations: Any, strides: Any, count: Any
    ) -> Any:
        rank = len(kernel)
        outer, inner = x.strides[:-rank], x.strides[-rank:]
        sizes = (*kernel, *count)
        # where there is one element its distance to the next says nothing, and may be
        # more than an address can be
        steps = [
            stride * step if size > 1 else stride
            for stride, step, size in zip(
                inner + inner, (*dilations, *strides), sizes, strict=True
            )
        ]
        return self.as_strided(x, (*x.shape[:-rank], *sizes), (*outer, *steps))

    @staticmethod
    def take(x: Any, indices: Any, *, axis: int) -> Any:
        return x.take(indices, axis)

    def scatter(
        self, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
    ) -> Any:
        result = x.copy()
        if reduction == "none":
            result[index] = updates
        else:
            scattered(self.library, result, index, updates, reduction)
        return result

    @staticmethod
    def replaced(x: Any, positions: Any, values: Any) -> Any:
        x[positions] = values
        return x

    def sums_at(self, positions: Any, weights: Any | None, size: int) -> Any:
        return self.library.bincount(positions, weights=weights, minlength=size)

    def top_indices(self, x: Any, k: int, *, largest: bool) -> Any:
        return _ordered(self.library, x, largest)[..., :k]

    def unique(
        self, x: Any, axis: int | None, *, equal_nan: bool = True
    ) -> tuple[Any, Any, Any]:
        _, indices, inverse, counts = self.library.unique(
            x,
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
            equal_nan=equal_nan,
        )
        return indices, inverse, counts

    def shifted(self, x: Any, y: Any, *, left: bool) -> Any:
        # numpy's shifts do so by themselves, although C leaves them undefined
        return (self.library.left_shift if left else self.library.right_shift)(x, y)

    def tri(self, rows: int, columns: int, diagonal: int) -> Any:
        return self.library.tri(rows, columns, diagonal, dtype=bool)

    def diagonal(self, x: Any, first: int, second: int) -> Any:
        return self.library.diagonal(x, axis1=first, axis2=second)

    @staticmethod
    def bits(x: Any, dtype: Any) -> Any:
        return x.view(dtype)


class Numpy(NumpyLike):
    """numpy itself.

    What is given to these methods of arrays is never one of numpy's scalars, which
    arithmetic makes of arrays without axes.
    """

    max: Any = staticmethod(np.ndarray.max)
    mean: Any = staticmethod(np.ndarray.mean)
    min: Any = staticmethod(np.ndarray.min)
    prod: Any = staticmethod(np.ndarray.prod)
    squeeze: Any = staticmethod(np.ndarray.squeeze)
    sum: Any = staticmethod(np.ndarray.sum)

    @staticmethod
    def to_numpy(x: Any) -> Any:
        return x

    def erf(self, x: Any) -> Any:
        return erf(self.library, x, _ERF_COEFFICIENTS)

    @staticmethod
    def quotient(a: Any, b: Any) -> Any:
        return np.floor_divide(a - np.fmod(a, b), b)

    @staticmethod
    def take_checked(x: Any, indices: Any, *, axis: int) -> Any:
        # numpy checks while it reads
        taken = x.take(indices, axis)
        if type(taken) is np.ndarray:
            return taken
        return np.asarray(taken, dtype=x.dtype)

    @staticmethod
    def gather_checked(x: Any, index: tuple[Any, ...]) -> Any:
        # numpy checks before it reads
        return x[index]

    @staticmethod
    def is_known(x: Any, number: int) -> bool:
        return x.size == 1 and bool(x.item() == number)

    def top_indices(self, x: Any, k: int, *, largest: bool) -> Any:
        size = x.shape[-1]
        if size >= _MANY and 0 < k * _FEW <= size:
            indices = self._selected(x, k, largest)
            if indices is not None:
                return indices
        return _ordered(np, x, largest)[..., :k]

    def _selected(self, x: Any, k: int, largest: bool) -> Any:
        """The top indices; ``None`` where it cannot tell.

        A partition takes any of several keys that equal the last one it selects, and
        no comparison finds those when it is NaN.
        """
        size = x.shape[-1]
        if largest:
            indices = np.argpartition(x, size - k, axis=-1)[..., size - k :]
        else:
            indices = np.argpartition(x, k - 1, axis=-1)[..., :k]
        indices = np.sort(indices, axis=-1)
        chosen = np.take_along_axis(x, indices, axis=-1)
        reduce = np.min if largest else np.max
        threshold = reduce(chosen, axis=-1, keepdims=True)
        beyond = x >= threshold if largest else x <= threshold
        if int(np.count_nonzero(beyond)) != indices.size:
            return None
        order = _ordered(np, chosen, largest)
        return np.take_along_axis(indices, order, axis=-1)


def _ordered(library: Any, x: Any, largest: bool) -> Any:
    """The indices that sort along the last axis, of equal numbers the lower first."""
    if not largest:
        return library.argsort(x, axis=-1, kind="stable")
    # backward on backward: equal numbers keep their order, and none needs a negative
    backward = library.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return x.shape[-1] - 1 - backward


# numpy computes faster with its own numbers than with Python's
_ERF_COEFFICIENTS: Final = tuple(map(np.float32, FLOAT32_COEFFICIENTS))

# Selecting before sorting pays when few of many elements are asked for.
_FEW: Final = 8
_MANY: Final = 256
