"""Memory that is not the host's: a library's allocators, copies and streams."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import usual_form
from onnxplug.authoring.bounds import MOST_AXES
from onnxplug.authoring.locks import new_lock
from onnxplug_native.capture import DoneStream
from onnxplug_native.functions.device_array import DeviceArray
from onnxplug_native.functions.devices import READ_ONLY, MemoryInfo
from onnxplug_native.functions.stream import SyncStream
from onnxplug_native.functions.tensor import Value
from onnxplug_native.interface.structure import Structure
from onnxplug_native.stacking import Stacking

if TYPE_CHECKING:
    from onnxplug_native.factory import NativeFactory


_logger = logging.getLogger("onnxplug.plugin.onnxplug_native")


_SPARED_BYTES: Final = 1 << 20
"""What is larger is given back to the library at once."""

_SPARED_SIZES: Final = 8
_SPARED_OF_ONE: Final = 2


def location_of(info: MemoryInfo) -> ep.MemoryLocation:
    """Where what *info* says is allocated."""
    return ep.MemoryLocation(info.name, info.place.device_id)


def is_held(dtype: ep.DataType | None) -> bool:
    """Whether memories of libraries hold tensors of *dtype*: those whose elements lie
    there as numpy has them."""
    return dtype is not None and dtype.bits >= 8


class NativeAllocator(ep.Allocator):
    """Allocates by a library's allocator."""

    def __init__(self, structure: Structure, info: MemoryInfo, turn: Any) -> None:
        self._structure = structure
        self._info = info
        self._turn = turn
        structure.function("Free")  # which raises, if there is none
        self._is_ordered = structure.has("AllocOnStream")
        self._taken: set[int] = set()
        # by the size, what was freed last: each run has inputs and outputs like those
        # of the one before, and a library may take long to make room for them
        self._spare: dict[int, list[int]] = {}

    def empty(
        self,
        shape: Sequence[int],
        dtype: ep.DataType,
        stream: ep.Stream | None = None,
    ) -> DeviceArray:
        """A new array.

        Raises:
            MemoryError: the library has not so much.
            TypeError: strings are nowhere but on the host.
        """
        if not is_held(dtype):
            raise TypeError(f"{self._info.name} holds no arrays of {dtype}")
        sizes = tuple(map(int, shape))
        if len(sizes) > MOST_AXES or min(sizes, default=0) < 0:
            raise ValueError(f"{list(sizes)} is no shape")
        nbytes = math.prod(sizes) * dtype.numpy.itemsize
        if not isinstance(stream, NativeStream):
            return DeviceArray(
                self._spared(nbytes) or self._taken_anew(nbytes, None),
                sizes,
                dtype.numpy,
                self._info,
                functools.partial(self._spare_or_release, nbytes),
            )
        # work that is queued may still use what nobody refers to any more
        release = functools.partial(stream.release_later, self._release)
        address = self._taken_anew(nbytes, stream)
        return DeviceArray(address, sizes, dtype.numpy, self._info, release)

    def _taken_anew(self, nbytes: int, stream: NativeStream | None) -> int:
        """The address of what the library allocates; 0 for nothing.

        Raises:
            MemoryError: it has not so much.
        """
        with self._turn:
            if self._is_ordered and stream is not None:
                address = self._structure.call(
                    "AllocOnStream", nbytes, stream.handle.address
                )
            else:
                address = self._structure.call("Alloc", nbytes)
        if not address and nbytes:
            raise MemoryError(f"{self._info.name} has no {nbytes} bytes")
        if address:
            self._taken.add(address)
        return address or 0

    def _spared(self, nbytes: int) -> int:
        """The address of what was freed of that size; 0 for none."""
        known = self._spare.get(nbytes)
        try:
            return known.pop() if known else 0
        except IndexError:  # another thread has it
            return 0

    def _spare_or_release(self, nbytes: int, address: int) -> None:
        """Keep what is freed for the next of its size, or free it."""
        if address not in self._taken:  # nothing, or freed by close()
            return
        known = self._spare.get(nbytes)
        if known is None and nbytes <= _SPARED_BYTES:
            while len(self._spare) >= _SPARED_SIZES:
                for each in self._spare.pop(next(iter([*self._spare]), 0), ()):
                    self._release(each)
            known = self._spare.setdefault(nbytes, [])
        if known is not None and len(known) < _SPARED_OF_ONE:
            known.append(address)
        else:
            self._release(address)

    def _release(self, address: int) -> None:
        try:
            self._taken.remove(address)
        except KeyError:  # nothing, or freed by close()
            return
        self._give_back(address)

    def _give_back(self, address: int) -> None:
        try:
            with self._turn:
                self._structure.call("Free", address)
        except ep.OnnxplugError as error:
            # nobody is there to be told: what had the memory is garbage
            _logger.warning("%s", error)

    def close(self) -> None:
        """Free what is left, such as weights of sessions that are closed."""
        self._spare.clear()
        while self._taken:
            self._give_back(self._taken.pop())


class NativeTransfer(ep.DataTransfer):
    """Copies by a library's data transfer."""

    def __init__(self, structure: Structure, info: MemoryInfo, turn: Any) -> None:
        self._structure = structure
        self._info = info
        self._turn = turn
        self._host = MemoryInfo("Cpu", type(info.place)())
        self._idle: dict[ep.DataType, deque[_Ends]] = {
            dtype: deque() for dtype in ep.DataType
        }

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        """What the library says."""
        ends = [self._device(each) for each in (source, target)]
        if None in ends:
            return False
        return bool(self._structure.call("CanCopy", *ends))

    def _device(self, location: ep.MemoryLocation) -> int | None:
        if location == location_of(self._info):
            return self._info.device.address
        return self._host.device.address if location.host_accessible else None

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        """Copy; what has no element is left."""
        pairs = [pair for pair in pairs if 0 not in pair[0].shape]
        if not pairs:
            return
        ends = [self._ends(ep.DataType.from_numpy(source.dtype)) for source, _ in pairs]
        filled: list[tuple[Any, Any]] = []
        try:
            for each, (source, target) in zip(ends, pairs, strict=True):
                wanted = _usual(target, each.dtype)
                if wanted is not target:
                    filled.append((target, wanted))
                each.source.set(_usual(source, each.dtype))
                each.target.set(wanted)
            self._copy(ends, stream)
            if filled and stream is not None:
                stream.synchronize()
            for target, made in filled:
                target[...] = made
        finally:
            for each in ends:
                each.source.clear()
                each.target.clear()
                self._idle[each.dtype].append(each)

    def _copy(self, ends: Sequence[_Ends], stream: ep.Stream | None) -> None:
        handle = stream.handle.address if isinstance(stream, NativeStream) else None
        first, count = ends[0], len(ends)
        arrays = first.arrays
        if count > 1:
            arrays = (
                (ctypes.c_void_p * count)(*(each.source.address for each in ends)),
                (ctypes.c_void_p * count)(*(each.target.address for each in ends)),
                (ctypes.c_void_p * count)(*[handle] * count),
            )
        else:
            arrays[2][0] = handle
        with self._turn:
            self._structure.call("CopyTensors", *map(ctypes.addressof, arrays), count)

    def _ends(self, dtype: ep.DataType) -> _Ends:
        """What no copy uses: making it takes longer than most copies."""
        try:
            return self._idle[dtype].pop()
        except IndexError:
            return _Ends(dtype)

    def release(self) -> None:
        """Release what the library made."""
        self._structure.call("Release")
        self._host.release()
        for idle in self._idle.values():
            while idle:
                idle.pop().release()


class _Ends:
    """The tensors that a copy is from and to, and where libraries are told of them.

    Attributes:
        dtype: of the elements.
        source, target: the tensors.
        arrays: of the source alone, of the target, and of the stream.
    """

    def __init__(self, dtype: ep.DataType) -> None:
        self.dtype = dtype
        self.source, self.target = Value(dtype), Value(dtype)
        one = ctypes.c_void_p * 1
        self.arrays = one(self.source.address), one(self.target.address), one()

    def release(self) -> None:
        """Release the tensors."""
        self.source.release()
        self.target.release()


def _usual(array: Any, dtype: ep.DataType) -> Any:
    # bodies that the host runs may give scalars, which are no arrays
    if isinstance(array, _OF_NUMPY):
        return usual_form(array, dtype.numpy)
    return array


_OF_NUMPY: Final = (np.ndarray, np.generic)


class NativeEvent(ep.Event):
    """A point in a stream, by a notification of the library's.

    Libraries cannot be asked whether they have reached it: it is done once it, or what
    is behind it, was waited for.
    """

    def __init__(self, structure: Structure, stream: NativeStream) -> None:
        self.structure = structure
        self.stream = stream
        self.position = sys.maxsize  # until it is activated

    def done(self) -> bool:
        """Whether the host has waited for it, or for something behind it."""
        return self.stream.has_reached(self.position)

    def synchronize(self) -> None:
        """Wait on the host."""
        self.structure.call("WaitOnHost")
        self.stream.reach(self.position)

    def __del__(self) -> None:
        self.structure.call("Release")
        self.stream.forget()


class NativeStream(ep.Stream):
    """A stream of a library.

    Attributes:
        handle: what entries of the interface know it by.
        native_handle: what the device's own API calls it.
    """

    def __init__(self, structure: Structure, let_go: Callable[[], None]) -> None:
        self.handle = SyncStream(structure)
        self.native_handle = self.handle.native_handle
        self._structure = structure
        self._let_go = let_go
        self._events = 1  # itself, as the library's own outlives its notifications
        self._queued = self._reached = 0
        self._waits: dict[NativeStream, tuple[int, int]] = {}
        self._lock = new_lock()
        self._later: list[tuple[Callable[[int], None], int]] = []

    def release_later(self, release: Callable[[int], None], address: int) -> None:
        """Call *release* with *address* once what is queued now is done."""
        with self._lock:
            if self._events:
                self._later.append((release, address))
                return
        release(address)

    def record(self) -> NativeEvent:
        """A notification that is activated here."""
        out = ctypes.c_void_p()
        self._structure.call("CreateNotification", ctypes.addressof(out))
        if not out.value:
            raise RuntimeError(f"{self._structure.owner} made no notification")
        owner = self._structure.owner
        structure = Structure("OrtSyncNotificationImpl", out.value, owner)
        with self._lock:
            self._events += 1
        event = NativeEvent(structure, self)
        structure.call("Activate")
        with self._lock:
            self._queued += 1
            event.position = self._queued
        return event

    def wait(self, event: ep.Event) -> bool:
        """Let the library wait, if the event is of one; else the host has to."""
        if not isinstance(event, NativeEvent):
            return False
        if event.structure.owner != self._structure.owner:
            return False
        event.structure.call("WaitOnDevice", self.handle.address)
        if event.stream is not self:
            with self._lock:
                self._queued += 1
                self._waits[event.stream] = (self._queued, event.position)
        return True

    def has_reached(self, position: int) -> bool:
        """Whether all that was queued before *position* is known to be done."""
        return self._reached >= position

    def reach(self, position: int) -> None:
        """Note that all that was queued before *position* is done.

        What the stream waited for before it is, too.
        """
        with self._lock:
            self._reached = max(self._reached, position)
            passed = [
                (stream, theirs)
                for stream, (ours, theirs) in self._waits.items()
                if ours <= self._reached
            ]
            for stream, _ in passed:
                del self._waits[stream]
        for stream, theirs in passed:
            stream.reach(theirs)

    def synchronize(self) -> None:
        """Flush: all that was queued is done."""
        with self._lock:
            due, self._later = self._later, []
            position = self._queued
        try:
            self._structure.call("Flush")
        finally:
            for release, address in due:
                release(address)
        self.reach(position)

    def close(self) -> None:
        """Release the stream, once its notifications are."""
        self.synchronize()
        self.forget()

    def forget(self) -> None:
        """Release the library's stream, if neither it nor an event is used any more."""
        with self._lock:
            self._events -= 1
            is_last = not self._events
            due, self._later = (self._later, []) if is_last else ([], self._later)
        if is_last:
            self._structure.call("Release")
            for release, address in due:
                release(address)
            self.handle.release()
            self._let_go()


class NativeContext(ep.DeviceContext):
    """The memory of a library's device.

    Attributes:
        location: where it is.
        transfer: what copies.
        stacking: takes arrays apart for bodies, and puts together what they leave.
    """

    transfer: NativeTransfer

    def __init__(self, factory: NativeFactory, infos: Sequence[MemoryInfo]) -> None:
        """*infos* are what is allocated for the device, its own memory first.

        Raises:
            OnnxplugError: the library fails.
            LookupError: it has no allocator, or nothing that copies.
        """
        self._factory = factory
        self._let_go = factory.library.hold()
        self._lock = new_lock()
        self._capturing = 0
        self.location = location_of(infos[0])
        self._infos = [info.copy() for info in infos]
        self._structures: list[Structure] = []
        self._allocator = self._make(self._infos[0])
        made = self._call("CreateDataTransfer")
        if made is None:
            raise LookupError(
                f"{factory.name} of {factory.library.name} copies nothing to and from "
                f"its memory {self.location}"
            )
        structure = Structure("OrtDataTransferImpl", made, factory.library.name)
        turn = factory.library.turn
        self.transfer = NativeTransfer(structure, self._infos[0], turn)
        self.stacking = Stacking(self, turn)

    def _call(self, entry: str, *arguments: int | None) -> int | None:
        out = ctypes.c_void_p()
        structure = self._factory.structure
        structure.call(entry, *arguments, ctypes.addressof(out))
        return out.value

    def _make(self, info: MemoryInfo) -> NativeAllocator:
        made = self._call("CreateAllocator", info.address, None)
        if made is None:
            raise LookupError(
                f"{self._factory.name} of {self._factory.library.name} has no "
                f"allocator for its memory {info.name}"
            )
        structure = Structure("OrtAllocator", made, self._factory.library.name)
        self._structures.append(structure)
        return NativeAllocator(structure, info, self._factory.library.turn)

    @property
    def info(self) -> MemoryInfo:
        """What is known of the device's own memory."""
        return self._infos[0]

    @property
    def allocator_address(self) -> int:
        """The library's own allocator."""
        return self._structures[0].address

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        """That of the device's own memory; the library pins none for numpy."""
        return self._allocator if kind is ep.MemoryKind.DEVICE else None

    def takes(self, value: ep.ValueInfo) -> bool:
        """Whether *value* can lie here."""
        return is_held(value.dtype)

    def allocate(
        self,
        dtype: ep.DataType,
        shape: tuple[int, ...],
        stream: ep.Stream | None = None,
    ) -> DeviceArray:
        """A new array, for work queued on *stream*."""
        return self._allocator.empty(shape, dtype, stream)

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        """*arrays* along a new axis, where the library gave what does that."""
        return self.stacking.stack(arrays, axis, stream)

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        """A copy of a part of *array*, where the library gave what does that."""
        return self.stacking.take(array, axis, index, stream)

    def add_capturing(self, count: int) -> None:
        """So many EPs more capture runs, which the host does on streams only."""
        with self._lock:
            self._capturing += count

    def create_stream(self) -> ep.Stream | None:
        """A stream, if the library has any, or captures without."""
        structure = self._factory.structure
        if not structure.has("IsStreamAware") or not structure.call("IsStreamAware"):
            return DoneStream() if self._capturing else None
        made = self._call(
            "CreateSyncStreamForDevice", self._infos[0].device.address, None
        )
        if made is None:
            return None
        implementation = Structure(
            "OrtSyncStreamImpl", made, self._factory.library.name
        )
        return NativeStream(implementation, self._factory.library.hold())

    def close(self) -> None:
        """Release what the library made."""
        self.transfer.release()
        self._allocator.close()
        for structure in self._structures:
            self._factory.structure.call("ReleaseAllocator", structure.address)
        for info in self._infos:
            info.release()
        self._let_go()


def own_memory(infos: Sequence[MemoryInfo]) -> MemoryInfo | None:
    """Of what is allocated for a pair, the device's own memory; ``None`` if the host
    can use all of it."""
    for info in infos:
        if is_own(info) and info.allocator_type != READ_ONLY:
            return info
    return None


def read_only_memory(infos: Sequence[MemoryInfo]) -> MemoryInfo | None:
    """Of what is allocated for a pair, that which is only read, as weights are."""
    for info in infos:
        if is_own(info) and info.allocator_type == READ_ONLY:
            return info
    return None


def is_own(info: MemoryInfo) -> bool:
    """Whether the host cannot use what *info* says is allocated."""
    return not info.place.is_host
