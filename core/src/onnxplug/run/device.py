"""A device's memory as the host uses it: what goes wrong is its EP's failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.ep import DataType, MemoryLocation
from onnxplug.ep.device_context import MemoryKind
from onnxplug.errors import EpError, InvalidArgument, OnnxplugError
from onnxplug.guard import blaming
from onnxplug.plugins import PluginRegistry

if TYPE_CHECKING:
    from onnxplug.ep import Event, Stream
    from onnxplug.plugins.contexts import OwnedContext


class Device:
    """One memory location, which stays open while this is referred to.

    What is done without a stream is done when a call returns.

    Attributes:
        location: where it is.
        ep: the EP that owns it.
        context: what that EP made.
        transfer: copies to, from and within it.
    """

    def __init__(self, owned: OwnedContext, location: MemoryLocation) -> None:
        self._owned = owned
        self.location = location
        self.ep = owned.owner
        self.context = owned.context
        with blaming(self.ep, "create"):
            self.transfer = self.context.transfer
            self._allocator = self.context.allocator(MemoryKind.DEVICE)
            self._pinned = self.context.allocator(MemoryKind.PINNED)
        if self._allocator is None and not location.host_accessible:
            raise EpError(
                f"{self.ep} owns {location} and has no allocator of it; an EP outside "
                "host memory must have one",
                ep=self.ep,
                stage="create",
            )

    def empty(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None = None
    ) -> Any:
        """A new array of unspecified content."""
        if self._allocator is None:
            import numpy as np

            return np.empty(tuple(shape), dtype.numpy)
        with blaming(self.ep, "run"):
            return self._allocator.empty(shape, dtype, stream)

    def empty_on_host(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None
    ) -> Any:
        """A new array of the host's for copies from here and to here."""
        if self._pinned is not None:
            with blaming(self.ep, "run"):
                return self._pinned.empty(shape, dtype, stream)
        import numpy as np

        return np.empty(tuple(shape), dtype.numpy)

    def data_type(self, array: Any) -> DataType:
        """The element type of an array that is here."""
        with blaming(self.ep, "run"):
            return self.context.data_type(array)

    def copy(self, source: Any, target: Any, stream: Stream | None = None) -> None:
        """Copy between two arrays, of which at least one is here."""
        with blaming(self.ep, "run"):
            self.transfer.copy([(source, target)], stream)

    def from_host(self, array: Any) -> Any:
        """A copy of a numpy array."""
        target = self.empty(array.shape, DataType.from_numpy(array.dtype))
        self.copy(array, target)
        return target

    def duplicate(self, array: Any) -> Any:
        """A copy of an array that is here."""
        target = self.empty(tuple(array.shape), self.data_type(array))
        self.copy(array, target)
        return target

    def to_host(self, array: Any) -> Any:
        """A numpy copy of an array that is here."""
        import numpy as np

        target = np.empty(tuple(array.shape), self.data_type(array).numpy)
        self.copy(array, target)
        return target

    def create_stream(self) -> Stream | None:
        """A new stream, to be closed."""
        with blaming(self.ep, "run"):
            return self.context.create_stream()

    def adopt_stream(self, handle: int) -> Stream:
        """The user's stream of this native handle.

        Raises:
            EpError: the EP cannot use it, or there is none.
        """
        try:
            with blaming(self.ep, "create"):
                return self.context.adopt_stream(handle)
        except EpError as error:
            if isinstance(error.__cause__, NotImplementedError):
                raise EpError(
                    f"{self.ep} uses no streams of others; leave the option "
                    "user_compute_stream out",
                    ep=self.ep,
                    stage="create",
                ) from error
            raise

    def record(self, stream: Stream) -> Event:
        """The point after what is queued on *stream*, which is of this device."""
        with blaming(self.ep, "run"):
            return stream.record()

    def wait(self, stream: Stream, event: Event, maker: str) -> None:
        """Let later work on *stream* start after *event*.

        Args:
            maker: the EP whose event it is.
        """
        with blaming(self.ep, "run"):
            waits = stream.wait(event)
        if not waits:
            with blaming(maker, "run"):
                event.synchronize()

    def synchronize(self, event: Event) -> None:
        """Wait on the host for *event*, which is of this device."""
        with blaming(self.ep, "run"):
            event.synchronize()

    def order_user_stream(self, handle: int, events: Sequence[Event]) -> None:
        """Let later work on the user's stream start after *events* of this device.

        Those are waited for on the host if the EP uses no streams of others.
        """
        pending = [event for event in events if not event.done()]
        if not pending:
            return
        try:
            stream = self.adopt_stream(handle)
        except EpError:
            for event in pending:
                self.synchronize(event)
            return
        for event in pending:
            self.wait(stream, event, self.ep)
        with blaming(self.ep, "close"):
            stream.close()

    def import_dlpack(self, data: Any) -> tuple[Any, list[Event]]:
        """An array that shares the memory of *data*, and when its content is there.

        Raises:
            InvalidArgument: *data* gives no array.
        """
        stream, lock = self._owned.stream_of_imports()
        if stream is None:
            return self._from_capsule(data, None), []
        with lock:  # a stream is used by one thread at a time
            array = self._from_capsule(data, stream.native_handle)
            return array, [self.record(stream)]

    def _from_capsule(self, data: Any, handle: int | None) -> Any:
        try:
            capsule = data.__dlpack__(stream=handle)
        except Exception as error:  # whatever the library raises
            raise_interruption(error)
            raise InvalidArgument(
                f"a {type(data).__name__} gives no array by DLPack: {error}"
            ) from error
        with blaming(self.ep, "run", "DeviceContext.from_dlpack"):
            array = self.context.from_dlpack(capsule)
        wrong = self.what_is_wrong(array, None, None)
        if wrong is not None:
            raise EpError(
                f"{self.ep} failed in DeviceContext.from_dlpack: it returned "
                f"{wrong}; expected an array in {self.location}",
                ep=self.ep,
                stage="run",
            )
        return array

    def stack(self, arrays: Sequence[Any], axis: int, stream: Stream | None) -> Any:
        """The arrays along a new axis; ``NotImplemented`` if the EP leaves it to the
        host."""
        with blaming(self.ep, "run", "DeviceContext.stack"):
            stacked = self.context.stack(arrays, axis, stream)
        if stacked is NotImplemented:
            return stacked
        shape = [int(size) for size in arrays[0].shape]
        shape.insert(axis, len(arrays))
        dtype = self.data_type(arrays[0])
        return self._checked(stacked, shape, dtype, "DeviceContext.stack")

    def take(self, array: Any, axis: int, index: int, stream: Stream | None) -> Any:
        """The part at *index* of *axis*; ``NotImplemented`` if that is left to the
        host."""
        with blaming(self.ep, "run", "DeviceContext.take"):
            part = self.context.take(array, axis, index, stream)
        if part is NotImplemented:
            return part
        shape = [int(size) for size in array.shape]
        del shape[axis]
        dtype = self.data_type(array)
        return self._checked(part, shape, dtype, "DeviceContext.take")


def sizes_of(array: Any) -> tuple[int, ...] | None:
    """The shape of what an EP calls an array; ``None`` if it has none."""
    try:
        return tuple(map(operator.index, array.shape))
    except Exception:  # whatever an object of an EP's raises  # noqa: BLE001
        return None


def device_at(location: MemoryLocation, registry: PluginRegistry) -> Device:
    """The device at *location*, whose EP is loaded if need be.

    Raises:
        EpError: no EP owns it, two do, or its owner fails.
    """
    return Device(registry.contexts.at(location), location)


def find_device(device_type: str, device_id: int, registry: PluginRegistry) -> Device:
    """The device whose memory is named *device_type*, such as ``cuda``.

    Raises:
        InvalidArgument: there is no such device.
    """
    location = MemoryLocation(device_type.lower(), device_id)
    try:
        return device_at(location, registry)
    except OnnxplugError as error:
        raise InvalidArgument(str(error)) from error


def device_of_dlpack(where: tuple[int, int], registry: PluginRegistry) -> Device:
    """The device that DLPack calls *where*.

    Raises:
        InvalidArgument: no installed EP knows it.
    """
    owned = registry.contexts.of_dlpack(where)
    if owned is None:
        raise InvalidArgument(
            f"an array is on DLPack's device {where}, whose memory no installed EP "
            "owns; copy it to the host first"
        )
    return Device(owned, owned.context.location)
