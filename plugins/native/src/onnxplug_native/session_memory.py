"""What an EP of a library has its tensors in, in one session.

A library may have an allocator for each session (``OrtEp::CreateAllocator``).  What its
partitions make is then allocated by that, and weights by another one, if the library
says that it has memory which is only read.  Such an allocator may refer to the EP, as
that of WebGPU's library does, so both stay until the last array of theirs is freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug_native.device import (
    NativeAllocator,
    NativeContext,
    read_only_memory,
)
from onnxplug_native.functions.devices import MemoryInfo
from onnxplug_native.interface.ending import is_the_end
from onnxplug_native.interface.handles import find
from onnxplug_native.interface.structure import Structure

if TYPE_CHECKING:
    from onnxplug_native.factory import NativeFactory
    from onnxplug_native.functions.device_array import DeviceArray

_logger = logging.getLogger("onnxplug.plugin.onnxplug_native")

_ARENA = 1
"""The type of ONNX Runtime's own allocators (``OrtArenaAllocator``)."""


class SessionAllocator(NativeAllocator):
    """Allocates for one session, and calls what was given to :meth:`close_after` once
    nothing that it allocated is in use."""

    def __init__(self, structure: Structure, info: MemoryInfo, turn: Any) -> None:
        super().__init__(structure, info, turn)
        # what ends is called once, by whoever takes it from here
        self._end: list[Callable[[], None]] = []
        self._is_ending = False
        self._freeing: set[object] = set()

    def close_after(self, end: Callable[[], None]) -> None:
        """Call *end* once all is freed, which may be at once; nothing is kept for the
        next of its size from now on."""
        self._end.append(end)
        self._is_ending = True
        self._release_spare()
        if self._is_unused:
            call_last(self._end)

    def _release_spare(self) -> None:
        for known in [*self._spare.values()]:
            with contextlib.suppress(IndexError):  # another thread has the last
                while True:
                    self._release(known.pop())

    def _spare_or_release(self, nbytes: int, address: int) -> None:
        if self._is_ending:
            self._release(address)
            return
        super()._spare_or_release(nbytes, address)
        if self._is_ending:  # since: nobody looks there again
            self._release_spare()

    def _release(self, address: int) -> None:
        if is_the_end():  # and the system takes it back
            return
        # two threads may free the last two arrays at once: what ends has to wait for
        # both, so that it looks for those that are freed after those that are taken
        token = object()
        self._freeing.add(token)
        try:
            super()._release(address)
        finally:
            self._freeing.discard(token)
        if self._is_ending and self._is_unused:
            try:
                call_last(self._end)
            except ep.OnnxplugError as error:
                # nobody is there to be told: what had the memory is garbage
                _logger.warning("%s", error)

    @property
    def _is_unused(self) -> bool:
        return not self._taken and not self._freeing


class SessionMemory:
    """The memory of an EP that the host cannot use, as one session has it.

    Attributes:
        context: what all sessions share of it.
        transfer: what copies.
        stacking: takes arrays apart for bodies, and puts together what they leave.
        allocator_address: the library's own allocator of what runs make.
        weights_address: that of weights.
    """

    def __init__(
        self,
        factory: NativeFactory,
        structure: Structure,
        context: NativeContext,
        infos: Sequence[MemoryInfo],
    ) -> None:
        """The memory of the EP that *structure* is.

        Args:
            infos: what is allocated for its device.

        Raises:
            EPFail: the library gives no allocator, or one of a type that is ONNX
                Runtime's own.
            OnnxplugError: the library fails, and says why.
        """
        self._factory = factory
        self.context = context
        self.transfer = context.transfer
        self.stacking = context.stacking
        self.allocate: Callable[..., DeviceArray] = context.allocate
        self._of_weights = self.allocate
        self.allocator_address = self.weights_address = context.allocator_address
        self._own: list[tuple[SessionAllocator, Structure, MemoryInfo]] = []
        if not structure.has("CreateAllocator"):
            return
        try:
            self.allocate, self.allocator_address = self._made(structure, context.info)
            self._of_weights = self.allocate
            self.weights_address = self.allocator_address
            read_only = read_only_memory(infos)
            if read_only is not None:
                found = self._made(structure, read_only)
                self._of_weights, self.weights_address = found
        except BaseException:
            self.close(lambda: None)
            raise

    def _made(
        self, owner: Structure, known: MemoryInfo
    ) -> tuple[Callable[..., DeviceArray], int]:
        """What allocates by the allocator that the library makes for *known*, and where
        that is."""
        out = ctypes.c_void_p()
        info = known.copy()
        try:
            owner.call("CreateAllocator", info.address, ctypes.addressof(out))
            if not out.value:
                raise ep.EPFail(
                    f"OrtEp.CreateAllocator of {owner.owner} gave a null for its "
                    f"memory {info.name}; expected an allocator, as nobody else has "
                    "any for what the host cannot use"
                )
            made = Structure("OrtAllocator", out.value, owner.owner)
        except BaseException:
            info.release()
            raise
        try:
            said = find(MemoryInfo, made.call("Info"), quiet=True)
            if said is None:
                raise ep.EPFail(
                    f"OrtEp.CreateAllocator of {owner.owner} gave an allocator whose "
                    "Info is no OrtMemoryInfo; expected the one that was given to it"
                )
            if said.allocator_type == _ARENA:
                raise ep.EPFail(
                    f"OrtEp.CreateAllocator of {owner.owner} gave an allocator of type "
                    "OrtArenaAllocator, which is ONNX Runtime's own; expected another"
                )
            allocator = SessionAllocator(made, info, self._factory.library.turn)
        except BaseException:
            self._release(made, info)
            raise
        self._own.append((allocator, made, info))
        return functools.partial(_allocate, allocator), made.address

    def _release(self, structure: Structure, info: MemoryInfo) -> None:
        self._factory.structure.call("ReleaseAllocator", structure.address)
        info.release()

    def takes(self, value: ep.ValueInfo) -> bool:
        """Whether *value* can lie there."""
        return self.context.takes(value)

    def weight(self, array: Any) -> DeviceArray:
        """A copy of numpy's *array*, which is a weight."""
        made = self._of_weights(ep.DataType.from_numpy(array.dtype), array.shape)
        self.transfer.copy([(array, made)], None)
        return made

    def add_capturing(self, count: int) -> None:
        """So many EPs more capture runs."""
        self.context.add_capturing(count)

    def close(self, then: Callable[[], None]) -> None:
        """Release what is the session's once nothing of it is in use, and call *then*,
        which may be later, in any thread."""
        own, self._own = self._own, []
        waited_for: list[object] = [*own]
        last = [then]
        if not own:
            then()
        for allocator, structure, info in own:
            allocator.close_after(
                functools.partial(self._end, structure, info, waited_for, last)
            )

    def _end(
        self,
        structure: Structure,
        info: MemoryInfo,
        waited_for: list[object],
        last: list[Callable[[], None]],
    ) -> None:
        """Release an allocator, and call *last* if it is that of all waited for."""
        try:
            self._release(structure, info)
        finally:
            waited_for.pop()
            if not waited_for:
                call_last(last)


def _allocate(
    allocator: SessionAllocator,
    dtype: ep.DataType,
    shape: tuple[int, ...],
    stream: ep.Stream | None = None,
) -> DeviceArray:
    return allocator.empty(shape, dtype, stream)


def call_last(calls: list[Callable[[], None]]) -> None:
    """Take the last of *calls*, which another thread may have taken, and call it."""
    try:
        call = calls.pop()
    except IndexError:
        return
    call()
