"""What copies between the host and simulated devices, and records that it did."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from onnxplug import ep
from onnxplug_testing.simulated.arrays import DeviceArray, data_type, location_of
from onnxplug_testing.simulated.memory import pinned_content
from onnxplug_testing.simulated.storage import HostArray, poison
from onnxplug_testing.simulated.streams import SimulatedStream

if TYPE_CHECKING:
    from onnxplug_testing.simulated.context import SimulatedContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy that the data transfer was asked for.

    Attributes:
        source, target: where from and where to.
        dtype, shape: of what.
        nbytes: how much.
        queued: it was queued on a stream.
    """

    source: ep.MemoryLocation
    target: ep.MemoryLocation
    dtype: ep.DataType
    shape: tuple[int, ...]
    nbytes: int
    queued: bool


class SimulatedDataTransfer(ep.DataTransfer):
    """Copies between the host and the devices of one space.

    Attributes:
        copies: each copy asked for, in order; a test may clear it.
    """

    def __init__(self, space: str) -> None:
        self.copies: list[Copy] = []
        self._space = space

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        spaces = {source.space, target.space}
        return self._space in spaces and spaces <= {self._space, ep.HOST.space}

    def copy(
        self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None = None
    ) -> None:
        for source, target in pairs:
            own = _check(source, target, stream)
            self.copies.append(
                Copy(
                    source=location_of(source),
                    target=location_of(target),
                    dtype=data_type(target),
                    shape=target.shape,
                    nbytes=int(np.prod(target.shape))
                    * data_type(target).numpy.itemsize,
                    queued=own is not None,
                )
            )
            copy_content(source, target, own)


def copy_content(source: Any, target: Any, stream: SimulatedStream | None) -> None:
    """Fill *target* from *source*, now or on *stream*."""
    read, write_to = _content(source), _content(target)
    if stream is None:
        np.copyto(write_to(), read(), casting="no")
        return
    spoils = reads = None
    # who reads a host target too early gets poison, unless work queued before on
    # this stream is to read it, as when an output is bound to an input's array
    if isinstance(target, np.ndarray) and not stream.will_read(target):
        spoils = partial(_spoil, weakref.ref(target))
    if isinstance(source, np.ndarray):
        reads = byte_bounds(source)
    stream.enqueue(
        lambda: np.copyto(write_to(), read(), casting="no"), reads or (0, 0), spoils
    )


def _check(
    source: Any, target: Any, stream: ep.Stream | None
) -> SimulatedStream | None:
    """The stream to copy on.

    Raises:
        ValueError: the arrays are not alike.
        RuntimeError: the context is closed, or the stream is of another.
    """
    kinds = [data_type(array) for array in (source, target)]
    if source.shape != target.shape or kinds[0] is not kinds[1]:
        raise ValueError(
            f"cannot copy {kinds[0]}{list(source.shape)} to "
            f"{kinds[1]}{list(target.shape)}; make the target alike"
        )
    devices: list[SimulatedContext] = [
        array.context for array in (source, target) if isinstance(array, DeviceArray)
    ]
    for context in devices:
        context.check_open()
    if stream is None:
        return None
    of = getattr(stream, "context", None)
    return (of if of in devices else devices[0]).own(stream)


def _spoil(reference: weakref.ref[HostArray]) -> None:
    target = reference()
    if target is not None:
        poison(target)


def _content(array: Any) -> Callable[[], HostArray]:
    """What gives the content of *array* when a copy comes to it."""
    if isinstance(array, DeviceArray):
        return array.storage.read
    host: HostArray = array
    pinned = pinned_content(host)
    if pinned is not None:
        return pinned
    if host.base is not None:  # a view; it need not outlive the copy, its memory must
        return lambda: host
    # the queue keeps no host array alive, and no more does a real one
    reference = weakref.ref(host)
    description = f"{host.dtype}{list(host.shape)}"

    def content() -> HostArray:
        found = reference()
        if found is None:
            raise RuntimeError(
                f"a host array, {description}, was dropped before the copy that needs "
                "it was done; keep it until the stream is synchronised"
            )
        return found

    return content
