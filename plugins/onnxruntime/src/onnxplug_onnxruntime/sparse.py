"""Sparse tensors by ONNX Runtime's API."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.errors import Fail, InvalidArgument
from onnxplug.session.described import as_data_type, as_sizes
from onnxplug_onnxruntime.memory import OrtDevice


class OrtSparseFormat(IntEnum):
    """How a sparse tensor says where its elements are."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class SparseCooView(Record):
    """Where the elements are, by coordinates."""

    tensor: SparseTensor

    def indices(self) -> np.ndarray[Any, Any]:
        """[n] positions in the flat tensor, or [n, 2] pairs of row and column."""
        array: np.ndarray[Any, Any] = self.tensor.coordinates.indices
        return array


class SparseCsrView(Record):
    """Where the elements are, by rows."""

    columns: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]

    def inner(self) -> np.ndarray[Any, Any]:
        """[n] columns."""
        return self.columns

    def outer(self) -> np.ndarray[Any, Any]:
        """[rows + 1]: where each row begins, and the end of the last."""
        return self.starts


class SparseTensor:
    """A sparse tensor of the host.

    Attributes:
        coordinates: the tensor as onnxplug has it.
    """

    def __init__(
        self, coordinates: ep.SparseTensor, rows: SparseCsrView | None = None
    ) -> None:
        self.coordinates = coordinates
        self._rows = rows

    @classmethod
    def sparse_coo_from_numpy(
        cls,
        dense_shape: Any,
        values: np.ndarray[Any, Any],
        coo_indices: np.ndarray[Any, Any],
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """One of *values* at coordinates.

        Args:
            coo_indices: [n] positions in the flat tensor, or [n, 2] (also 2·n of them).

        Raises:
            InvalidArgument: the arrays do not fit, or are not to be on the host.
        """
        shape, values, indices = _checked(dense_shape, values, coo_indices, ort_device)
        if indices.shape == (2 * len(values),) and len(values):
            indices = indices.reshape(-1, 2)
        if indices.shape not in ((len(values),), (len(values), len(shape))):
            raise InvalidArgument(
                f"{len(values)} values of a sparse tensor of shape {list(shape)} have "
                f"indices of shape {list(indices.shape)}; expected [n] or [n, rank]"
            )
        ends = math.prod(shape) if indices.ndim == 1 else shape
        if ((indices < 0) | (indices >= ends)).any():
            raise InvalidArgument(
                f"a sparse tensor of shape {list(shape)} has an index outside it"
            )
        return cls(ep.SparseTensor(values=values, indices=indices, shape=shape))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Any,
        values: np.ndarray[Any, Any],
        inner_indices: np.ndarray[Any, Any],
        outer_indices: np.ndarray[Any, Any],
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """One of a matrix, *values* row by row.

        Args:
            inner_indices: [n] columns.
            outer_indices: [rows + 1]: where each row begins, and the end of the last.

        Raises:
            InvalidArgument: the arrays do not fit, or are not to be on the host.
        """
        shape, values, inner = _checked(dense_shape, values, inner_indices, ort_device)
        outer = _kept(outer_indices)
        if len(shape) != 2 or outer.dtype != np.int64 or outer.ndim != 1:
            raise InvalidArgument(
                f"a sparse tensor of shape {list(shape)} is given by rows, with outer "
                f"indices {outer.dtype}{list(outer.shape)}; expected two sizes, and "
                "int64[rows + 1]"
            )
        counts = np.diff(outer)
        if (
            outer.shape != (shape[0] + 1,)
            or inner.shape != values.shape
            or outer[0] != 0
            or outer[-1] != len(values)
            or (counts < 0).any()
        ):
            raise InvalidArgument(
                f"a sparse tensor of shape {list(shape)} has {len(values)} values, "
                f"{inner.size} inner and {outer.size} outer indices; expected an inner "
                "index for each value, and outer ones that ascend from 0 to the number "
                "of values, one more than there are rows"
            )
        if ((inner < 0) | (inner >= shape[1])).any():
            raise InvalidArgument(
                f"a sparse tensor of shape {list(shape)} has a column outside it"
            )
        linear = np.repeat(np.arange(shape[0]), counts) * shape[1] + inner
        whole = ep.SparseTensor(values=values, indices=linear, shape=shape)
        return cls(whole, SparseCsrView(inner, outer))

    def values(self) -> np.ndarray[Any, Any]:
        """[n], the elements that are stored."""
        array: np.ndarray[Any, Any] = self.coordinates.values
        return array

    def as_coo_view(self) -> SparseCooView:
        """The coordinates.

        Raises:
            Fail: it was made by rows.
        """
        if self._rows is not None:
            raise Fail("the sparse tensor is by rows; use as_csrc_view()")
        return SparseCooView(self)

    def as_csrc_view(self) -> SparseCsrView:
        """The rows.

        Raises:
            Fail: it was made by coordinates.
        """
        if self._rows is None:
            raise Fail("the sparse tensor is by coordinates; use as_coo_view()")
        return self._rows

    def as_blocksparse_view(self) -> Any:
        """Not to be had.

        Raises:
            Fail: always: ONNX has no tensors of blocks.
        """
        raise Fail("ONNX has no sparse tensors of blocks")

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Not to be had.

        Raises:
            Fail: always: sparse tensors are in the host's memory.
        """
        raise Fail("sparse tensors are in the host's memory")

    def format(self) -> OrtSparseFormat:
        """How it was made."""
        by_rows = self._rows is not None
        return OrtSparseFormat.ORT_SPARSE_CSRC if by_rows else OrtSparseFormat(1)

    def dense_shape(self) -> list[int]:
        """The sizes of the whole tensor."""
        return [*self.coordinates.shape]

    def data_type(self) -> str:
        """``sparse_tensor(float)`` and so on."""
        return onnxplug.OrtValue(self.coordinates).data_type()

    def device_name(self) -> str:
        """Always ``cpu``."""
        return "cpu"


def _kept(array: Any) -> np.ndarray[Any, Any]:
    """*array* as a contiguous one that is only read."""
    view: np.ndarray[Any, Any] = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _checked(
    dense_shape: Any, values: Any, indices: Any, device: OrtDevice
) -> tuple[tuple[int, ...], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if not isinstance(device, OrtDevice) or device.device_type() != OrtDevice.cpu():
        raise InvalidArgument(
            f"a sparse tensor is to be on {device!r}; expected OrtDevice.make('cpu', 0)"
        )
    values, indices = _kept(values), _kept(indices)
    if values.ndim != 1 or indices.dtype != np.int64:
        raise InvalidArgument(
            f"a sparse tensor has values of shape {list(values.shape)} and indices of "
            f"{indices.dtype}; expected [n] and int64"
        )
    return as_sizes(dense_shape, as_data_type(values.dtype)), values, indices


def wrapped(value: Any) -> Any:
    """*value*, in this module's form if it is a sparse tensor."""
    return SparseTensor(value) if isinstance(value, ep.SparseTensor) else value


def unwrapped(value: Any) -> Any:
    """*value*, in onnxplug's form if it is a sparse tensor."""
    return value.coordinates if isinstance(value, SparseTensor) else value
