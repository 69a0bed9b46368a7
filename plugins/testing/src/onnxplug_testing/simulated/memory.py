"""What makes arrays on a simulated device, and on the host for its copies."""

from __future__ import annotations

import ctypes
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug import ep
from onnxplug_testing.simulated.arrays import DeviceArray
from onnxplug_testing.simulated.storage import Bytes, HostArray, Pool, Storage

if TYPE_CHECKING:
    from onnxplug_testing.simulated.context import SimulatedContext


class _Allocator(ep.Allocator):
    """Makes arrays, and counts their bytes.

    Attributes:
        pool: the counters.
    """

    def __init__(
        self, context: SimulatedContext, name: str, limit: int | None = None
    ) -> None:
        self.pool = Pool(name, limit)
        self._context = weakref.ref(context)
        self._name = name

    @property
    def live_bytes(self) -> int:
        """Of arrays that are not garbage, and of captured graphs."""
        return self.pool.live_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that was live at once."""
        return self.pool.peak_bytes

    @property
    def allocations(self) -> int:
        """How many arrays were made."""
        return self.pool.allocations

    def empty(
        self,
        shape: Sequence[int],
        dtype: ep.DataType,
        stream: ep.Stream | None = None,
    ) -> Any:
        context = self._context()
        if context is None:
            raise RuntimeError(f"the context of {self._name} is gone")
        context.check_open()
        if dtype is ep.DataType.STRING:
            raise TypeError(f"{self._name} holds no strings; keep them on the host")
        if stream is None:
            made = self.pool.make(tuple(shape), dtype.numpy, None)
        else:
            own = context.own(stream)
            with own.queue.used():
                made = self.pool.make(tuple(shape), dtype.numpy, own.queue)
        storage, memory, give_back = made
        array = self._array(storage, memory, context)
        weakref.finalize(array, give_back).atexit = False
        return array

    @abstractmethod
    def _array(self, storage: Storage, memory: Bytes, context: SimulatedContext) -> Any:
        """The array of *storage*, in *memory*."""


class SimulatedAllocator(_Allocator):
    """Makes device arrays, and counts their bytes."""

    def _array(
        self, storage: Storage, memory: Bytes, context: SimulatedContext
    ) -> DeviceArray:
        return DeviceArray(storage, context)


class PinnedAllocator(_Allocator):
    """Makes numpy arrays that the device copies to and from, and counts their bytes."""

    def _array(
        self, storage: Storage, memory: Bytes, context: SimulatedContext
    ) -> HostArray:
        if not memory.nbytes:
            return np.empty(storage.shape, storage.dtype)
        address = memory.ctypes.data
        owner: Any = (ctypes.c_uint8 * memory.nbytes).from_address(address)
        owner.pinned = storage, memory
        return np.ndarray(storage.shape, storage.dtype, buffer=owner)


def pinned_content(array: HostArray) -> Callable[[], HostArray] | None:
    """What gives the content of a pinned *array* or view of one, and keeps neither;
    ``None``: it is in ordinary memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not hasattr(base, "pinned"):
        return None
    storage, memory = base.pinned
    # the same bytes, but none of the array's views: the queue keeps no array alive
    view = np.ndarray(
        array.shape,
        array.dtype,
        buffer=memory,
        offset=array.ctypes.data - memory.ctypes.data,
        strides=array.strides,
    )
    return lambda: storage.part(view)
