"""A device's memory as the host uses it: what goes wrong is its EP's failure."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.ep import (
    Allocator,
    CapturedGraph,
    DataTransfer,
    DataType,
    MemoryLocation,
    Stream,
)
from onnxplug.ep.device_context import MemoryKind
from onnxplug.errors import (
    ArgumentTypeError,
    EpError,
    InvalidArgument,
    OnnxplugError,
)
from onnxplug.guard import FAILURES, blame, blaming, in_words, malformed
from onnxplug.interruption import raise_interruption
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins.contexts import close_stream, new_stream
from onnxplug.run.events import OwnedEvent, record, truth

if TYPE_CHECKING:
    from onnxplug.ep import GraphCapture
    from onnxplug.plugins.contexts import OwnedContext


class Device:
    """One memory location, which stays open while this is referred to, or until
    :meth:`let_go`.

    What is done without a stream is done when a call returns.

    Attributes:
        location: where it is.
        ep: the EP that owns it.
        context: what that EP made.
        transfer: copies to, from and within it.
        capture: what captures work there, in a session that does.
    """

    def __init__(self, owned: OwnedContext, location: MemoryLocation) -> None:
        self._owned: OwnedContext | None = owned
        self._reference = weakref.ref(owned)
        self.location = location
        self.ep = owned.owner
        self.context = owned.context
        self.capture: GraphCapture | None = None
        with blaming(self.ep, "create", "DeviceContext.transfer"):
            self.transfer = self.context.transfer
        with blaming(self.ep, "create", "DeviceContext.allocator"):
            self._allocator = self.context.allocator(MemoryKind.DEVICE)
            self._pinned = self.context.allocator(MemoryKind.PINNED)
        if not isinstance(self.transfer, DataTransfer):
            raise EpError(
                f"{self.ep} owns {location}, and its context's transfer is "
                f"{in_words(self.transfer)}; expected a DataTransfer",
                ep=self.ep,
                stage="create",
            )
        for allocator in (self._allocator, self._pinned):
            if allocator is not None and not isinstance(allocator, Allocator):
                raise malformed(
                    self.ep,
                    "create",
                    "DeviceContext.allocator",
                    allocator,
                    "an Allocator, or None",
                )
        if self._allocator is None and not location.host_accessible:
            raise EpError(
                f"{self.ep} owns {location} and has no allocator of it; an EP outside "
                "host memory must have one",
                ep=self.ep,
                stage="create",
            )

    @property
    def hold(self) -> object:
        """What keeps the location open as long as it is referred to; ``None`` if it
        is closed."""
        return self._reference()

    def let_go(self) -> None:
        """Let the location be closed, if nothing else keeps it open."""
        self._owned = None

    def lend(self) -> None:
        """Note that another library has got an array that is here.

        When it has dropped that is not seen, so the location stays open.
        """
        owned = self._reference()
        if owned is not None:
            owned.keep_open()

    def empty(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None = None
    ) -> Any:
        """A new array of unspecified content."""
        if self._allocator is None:
            return np.empty(tuple(shape), dtype.numpy)
        try:
            array = self._allocator.empty(shape, dtype, stream)
        except FAILURES as error:
            blame(self.ep, "run", error, "Allocator.empty")
        return self._checked(array, shape, dtype, "Allocator.empty")

    def empty_on_host(
        self, shape: Sequence[int], dtype: DataType, stream: Stream | None
    ) -> Any:
        """A new array of the host's for copies from here and to here."""
        if self._pinned is None:
            return np.empty(tuple(shape), dtype.numpy)
        try:
            array = self._pinned.empty(shape, dtype, stream)
        except FAILURES as error:
            blame(self.ep, "run", error, "Allocator.empty")
        if (
            not isinstance(array, np.ndarray)
            or array.shape != tuple(shape)
            or array.dtype != dtype.numpy
        ):
            raise malformed(
                self.ep,
                "run",
                "Allocator.empty",
                array,
                f"{dtype}{list(shape)}, an array of numpy's in memory of the host",
            )
        return array

    def data_type(self, array: Any) -> DataType:
        """The element type of an array that is here.

        Raises:
            EpError: the context does not know it.
        """
        try:
            dtype = self.context.data_type(array)
        except FAILURES as error:
            blame(self.ep, "run", error, "DeviceContext.data_type")
        if type(dtype) is not DataType:
            raise malformed(
                self.ep, "run", "DeviceContext.data_type", dtype, "a DataType"
            )
        return dtype

    def what_is_wrong(
        self, array: Any, shape: Sequence[int] | None, dtype: DataType | None
    ) -> str | None:
        """What *array* is, in words, if it is none of *dtype* and *shape* that is here.

        Args:
            shape: ``None``: any sizes.
            dtype: ``None``: any element type.

        Raises:
            EpError: the context names an element type that is none.
        """
        found = sizes_of(array)
        if found is None:
            return in_words(array)
        if isinstance(array, np.ndarray) and not self.location.host_accessible:
            return f"an array of the host, {array.dtype}{list(found)},"
        try:
            held = self.data_type(array)
        except EpError as error:
            if error.__cause__ is None:
                raise
            why = f"{type(error.__cause__).__name__}: {error.__cause__}"
            return f"{in_words(array)} that its context gives no element type ({why})"
        if dtype not in (None, held) or (shape is not None and found != tuple(shape)):
            return f"{held}{list(found)}"
        return None

    def _checked(
        self, array: Any, shape: Sequence[int], dtype: DataType, method: str
    ) -> Any:
        """*array*, which *method* of the context's returned."""
        wrong = self.what_is_wrong(array, shape, dtype)
        if wrong is not None:
            if sizes_of(array) is not None and not isinstance(array, np.ndarray):
                self.data_type(array)  # whose failure it is, if it fails
            raise EpError(
                f"{self.ep} failed in {method}: it returned {wrong}; expected "
                f"{dtype}{list(shape)} in {self.location}",
                ep=self.ep,
                stage="run",
            )
        return array

    def can_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """Whether its transfer knows the way."""
        with blaming(self.ep, "run", "DataTransfer.can_copy"):
            can_copy = self.transfer.can_copy(source, target)
        return truth(can_copy, self.ep, "DataTransfer.can_copy")

    def needs_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """Whether arrays in *source* cannot be used in *target* as they are."""
        with blaming(self.ep, "run", "DataTransfer.needs_copy"):
            needs_copy = self.transfer.needs_copy(source, target)
        return truth(needs_copy, self.ep, "DataTransfer.needs_copy")

    def copy(self, source: Any, target: Any, stream: Stream | None = None) -> None:
        """Copy between two arrays, of which at least one is here."""
        try:
            self.transfer.copy([(source, target)], stream)
        except FAILURES as error:
            blame(self.ep, "run", error, "DataTransfer.copy")

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
        target = np.empty(tuple(array.shape), self.data_type(array).numpy)
        self.copy(array, target)
        return target

    def weights(self) -> list[Any]:
        """What EPs made of weights here, and is in use."""
        owned = self._reference()
        return [] if owned is None else owned.weights.values()

    def create_stream(self) -> Stream | None:
        """A new stream, to be closed."""
        return new_stream(self.ep, self.context)

    def adopt_stream(self, handle: int) -> Stream:
        """The user's stream of this native handle.

        Raises:
            EpError: the EP cannot use it, or there is none.
        """
        try:
            with blaming(self.ep, "create", "DeviceContext.adopt_stream"):
                stream = self.context.adopt_stream(handle)
        except EpError as error:
            if isinstance(error.__cause__, NotImplementedError):
                raise EpError(
                    f"{self.ep} uses no streams of others; leave the option "
                    "user_compute_stream out",
                    ep=self.ep,
                    stage="create",
                ) from error
            raise
        if not isinstance(stream, Stream):
            raise malformed(
                self.ep, "create", "DeviceContext.adopt_stream", stream, "a Stream"
            )
        return stream

    def record(self, stream: Stream) -> OwnedEvent:
        """The point after what is queued on *stream*, which is of this device."""
        return record(stream, self.ep)

    def wait(self, stream: Stream, event: OwnedEvent) -> None:
        """Let later work on *stream* start after *event*."""
        try:
            waits = stream.wait(event.event)
        except FAILURES as error:
            blame(self.ep, "run", error, "Stream.wait")
        if type(waits) is not bool:
            waits = truth(waits, self.ep, "Stream.wait")
        if not waits:
            event.synchronize()

    def synchronize(self, stream: Stream) -> None:
        """Wait on the host for the work on *stream*, which is of this device."""
        with blaming(self.ep, "run", "Stream.synchronize"):
            stream.synchronize()

    def begin_capture(self, stream: Stream) -> None:
        """From here on, let *stream* note what is queued."""
        assert self.capture is not None
        with blaming(self.ep, "run", "GraphCapture.begin"):
            self.capture.begin(stream)

    def end_capture(self, stream: Stream) -> CapturedGraph:
        """What *stream* noted."""
        assert self.capture is not None
        with blaming(self.ep, "run", "GraphCapture.end"):
            graph = self.capture.end(stream)
        if not isinstance(graph, CapturedGraph):
            raise malformed(
                self.ep, "run", "GraphCapture.end", graph, "a CapturedGraph"
            )
        return graph

    def order_user_stream(self, handle: int, events: Sequence[OwnedEvent]) -> None:
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
                event.synchronize()
            return
        for event in pending:
            self.wait(stream, event)
        close_stream(self.ep, stream)

    def import_dlpack(self, data: Any) -> tuple[Any, list[OwnedEvent]]:
        """An array that shares the memory of *data*, and when its content is there.

        Raises:
            InvalidArgument: *data* gives no array.
        """
        assert self._owned is not None
        stream, lock = self._owned.stream_of_imports()
        if stream is None:
            return self._from_capsule(data, None), []
        with lock:  # a stream is used by one thread at a time
            with blaming(self.ep, "run", "Stream.native_handle"):
                handle = operator.index(stream.native_handle)
            array = self._from_capsule(data, handle)
            return array, [self.record(stream)]

    def _from_capsule(self, data: Any, handle: int | None) -> Any:
        try:
            capsule = data.__dlpack__(stream=handle)
        except InvalidArgument:
            raise
        except Exception as error:  # whatever the library raises
            raise_interruption(error)
            raise InvalidArgument(f"no array is given by DLPack: {error}") from error
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
    # whatever an object of an EP's raises
    except Exception as error:  # noqa: BLE001
        raise_interruption(error)
        return None


def device_at(location: MemoryLocation, registry: PluginRegistry) -> Device:
    """The device at *location*, whose EP is loaded if need be.

    Raises:
        EpError: no EP owns it, two do, or its owner fails.
    """
    return Device(registry.contexts.at(location), location)


def find_device(device_type: str, device_id: int, registry: PluginRegistry) -> Device:
    """The device whose memory is named *device_type*, such as ``cuda``.

    Most are in small letters, and may be written in others; what libraries have is
    named as these name it.

    Raises:
        InvalidArgument: there is no such device; ``ArgumentTypeError`` for what is no
            number of one.
    """
    try:
        ordinal = operator.index(device_id)
    except TypeError:
        raise ArgumentTypeError(
            f"a device has number {device_id!r}; expected a whole number, from 0"
        ) from None
    if ordinal < 0:
        raise InvalidArgument(f"a device has number {ordinal}; expected 0 or more")
    try:
        space = device_type
        if space != space.lower() and not registry.contexts.has(space):
            space = space.lower()
        return device_at(MemoryLocation(space, ordinal), registry)
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
