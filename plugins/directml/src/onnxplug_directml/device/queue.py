"""An adapter's devices of Direct3D 12 and DirectML, their queue, how far that is."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Final, TypeVar

from onnxplug.authoring.locks import new_rlock
from onnxplug_directml.abi.d3d12 import (
    D3D12_COMMAND_LIST_TYPE,
    D3D12_COMMAND_QUEUE_DESC,
    D3D12_COMMAND_QUEUE_FLAGS,
    D3D12_FENCE_FLAGS,
)
from onnxplug_directml.abi.directml import DML_CREATE_DEVICE_FLAGS, DML_FEATURE_LEVEL
from onnxplug_directml.com.d3d12 import ID3D12GraphicsCommandList
from onnxplug_directml.com.errors import DeviceRemoved, error_of
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.com.unknown import IUnknown
from onnxplug_directml.device.adapters import Adapter, opened
from onnxplug_directml.device.features import target_of
from onnxplug_directml.device.loss import REMEDY
from onnxplug_directml.device.waiting import Waiter

Reference = TypeVar("Reference", bound=IUnknown)

LISTS: Final = D3D12_COMMAND_LIST_TYPE.COMPUTE
"""What the queue and its lists are: NPUs have no other but for copies, and on a GPU
the screen goes on meanwhile."""

PATIENCE: Final = 120.0
"""Seconds in which the queue has to get on with its work before it counts as hung.

Windows takes a GPU for hung after 2 s, unless the queue asks for no limit, as graphs of
large models on small GPUs need.
"""

_REMOVED: Final = 2**64 - 1
"""What fences say once their device was removed."""


class DmlQueue:
    """A queue, with the devices that it is of.

    Every reference of COM's that it makes is its own until :meth:`retire` or
    :meth:`close`.

    Attributes:
        adapter: what it is on.
        native, dml: Direct3D's and DirectML's device.
        recorder: writes what DirectML computes to command lists.
        target: what the device can do.
        lock: held while work is put together and queued, and while the queue is waited
            for in that.
        submitted, completed: the number of the last work that was queued, and of the
            last that is known to be done.
        dropped: references that are to be retired; from any thread, without the lock.
        patience: seconds; see :data:`PATIENCE`.
        spins: who waits does not sleep.

    Raises:
        ComError: Windows makes none.
        LookupError: the adapter is not there.
    """

    def __init__(self, libraries: Libraries, adapter: Adapter) -> None:
        self.adapter = adapter
        self.lock: Final = new_rlock()
        self.submitted = self.completed = 0
        self.patience = PATIENCE
        self.spins = False
        self._why_lost = ""
        self._is_hung = False
        self._is_closed = False
        # held as references come and go, and never while anything is waited for
        self._life: Final = new_rlock()
        self._owned: dict[int, IUnknown] = {}
        self._retired: deque[tuple[int, IUnknown]] = deque()
        self.dropped: deque[IUnknown] = deque()
        try:
            with opened(libraries, adapter) as native:
                self.native = self.own(
                    libraries.D3D12CreateDevice(native, adapter.level, asked=str(self))
                )
            self.dml = self.own(
                libraries.DMLCreateDevice1(
                    self.native,
                    DML_CREATE_DEVICE_FLAGS.NONE,
                    DML_FEATURE_LEVEL.LEVEL_1_0,
                    asked=str(self),
                )
            )
            self.target = target_of(self.dml)
            self.recorder = self.own(self.dml.CreateCommandRecorder())
            self._queue = self.own(
                self.native.CreateCommandQueue(
                    D3D12_COMMAND_QUEUE_DESC(
                        Type=LISTS,
                        Flags=D3D12_COMMAND_QUEUE_FLAGS.DISABLE_GPU_TIMEOUT,
                    )
                )
            )
            self._fence = self.own(self.native.CreateFence(0, D3D12_FENCE_FLAGS.NONE))
            self._waiter = Waiter(libraries)
        except BaseException:
            self._release()
            raise

    def __str__(self) -> str:
        return str(self.adapter)

    # references

    def own(self, reference: Reference) -> Reference:
        """*reference*, which is the device's now.

        Raises:
            DeviceRemoved: the device was closed meanwhile; so is *reference* then.
        """
        with self._life:
            if self._is_closed:
                reference.close()
                raise self.lost()
            self._owned[id(reference)] = reference
        return reference

    def borrowed(self, reference: Reference) -> Reference:
        """*reference*, one of the device's, as one that its borrower closes: for what
        is done without the lock, in which another thread may close the device.

        Raises:
            DeviceRemoved: the device was closed.
        """
        with self._life:
            if self._is_closed:
                raise self.lost()
            return reference.share()

    def retire(self, reference: IUnknown) -> None:
        """Release *reference* once all that is queued until now is done."""
        self._retired.append((self.submitted, reference))

    def collect(self) -> None:
        """Release what is retired, as far as the queue is done with it; nothing while
        another thread has the lock, who will come by here.

        Garbage may be collected at any place, and sessions closed in that; so this
        waits for no lock.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            while self.dropped:
                self.retire(self.dropped.popleft())
            while self._retired:
                # taken first, as garbage that is collected meanwhile may come by here
                number, reference = self._retired.popleft()
                if not self._is_past(number):
                    self._retired.appendleft((number, reference))
                    return
                self._close(reference)
        finally:
            self.lock.release()

    def _close(self, reference: IUnknown) -> None:
        self._owned.pop(id(reference), None)
        reference.close()

    # loss

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be lost."""
        return bool(self._why_lost)

    def lose(self, why: str) -> None:
        self._why_lost = self._why_lost or why

    def lost(self) -> DeviceRemoved:
        return DeviceRemoved(f"{self} was lost: {self._why_lost}; {REMEDY}")

    def check(self) -> None:
        """See that both devices are there.

        DirectML's methods that return nothing say by its removal that they failed.

        Raises:
            DeviceRemoved: one is not; with the reason.
        """
        devices = ((self.native, "Direct3D 12"), (self.dml, "DirectML"))
        with self._life:
            for device, what in () if self.is_lost else devices:
                reason = device.GetDeviceRemovedReason()
                if reason < 0:
                    self.lose(str(error_of(reason, what)))
                    break
        self.refuse_lost()

    # how far the queue is

    def has_done(self, number: int) -> bool:
        """Whether the work up to *number* is done, or never will be; does not raise."""
        # which asking may find out
        return self.is_lost or self._is_done(number) or self.is_lost

    def _is_done(self, number: int) -> bool:
        if number <= self.completed:
            return True
        value = self._value()
        if value == _REMOVED:
            self._find_out()
            return False
        self.completed = value
        return bool(number <= value)

    def _is_past(self, number: int) -> bool:
        """Whether the queue does nothing any more of the work up to *number*; a hung
        one may."""
        return number <= self.completed or self._value() >= number

    def _value(self) -> int:
        """That of the fence."""
        with self._life:
            return _REMOVED if self._is_closed else int(self._fence.GetCompletedValue())

    def _find_out(self) -> None:
        try:
            self.check()
        except DeviceRemoved:
            return
        self.lose("its fences are at the end, as when it is removed")

    def wait(self, number: int) -> None:
        """Wait for the work up to *number*.

        Raises:
            DeviceRemoved: the device was lost before that, or does not get on.
        """
        if not self.has_done(number) and not self._is_reached(number):
            self._is_hung = True
            self.lose(f"it has not done for {self.patience:g} s what was queued")
        if not self._is_done(number):
            raise self.lost()

    def _is_reached(self, number: int) -> bool:
        """Whether the fence has come to *number* while the queue got on."""
        with self.borrowed(self._fence) as fence:
            return self._waiter.wait(fence, number, self.patience, spins=self.spins)

    # work

    def execute(self, commands: ID3D12GraphicsCommandList) -> int:
        """Queue a closed list, by itself: it begins when what was queued before is
        done, and finds all buffers in their first state; the number of that.

        The device's methods that queue work call it, under the lock.
        """
        number = self.submitted + 1
        try:
            self._queue.ExecuteCommandLists([commands])
        finally:  # what is queued has a number, also if this is interrupted
            self._queue.Signal(self._fence, number)
            self.submitted = number
        return number

    def refuse_lost(self) -> None:
        """See that the device is not known to be lost.

        Raises:
            DeviceRemoved: it is.
        """
        if self.is_lost:
            raise self.lost()

    # end

    def close(self) -> None:
        """Release everything, once the queue is done with it.  Idempotent.

        What a hung queue may still use stays until it is not.
        """
        with self.lock:
            if self._is_closed or self in _hung:
                return
            number = self.submitted
            if self._is_past(number) or (
                not self._is_hung and self._is_reached(number)
            ):
                self.has_done(number)  # how far it has come, or why it is lost
                self._release()
            else:
                self.lose(f"it has not done for {self.patience:g} s what was queued")
                _hung.append(self)

    def release_if_done(self) -> bool:
        """Release everything if a queue that was hung is done after all."""
        with self.lock:
            if not self._is_past(self.submitted):
                return False
            self._release()
            return True

    def _release(self) -> None:
        with self._life:
            self._is_closed = True
            self.lose("it was closed")
            waiter = getattr(self, "_waiter", None)
            if waiter is not None:
                waiter.close()
            self._retired.clear()
            self.dropped.clear()
            # what was made last is of what was made first
            for reference in reversed(list(self._owned.values())):
                self._close(reference)


_hung: Final[list[DmlQueue]] = []
"""Devices whose queues may still use what they have."""


def release_hung() -> None:
    """Release devices that were hung, if they are not any more."""
    for device in list(_hung):
        if device.release_if_done():
            with contextlib.suppress(ValueError):  # another thread was here, too
                _hung.remove(device)
