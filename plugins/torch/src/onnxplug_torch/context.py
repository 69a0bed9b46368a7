"""A device's memory, streams and copies, on those of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.arrays import to_numpy, to_tensor
from onnxplug_torch.devices import Place
from onnxplug_torch.dtypes import data_type, torch_dtype


class TorchEvent(ep.Event):
    """An event of torch's."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def done(self) -> bool:
        try:
            return bool(self.native.query())
        except RuntimeError as error:  # the work failed
            ep.raise_interruption(error)
            return True

    def synchronize(self) -> None:
        self.native.synchronize()


class TorchGraph(ep.CapturedGraph):
    """A CUDA graph, with torch's pool of memory for it."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def launch(self, stream: ep.Stream) -> None:
        assert isinstance(stream, TorchStream)
        with stream.used():
            self._native.replay()

    def close(self) -> None:
        self._native.reset()


class TorchStream(ep.Stream):
    """A stream of torch's.

    Args:
        context: of its device.
        native: the stream, torch's own type.
    """

    def __init__(self, context: TorchContext, native: Any) -> None:
        self._context = context
        self._native = native
        self._graph: Any = None
        self._capturing: Any = None
        self.native_handle = int(
            getattr(native, "cuda_stream", 0) or getattr(native, "sycl_queue", 0)
        )

    @contextmanager
    def used(self) -> Iterator[None]:
        """While this lasts, torch queues work and takes memory here."""
        with self._context.module.stream(self._native):
            yield

    def record(self) -> TorchEvent:
        event = self._context.module.Event()
        event.record(self._native)
        return TorchEvent(event)

    def wait(self, event: ep.Event) -> bool:
        if not isinstance(event, TorchEvent):
            return False
        self._native.wait_event(event.native)
        return True

    def synchronize(self) -> None:
        self._native.synchronize()

    def begin_capture(self) -> None:
        module = self._context.module
        self._graph = module.CUDAGraph()
        self._capturing = module.stream(self._native)
        self._capturing.__enter__()
        # other threads may copy to and from the device meanwhile
        self._graph.capture_begin(capture_error_mode="thread_local")

    def end_capture(self) -> TorchGraph:
        graph, self._graph = self._graph, None
        try:
            graph.capture_end()
        finally:
            self._capturing.__exit__(None, None, None)
            self._capturing = None
        return TorchGraph(graph)


class TorchCapture(ep.GraphCapture):
    """Captures what is queued on streams of torch's."""

    def begin(self, stream: ep.Stream) -> None:
        assert isinstance(stream, TorchStream)
        stream.begin_capture()

    def end(self, stream: ep.Stream) -> TorchGraph:
        assert isinstance(stream, TorchStream)
        return stream.end_capture()


class _DeviceAllocator(ep.Allocator):
    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device

    def empty(
        self,
        shape: Sequence[int],
        dtype: DataType,
        stream: ep.Stream | None = None,
    ) -> Any:
        torch = self._torch
        with on_stream(stream):
            try:
                return torch.empty(
                    tuple(shape), dtype=torch_dtype(torch, dtype), device=self._device
                )
            except RuntimeError as error:
                if "memory" not in str(error):
                    raise
                raise MemoryError(str(error)) from error


class _PinnedAllocator(ep.Allocator):
    """numpy arrays in memory that the device copies to and from by itself."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def empty(
        self,
        shape: Sequence[int],
        dtype: DataType,
        stream: ep.Stream | None = None,
    ) -> np.ndarray[Any, Any]:
        kind = torch_dtype(self._torch, dtype)
        tensor = self._torch.empty(tuple(shape), dtype=kind, pin_memory=True)
        return to_numpy(tensor, dtype)


class _Transfer(ep.DataTransfer):
    def __init__(self, torch: Any, space: str) -> None:
        self._torch = torch
        self._space = space

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        spaces = {source.space, target.space}
        return self._space in spaces and spaces <= {self._space, ep.HOST.space}

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        with on_stream(stream), self._torch.inference_mode():
            for source, target in pairs:
                self._tensor(target).copy_(
                    self._tensor(source), non_blocking=stream is not None
                )

    def _tensor(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return to_tensor(self._torch, array)
        return array


def on_stream(stream: ep.Stream | None) -> AbstractContextManager[None]:
    """While this lasts, torch queues work on *stream*, which is of a TorchContext."""
    if stream is None:
        return nullcontext()
    assert isinstance(stream, TorchStream)
    return stream.used()


class TorchContext(ep.DeviceContext):
    """One of torch's devices.

    Attributes:
        torch: the module.
        module: what torch has for the kind of device; by default ``torch.cuda`` of
            CUDA, and so on.
    """

    def __init__(self, torch: Any, place: Place, module: Any = None) -> None:
        self.torch = torch
        self.device = torch.device(place.torch_name)
        self.module = module or getattr(torch, self.device.type)
        self.location = place.location
        self.dlpack_device = place.dlpack
        self.transfer = _Transfer(torch, place.space)
        self._allocator = _DeviceAllocator(torch, self.device)
        self._has_streams = place.has_streams
        self._pinned = _PinnedAllocator(torch) if place.pins else None

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return self._allocator if kind is ep.MemoryKind.DEVICE else self._pinned

    @property
    def live_bytes(self) -> int | None:
        """Of all tensors there, also of the program's."""
        counts = getattr(self.module, "memory_allocated", None)
        return None if counts is None else int(counts(self.device))

    def create_stream(self) -> TorchStream | None:
        if not self._has_streams:
            return None
        return TorchStream(self, self.module.Stream(device=self.device))

    def adopt_stream(self, handle: int) -> TorchStream:
        if handle < 0:  # torch looks at no handle before there is work for it
            raise LookupError(f"{handle} is no stream of {self.location}")
        external = external_stream(self.module, handle, self.device)
        if external is None:
            raise LookupError(f"torch adopts no streams of {self.location}")
        return TorchStream(self, external)

    def data_type(self, array: Any) -> DataType:
        return data_type(array.dtype)

    def from_dlpack(self, capsule: Any) -> Any:
        return self.torch.utils.dlpack.from_dlpack(capsule)

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        with on_stream(stream):
            return self.torch.stack(tuple(arrays), axis)

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        with on_stream(stream):
            return self.torch.select(array, axis, index).contiguous()

    def close(self) -> None:
        if self._has_streams:
            self.module.synchronize(self.device)


def external_stream(module: Any, handle: int, device: Any) -> Any | None:
    """torch's stream of what *device*'s own interface calls *handle*, if it has one.

    Args:
        module: ``torch.cuda`` or another for a kind of devices.
    """
    for name in ("get_stream_from_external", "ExternalStream"):
        if hasattr(module, name):
            return getattr(module, name)(handle, device)
    return None
