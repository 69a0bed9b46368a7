"""A namespace over any array library that keeps to the Array API standard.

Owns: which functions kernels have besides the standard's, and how each is done by the
standard's alone.  What that cannot say is computed by numpy on the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxplug.ep import DataType

_WIDE_FLOATS: Final = frozenset({"float32", "float64", "complex64", "complex128"})


class Standard:
    """The functions of an array library, and those that kernels need besides.

    Whatever is not defined here is the library's.  The *read* inputs of an operator,
    such as a shape, may be numpy arrays whatever the library is.

    Attributes:
        library: the module of the array library.
        wide_floats: the dtypes in which transcendental functions are computed as they
            are.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.wide_floats = frozenset((library.float32, library.float64))
        self.computing_dtype = functools.cache(self._computing_dtype)
        self.kind = functools.cache(self._kind)
        self.limits = functools.cache(self._limits)
        self.extremes = functools.cache(self._extremes)
        self.is_integer = functools.cache(self._is_integer)

    def __getattr__(self, name: str) -> Any:
        # once for each name: it is found in the instance from then on
        value = getattr(self.library, name)
        setattr(self, name, value)
        return value

    # Between the host and the library

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Any:
        """The numpy array *x* as one of the library's.

        Raises:
            TypeError: the library has no such dtype.
        """
        made = self.library.asarray(x.tolist(), dtype=self._dtype_like(x.dtype))
        # a list says no sizes after one of 0
        return self.library.reshape(made, x.shape)

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        """A numpy array of the elements of *x*, which may be one already."""
        return x if isinstance(x, np.ndarray) else np.from_dlpack(x)

    def tolist(self, x: Any) -> Any:
        """The elements of *x* as nested lists of Python's numbers."""
        return self.to_numpy(x).tolist()

    def item(self, x: Any) -> Any:
        """The one element of *x*, which may have axes of size 1, as Python's number.

        Raises:
            ValueError: there are more elements, or none.
        """
        return self.to_numpy(x).item()

    # Dtypes

    def dtype(self, data_type: DataType) -> Any:
        """The library's dtype of ONNX's element type.

        Raises:
            TypeError: the library has none.
        """
        if data_type is DataType.BOOL:
            return self.library.bool
        found = getattr(self.library, str(data_type), None)
        if found is None:
            raise TypeError(f"{self.library.__name__} has no dtype {data_type}")
        return found

    def data_type(self, dtype: Any) -> DataType:
        """ONNX's element type of the library's *dtype*."""
        return DataType(str(dtype).rpartition(".")[2])

    def _dtype_like(self, dtype: np.dtype[Any]) -> Any:
        return self.dtype(DataType.from_numpy(dtype))

    def _kind(self, dtype: Any) -> str:
        """``b``, ``i``, ``u``, ``f`` or ``c``, as numpy says it.

        Of dtypes that few functions of the library take, ``V``.
        """
        if self.is_narrow(dtype):
            return "V"
        name = str(self.data_type(dtype))
        return "f" if "float" in name else name[0]

    def is_narrow(self, dtype: Any) -> bool:
        """Whether few functions of the library take *dtype*, though it has it."""
        return False

    def _computing_dtype(self, dtype: Any) -> Any:
        """The dtype to compute in for arrays of *dtype*: float32 for narrower floats.

        Integers, bool and wide floats are computed in their own dtype, where the
        library computes in it at all.
        """
        name = str(self.data_type(dtype))
        if name in _WIDE_FLOATS or (
            name.startswith(("int", "uint", "bool")) and not self.is_narrow(dtype)
        ):
            return dtype
        if name.startswith(("int", "uint")):
            return self.library.int32
        return self.library.float32

    def _limits(self, dtype: Any) -> tuple[Any, Any]:
        """The smallest and the largest finite number of *dtype*."""
        if self.kind(dtype) == "b":
            return False, True
        is_integer = self.kind(dtype) in "iu"
        info = (self.library.iinfo if is_integer else self.library.finfo)(dtype)
        return info.min, info.max

    def _extremes(self, dtype: Any) -> tuple[Any, Any]:
        """Its limits as arrays of *dtype* without axes."""
        lowest, largest = self.limits(dtype)
        return self.asarray(lowest, dtype=dtype), self.asarray(largest, dtype=dtype)

    def _is_integer(self, dtype: Any) -> bool:
        """Whether *dtype* has whole numbers, of any number of bits."""
        return "int" in self.data_type(dtype)

    # Arrays

    def size(self, x: Any) -> int:
        """How many elements *x* has."""
        return math.prod(x.shape)

    def itemsize(self, x: Any) -> int:
        """How many bytes an element of *x* takes."""
        return max(self.data_type(x.dtype).bits // 8, 1)

    def itemsize_of(self, dtype: Any) -> int:
        """How many bytes an element of *dtype* takes."""
        return max(self.data_type(dtype).bits // 8, 1)

    def is_known(self, x: Any, number: int) -> bool:
        """Whether *x* has one element, *number*, as far as the host sees it."""
        return isinstance(x, np.ndarray) and x.size == 1 and x.item() == number

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Any:
        """*x* in *dtype*, rounded toward zero where that has whole numbers."""
        return self.library.astype(x, dtype, copy=copy)

    def reshape(self, x: Any, shape: Any) -> Any:
        """*x* with *shape*, in which one size may be -1."""
        return self.library.reshape(x, tuple(shape))

    def strides(self, x: Any) -> tuple[int, ...]:
        """How far elements lie apart along each axis; 0 where one is repeated.

        Not 0 where the library does not say.
        """
        return (1,) * int(x.ndim)

    def compact(self, x: Any) -> Any:
        """*x* in row-major order, where the library knows an order."""
        return x

    def complex_of(self, real: Any, imaginary: Any) -> Any:
        """Complex numbers of two arrays of float32 or float64."""
        library = self.library
        wide = (
            library.complex64 if real.dtype == library.float32 else library.complex128
        )
        return library.astype(real, wide) + library.astype(imaginary, wide) * 1j

    def spectrum(self, x: Any, length: int | None, axis: int) -> Any:
        """The Fourier transform of numbers cut or padded to *length*."""
        if self.kind(x.dtype) != "c":
            x = self.complex_of(x, self.library.zeros_like(x))
        return self.library.fft.fft(x, n=length, axis=axis)

    def copy(self, x: Any) -> Any:
        """A copy of *x* that may be written to."""
        return self.library.asarray(x, copy=True)

    def owned(self, x: Any) -> Any:
        """*x*, or a copy of it where it is a view of another array."""
        return x

    def swapaxes(self, x: Any, first: int, second: int) -> Any:
        """*x* with two axes exchanged."""
        order = list(range(x.ndim))
        order[first], order[second] = order[second], order[first]
        return self.library.permute_dims(x, tuple(order))

    def slices(self, x: Any, index: tuple[slice, ...]) -> Any:
        """``x[index]`` as Python has slices: they end where *x* does."""
        bounded = (
            _bounded(part, size) for part, size in zip(index, x.shape, strict=False)
        )
        return x[(*bounded, ...)]

    def windows(
        self, x: Any, kernel: Any, dilations: Any, strides: Any, count: Any
    ) -> Any:
        """Elements [..., *kernel, *count] of windows over the last axes of *x*.

        Each argument has a number for each of these axes, and no window reaches beyond
        them.  The result may share memory with *x*.
        """
        library, rank = self.library, len(kernel)
        outer = x.shape[: x.ndim - rank]
        for axis, (size, dilation, stride, number) in enumerate(
            zip(kernel, dilations, strides, count, strict=True), start=len(outer)
        ):
            starts = self.arange(number) * stride
            taps = library.reshape(self.arange(size) * dilation, (-1, 1))
            positions = library.reshape(taps + starts, (-1,))
            x = library.take(x, positions, axis=axis)
        pairs = [n for pair in zip(kernel, count, strict=True) for n in pair]
        x = library.reshape(x, (*outer, *pairs))
        order = [*range(len(outer))]
        order += [len(outer) + 2 * i + j for j in range(2) for i in range(rank)]
        return library.permute_dims(x, tuple(order))

    def into(self, function: Callable[..., Any], *operands: Any, out: Any) -> Any:
        """The result of an element-wise function or product, written to *out*."""
        out[...] = function(*operands)
        return out

    # Positions

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        """The subarrays of *x* at *indices* along *axis*, which their axes replace.

        The indices are in range, and may count from the back.
        """
        library = self.library
        flat = library.reshape(indices, (-1,))
        flat = library.where(flat < 0, flat + x.shape[axis], flat)
        taken = library.take(x, flat, axis=axis)
        axis %= x.ndim
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return library.reshape(taken, shape)

    def take_checked(self, x: Any, indices: Any, *, axis: int) -> Any:
        """As :meth:`take`, of any indices.

        Raises:
            IndexError: one is out of range.
        """
        size = x.shape[axis]
        if math.prod(indices.shape) and (
            int(self.library.min(indices)) < -size
            or int(self.library.max(indices)) >= size
        ):
            raise IndexError
        return self.take(x, indices, axis=axis)

    def gather(self, x: Any, index: tuple[Any, ...]) -> Any:
        """``x[index]`` by arrays of integers, at least one, for the first axes."""
        rows, positions, shape = self._rows(x, index)
        picked = self.library.take(rows, self.library.reshape(positions, (-1,)), axis=0)
        return self.library.reshape(picked, (*shape, *x.shape[len(index) :]))

    def gather_checked(self, x: Any, index: tuple[Any, ...]) -> Any:
        """As :meth:`gather`, of any indices.

        Raises:
            IndexError: one is out of range.
        """
        for part, size in zip(index, x.shape, strict=False):
            if math.prod(part.shape) and (
                int(self.library.min(part)) < -size
                or int(self.library.max(part)) >= size
            ):
                raise IndexError
        return self.gather(x, index)

    def scatter(
        self, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
    ) -> Any:
        """A copy of *x* whose elements at *index* are combined with *updates*.

        Args:
            index: arrays of integers for the first axes, which broadcast together.
            reduction: ``none`` to replace the elements, of several updates by any;
                or ``add``, ``mul``, ``max``, ``min``.
        """
        result = self.to_numpy(x).copy()
        scattered(
            np,
            result,
            tuple(map(self.to_numpy, index)),
            self.to_numpy(updates),
            reduction,
        )
        return self.from_numpy(result)

    def replaced(self, x: Any, positions: Any, values: Any) -> Any:
        """*x*, of one axis, with *values* at *positions*; it may be written to."""
        return self.scatter(x, (positions,), values, "none")

    def sums_at(self, positions: Any, weights: Any | None, size: int) -> Any:
        """For each place below *size* the sum of the float64 *weights* given to it, or
        how often it is among *positions*."""
        library = self.library
        if weights is None:
            weights = library.ones(positions.shape, dtype=library.float64)
        zeros = library.zeros((size,), dtype=library.float64)
        return self.scatter(zeros, (positions,), weights, "add")

    def _rows(self, x: Any, index: tuple[Any, ...]) -> tuple[Any, Any, tuple[int, ...]]:
        """*x* with the first axes merged; the positions along that; their shape."""
        lengths = x.shape[: len(index)]
        linear: Any = 0
        for part, length in zip(index, lengths, strict=True):
            part = self.library.astype(part, self.library.int64, copy=False)
            linear = linear * length + self.library.where(part < 0, part + length, part)
        return (
            self.library.reshape(x, (math.prod(lengths), *x.shape[len(index) :])),
            linear,
            linear.shape,
        )

    def top_indices(self, x: Any, k: int, *, largest: bool) -> Any:
        """Indices of the *k* largest or smallest along the last axis, in order.

        Of equal ones the lower index comes first; NaN counts as larger than any number.
        """
        order = self.library.argsort(x, axis=-1, descending=largest, stable=True)
        return order[..., :k]

    def distinct(self, x: Any) -> Any:
        """The distinct elements of *x*, in order."""
        return self.library.sort(self.library.unique_values(x))

    def unique(
        self, x: Any, axis: int | None, *, equal_nan: bool = True
    ) -> tuple[Any, Any, Any]:
        """Of the distinct elements, in order, or of subarrays along *axis*:

        where each is first, which of them each element is, and how many there are.

        Args:
            equal_nan: all NaN are one element, and not as many.
        """
        _, *found = np.unique(
            self.to_numpy(x),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
            equal_nan=equal_nan,
        )
        indices, inverse, counts = map(self.from_numpy, found)
        return indices, inverse, counts

    # Functions of elements

    def round(self, x: Any) -> Any:
        """The nearest whole numbers, ties to even ones."""
        return self.library.round(x)

    def erf(self, x: Any) -> Any:
        """The error function, of an array of float32 or float64."""
        from onnxplug_kernels.erf import erf

        return erf(self, x)

    def fmod(self, a: Any, b: Any) -> Any:
        """The rest of the quotient rounded toward zero, which has the sign of *a*."""
        library = self.library
        if self.kind(a.dtype) == "f":
            return library.copysign(
                library.remainder(library.abs(a), library.abs(b)), a
            )
        # with the sign of *b*, which the smallest number of a type lacks
        rest = library.remainder(a, b)
        differs = (rest != 0) & ((rest < 0) != (a < 0))
        return library.where(differs, rest - b, rest)

    def quotient(self, a: Any, b: Any) -> Any:
        """The quotient of integers, rounded toward zero."""
        library = self.library
        return library.floor_divide(a - self.fmod(a, b), b)

    def shifted(self, x: Any, y: Any, *, left: bool) -> Any:
        """The bits of *x* moved by *y* places, by all of them where *y* is negative.

        Zeros move in, and from the left of a signed integer copies of its sign.
        """
        library = self.library
        bits = 8 * self.itemsize(x)
        beyond = (y < 0) | (y >= bits)
        if not left and self.kind(x.dtype) == "i":
            return library.bitwise_right_shift(x, library.where(beyond, bits - 1, y))
        shift = library.bitwise_left_shift if left else library.bitwise_right_shift
        return library.where(beyond, 0, shift(x, library.where(beyond, 0, y)))

    def max(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        """The largest elements, of truths too."""
        library = self.library
        function = library.any if x.dtype == library.bool else library.max
        return function(x, axis=axis, keepdims=keepdims)

    def min(self, x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        """The smallest elements, of truths too."""
        library = self.library
        function = library.all if x.dtype == library.bool else library.min
        return function(x, axis=axis, keepdims=keepdims)

    def tri(self, rows: int, columns: int, diagonal: int) -> Any:
        """Whether a matrix has an element on or below the *diagonal* there."""
        row = self.library.reshape(self.arange(rows), (-1, 1))
        return self.arange(columns) <= row + diagonal

    def diagonal(self, x: Any, first: int, second: int) -> Any:
        """The diagonals along two axes of *x*, as its last axis."""
        moved = self.library.moveaxis(x, (first, second), (-2, -1))
        return self.library.linalg.diagonal(moved)

    def bits(self, x: Any, dtype: Any) -> Any:
        """The bits of *x* as elements of *dtype*, which has as many."""
        wanted = self.data_type(dtype).numpy
        return self.from_numpy(self.to_numpy(x).view(wanted))


def scattered(
    np: Any, x: Any, index: tuple[Any, ...], updates: Any, reduction: str
) -> None:
    """Combine the elements of *x* at *index* with *updates*, in *x* itself.

    Args:
        np: numpy, or a library that has its ufuncs.
    """
    if reduction == "none":
        x[index] = updates
    else:
        getattr(np, UFUNCS[reduction]).at(x, index, updates)


UFUNCS: Final = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
}
"""numpy's functions that combine an element with a new one, by ONNX's name."""


def _bounded(part: slice, size: int) -> slice:
    positions = range(*part.indices(size))
    if not positions:
        return slice(0, 0, 1)
    stop = positions[-1] + (1 if positions.step > 0 else -1)
    return slice(positions[0], stop if stop >= 0 else None, positions.step)
