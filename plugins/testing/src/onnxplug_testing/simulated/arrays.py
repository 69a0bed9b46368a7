"""Arrays in the memory of a simulated device, which numpy cannot read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.dlpack import export
from onnxplug_testing.simulated.storage import Storage

if TYPE_CHECKING:
    from onnxplug_testing.simulated.context import SimulatedContext


@dataclass(frozen=True, slots=True)
class OwnType:
    """An element type as a device spells it that does not speak of numpy's.

    Attributes:
        data_type: what it is to ONNX.
    """

    data_type: ep.DataType

    def __repr__(self) -> str:
        return f"simulated.{self.data_type}"


class DeviceArray:
    """An array in the memory of a simulated device.

    Attributes:
        shape: sizes.
        dtype: the numpy dtype, or for ``Knobs.own_dtypes`` an :class:`OwnType`.
        context: whose it is.
        storage: its bytes, for work on streams.
    """

    __slots__ = ("__weakref__", "context", "dtype", "shape", "storage")

    def __init__(self, storage: Storage, context: SimulatedContext) -> None:
        data_type = ep.DataType.from_numpy(storage.dtype)
        own = data_type in context.knobs.own_dtypes
        self.shape: Final[tuple[int, ...]] = storage.shape
        self.dtype: Final[np.dtype[Any] | OwnType] = (
            OwnType(data_type) if own else storage.dtype
        )
        self.context: Final = context
        self.storage: Final = storage

    @property
    def location(self) -> ep.MemoryLocation:
        """Where it is."""
        return self.context.location

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.location})"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.context.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of this memory, after the work queued on the array's own stream.

        Args:
            stream: the native handle of the stream that the importer works on; ``None``
                blocks until the work is done, -1 orders nothing.
            max_version: has no effect.

        Raises:
            BufferError: another device or a copy is asked for, or DLPack has no such
                element type.
        """
        if copy or dl_device not in (None, self.context.dlpack_device):
            raise BufferError(
                f"{self!r} is shared as it is and where it is; copy it with the data "
                "transfer of its EP"
            )
        queue = self.storage.queue
        if queue is not None and queue.pending and stream != -1:
            if stream is None:
                queue.here().block()
            else:
                self.context.queue(stream).push(_nothing, after=queue.here())
        return export(self.storage, self.context.dlpack_device, self)

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(
            f"{self!r} is not in host memory; copy it to the host with the data "
            "transfer of its EP"
        )

    __array__ = __array_ufunc__ = __array_function__ = _refuse
    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _refuse
    __bool__ = __int__ = __float__ = __index__ = _refuse
    __buffer__ = _refuse


def data_type(array: Any) -> ep.DataType:
    """The element type of an array of a device or of numpy's."""
    if isinstance(array.dtype, OwnType):
        return array.dtype.data_type
    return ep.DataType.from_numpy(array.dtype)


def location_of(array: Any) -> ep.MemoryLocation:
    """Where an array is."""
    return array.location if isinstance(array, DeviceArray) else ep.HOST


def _nothing() -> None:
    return None
