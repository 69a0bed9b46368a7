"""Where arrays of the host become torch's tensors, and back, without copies.

On a processor arrays are numpy's.  In a device's memory they are torch's own where this
EP made the device's context, and else those of the EP that did, which lends and takes
them by DLPack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from onnxplug import ep
from onnxplug_torch.arrays import to_numpy, to_tensor
from onnxplug_torch.context import TorchContext, external_stream, on_stream
from onnxplug_torch.devices import Place
from onnxplug_torch.dtypes import data_type


class Border(ABC):
    """Between the arrays at one memory location and tensors.

    Attributes:
        location: the memory.
        is_host: it is the host's, whose arrays are numpy's.
    """

    location: ep.MemoryLocation
    is_host = False

    @abstractmethod
    def tensor(self, array: Any) -> Any:
        """A tensor that shares the memory of *array*."""

    @abstractmethod
    def array(self, tensor: Any) -> Any:
        """An array that shares the memory of *tensor*, if that is contiguous."""

    @abstractmethod
    def queued(self, stream: ep.Stream | None) -> AbstractContextManager[None]:
        """While this lasts, torch queues work on *stream*."""


class HostBorder(Border):
    """numpy's arrays."""

    location = ep.HOST
    is_host = True

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def tensor(self, array: Any) -> Any:
        return to_tensor(self._torch, array)

    def array(self, tensor: Any) -> Any:
        return to_numpy(tensor, data_type(tensor.dtype))

    def queued(self, stream: ep.Stream | None) -> AbstractContextManager[None]:
        return nullcontext()


class OwnBorder(Border):
    """Tensors, in a context that this EP made."""

    def __init__(self, context: TorchContext) -> None:
        self.location = context.location

    def tensor(self, array: Any) -> Any:
        return array

    def array(self, tensor: Any) -> Any:
        return tensor.contiguous()

    def queued(self, stream: ep.Stream | None) -> AbstractContextManager[None]:
        return on_stream(stream)


class GuestBorder(Border):
    """Arrays of another EP, whose context it is.

    Args:
        torch: the module.
        device: the same device as torch calls it.
        context: the other EP's.
        module: what torch has for the kind of device; by default ``torch.cuda`` of
            CUDA, and so on.
    """

    def __init__(
        self, torch: Any, device: Any, context: ep.DeviceContext, module: Any = None
    ) -> None:
        self.location = context.location
        self._torch = torch
        self._device = device
        self._context = context
        self._module = module or getattr(torch, device.type)

    def tensor(self, array: Any) -> Any:
        return self._torch.from_dlpack(array)

    def array(self, tensor: Any) -> Any:
        tensor = tensor.contiguous()
        # as DLPack has memory of CUDA's, which parts of tensors do not begin at
        if self._device.type == "cuda" and tensor.data_ptr() % 256:
            tensor = tensor.clone()
        # both are of the stream that the run is queued on, so nobody has to wait
        capsule = self._torch.utils.dlpack.to_dlpack(tensor)
        return self._context.from_dlpack(capsule)

    @contextmanager
    def queued(self, stream: ep.Stream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        handle = stream.native_handle
        native = external_stream(self._module, handle, self._device) if handle else None
        if native is not None:
            with self._module.stream(native):
                yield
        else:  # torch cannot queue there, so each waits for the other
            stream.synchronize()
            yield
            # torch.mps has one device, and names none
            where = [] if self._device.type == "mps" else [self._device]
            self._module.synchronize(*where)


def border_at(torch: Any, place: Place, session: ep.SessionContext) -> Border:
    """The border of *place*, in the context that the host has for all EPs there.

    Raises:
        RuntimeError: another EP made that, of arrays that torch cannot read.
    """
    if place.location == ep.HOST:
        return HostBorder(torch)
    context = session.context(place.location)
    if isinstance(context, TorchContext):
        return OwnBorder(context)
    if context.dlpack_device != place.dlpack:
        raise RuntimeError(
            f"the memory {place.location} belongs to another EP, whose arrays DLPack "
            f"calls {context.dlpack_device}; expected {place.dlpack}; keep that EP out "
            "with ONNXPLUG_BLOCK, or use it instead of this one"
        )
    return GuestBorder(torch, torch.device(place.torch_name), context)
