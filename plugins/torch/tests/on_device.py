"""The EP on torch's CPU as if that were a device with memory and streams of its own.

What a GPU would do, but for being late: arrays are tensors outside partitions, too,
copies go through the data transfer, and work is queued on streams, which note it.  The
memory may be that of another EP, whose arrays are none of torch's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.arrays import to_tensor
from onnxplug_torch.border import Border, GuestBorder, OwnBorder
from onnxplug_torch.context import TorchContext
from onnxplug_torch.devices import Place
from onnxplug_torch.dtypes import data_type, torch_dtype
from onnxplug_torch.factory import TorchFactory
from onnxplug_torch.options import read_settings
from onnxplug_torch.provider import TorchProvider

NAME = "DeviceExecutionProvider"
SPACE = "pretended"


class PretendedPlace(Place):
    """torch's CPU, with memory that is not the host's."""

    @property
    def torch_name(self) -> str:
        return "cpu"

    @property
    def location(self) -> ep.MemoryLocation:
        return ep.MemoryLocation(SPACE, self.ordinal)

    @property
    def dlpack(self) -> tuple[int, int]:
        return 1, 0

    @property
    def has_streams(self) -> bool:
        return True

    @property
    def pins(self) -> bool:
        return False

    @property
    def captures(self) -> bool:
        return True


class StreamlessPlace(PretendedPlace):
    """The same where calls return when work is done, as on Apple's GPUs."""

    @property
    def has_streams(self) -> bool:
        return False


class Stream:
    """As torch.cuda.Stream is used; counts what waits for it and was queued on it."""

    def __init__(self, log: list[str], device: Any) -> None:
        self._log = log
        self.cuda_stream = id(self)

    def wait_event(self, event: Event) -> None:
        assert event.recorded
        self._log.append("wait")

    def synchronize(self) -> None:
        self._log.append("synchronize")


class Event:
    """As torch.cuda.Event is used."""

    recorded = False

    def record(self, stream: Stream) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded

    def synchronize(self) -> None:
        assert self.recorded


class Graph:
    """As torch.cuda.CUDAGraph is used; calls operators again, on the same tensors."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def capture_begin(self, capture_error_mode: str) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        calls = self._calls

        class Noting(TorchDispatchMode):
            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                found = function(*args, **(kwargs or {}))
                calls.append((function, args, kwargs or {}, found))
                return found

        self._noting = Noting()
        self._noting.__enter__()
        self._log.append("capture")

    def capture_end(self) -> None:
        self._noting.__exit__(None, None, None)

    def replay(self) -> None:
        import torch

        self._log.append("replay")
        with torch.inference_mode():
            for function, args, kwargs, found in self._calls:
                again = function(*args, **kwargs)
                if again.data_ptr() != found.data_ptr():
                    found.copy_(again)

    def reset(self) -> None:
        self._log.append("reset")


class Module:
    """As torch.cuda is used."""

    Event = Event

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def CUDAGraph(self) -> Graph:
        return Graph(self._log)

    def Stream(self, device: Any) -> Stream:
        return Stream(self._log, device)

    def get_stream_from_external(self, handle: int, device: Any) -> Stream:
        self._log.append(f"adopted {handle}")
        return Stream(self._log, device)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self._log.append("used")
        yield

    def synchronize(self, device: Any) -> None:
        self._log.append("synchronize all")


class DeviceSpaces(ep.MemorySpaces):
    """That of the pretended device, to spare.

    Args:
        log: what streams were told, in order.
    """

    spare = frozenset({SPACE})

    def __init__(self, place: PretendedPlace, log: list[str]) -> None:
        self._place = place
        self._log = log

    def create_context(self, location: ep.MemoryLocation) -> TorchContext:
        import torch

        return TorchContext(torch, self._place, Module(self._log))


class DeviceFactory(TorchFactory):
    """The EP's factory, of one pretended device.

    Attributes:
        log: what streams were told, in order.
        providers: the EPs that it created.
    """

    name = NAME
    verification = None

    def __init__(self, place: type[PretendedPlace] = PretendedPlace) -> None:
        self.log: list[str] = []
        self.memory_spaces = DeviceSpaces(place(SPACE, 0), self.log)
        self.providers: list[TorchProvider] = []

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        device = ep.HardwareDevice(
            type=ep.DeviceType.GPU, vendor="Pretended", metadata={"is_virtual": "1"}
        )
        return [ep.EpDevice(ep_name=self.name, device=device)]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> TorchProvider:
        import torch

        location = PretendedPlace(SPACE, 0).location
        context = session.context(location)
        device = torch.device("cpu")
        border: Border = (
            OwnBorder(context)
            if isinstance(context, TorchContext)
            else GuestBorder(torch, device, context, Module(self.log))
        )
        provider = TorchProvider(
            torch,
            device,
            border,
            read_settings(options, 0),
            session.weights(location),
        )
        self.providers.append(provider)
        return provider


class Lent:
    """An array of another EP's, which shows its elements by DLPack alone."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)

    def __dlpack__(self, **given: Any) -> Any:
        return self._tensor.__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def data_ptr(self) -> int:
        return int(self._tensor.data_ptr())


class OwnerStream(ep.Stream):
    """A stream of the other EP's; its work is done at once.

    Args:
        handle: its native one; 0 for none.
    """

    def __init__(self, log: list[str], handle: int) -> None:
        self.native_handle = handle
        self._log = log

    def record(self) -> ep.Event:
        return OwnerEvent()

    def wait(self, event: ep.Event) -> bool:
        return True

    def synchronize(self) -> None:
        self._log.append("synchronize")


class OwnerEvent(ep.Event):
    """A point in such a stream."""

    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class OwnerContext(ep.DeviceContext):
    """The other EP's memory, which is the host's, too."""

    location = PretendedPlace(SPACE, 0).location
    dlpack_device = (1, 0)

    def __init__(self, log: list[str], handle: int) -> None:
        self._log = log
        self._handle = handle
        self.transfer = OwnerTransfer()

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        return OwnerAllocator() if kind is ep.MemoryKind.DEVICE else None

    def create_stream(self) -> ep.Stream:
        return OwnerStream(self._log, self._handle)

    def data_type(self, array: Any) -> DataType:
        import torch

        return data_type(torch.from_dlpack(array).dtype)

    def from_dlpack(self, capsule: Any) -> Lent:
        import torch

        return Lent(torch.utils.dlpack.from_dlpack(capsule))


class OwnerAllocator(ep.Allocator):
    """Makes its arrays."""

    def empty(
        self, shape: Sequence[int], dtype: DataType, stream: ep.Stream | None = None
    ) -> Lent:
        import torch

        return Lent(torch.empty(tuple(shape), dtype=torch_dtype(torch, dtype)))


class OwnerTransfer(ep.DataTransfer):
    """Copies to them and from them."""

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        return {source.space, target.space} <= {SPACE, ep.HOST.space}

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        import torch

        for source, target in pairs:
            tensors = [
                to_tensor(torch, each)
                if isinstance(each, np.ndarray)
                else torch.from_dlpack(each)
                for each in (source, target)
            ]
            tensors[1].copy_(tensors[0])


class OwnerSpaces(ep.MemorySpaces):
    """That of the pretended device."""

    owned = frozenset({SPACE})

    def __init__(self, handle: int, log: list[str]) -> None:
        self._log = log
        self._handle = handle

    def create_context(self, location: ep.MemoryLocation) -> OwnerContext:
        return OwnerContext(self._log, self._handle)


class OwnerFactory(ep.EpFactory):
    """An EP that owns the pretended device's memory, and takes no node."""

    spi_version = (0, 6)
    name = "OwnerExecutionProvider"

    def __init__(self, handle: int, log: list[str]) -> None:
        self.log = log
        self.memory_spaces = OwnerSpaces(handle, log)

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        return []

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        raise NotImplementedError
