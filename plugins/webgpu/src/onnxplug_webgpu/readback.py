"""What the host reads of a device's memory, once work that is queued is done."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.execution.device import Consumer
from onnxplug_webgpu.loss import driving, lost

if TYPE_CHECKING:
    from onnxplug_webgpu.pool import Memory
    from onnxplug_webgpu.queue import Queue

LARGEST: Final = 1 << 28
"""Bytes from which on a readback gets no more."""

_PATIENCE: Final = 1.0
"""Seconds after which one looks whether the device is lost."""


class Readback:
    """Memory that is copied to the host at once; one of nothing is a point to wait for.

    It is *open* until somebody wants to know, or something is queued behind it; then
    the copies are queued.  What is read may say that work failed, which is raised
    from then on, to whoever waits.
    """

    def __init__(self, device: Queue) -> None:
        self._device = device
        self._parts: list[tuple[Memory, int, Consumer]] = []
        # held while it is waited for
        self._lock: Final[threading.RLock] = new_rlock()
        self._room: Any = None
        self._promise: Any = None
        self._number = 0
        self._generation = 0
        self._error: BaseException | None = None
        self._is_finished = False
        self.nbytes = 0

    @property
    def is_open(self) -> bool:
        """Whether it takes more."""
        return self._promise is None and not self._is_finished

    @property
    def has_failed(self) -> bool:
        """Whether it is known to have failed."""
        return self._error is not None

    def add(self, memory: Memory, nbytes: int, consume: Consumer) -> bool:
        """Have *nbytes* of *memory* given to *consume*; whether it was still open."""
        with self._device.lock:
            if self.is_open:
                self._parts.append((memory, nbytes, consume))
                self.nbytes += nbytes
                return True
        return False

    def seal(self) -> None:
        """Queue the copies, if that is not done yet.

        Raises:
            DeviceLost: the device was lost.
        """
        with self._device.lock:
            if self.is_open:
                self._seal(self._device)

    def _sizes(self) -> list[int]:
        return [-(-nbytes // 8) * 8 for _, nbytes, _ in self._parts]

    def _seal(self, device: Queue) -> None:
        nbytes = sum(self._sizes()) or 8
        try:
            with driving(device):
                for memory, _, _ in self._parts:
                    if not device.has(memory):
                        raise lost(device)
                self._room = device.room(nbytes)
                self._generation = device.generation
                self._number = device.encoded(self._encode)
                self._promise = self._room.map_async(
                    device.wgpu.MapMode.READ, 0, nbytes
                )
        except Exception as error:
            # one that is interrupted stays open, and is queued by who needs it next
            ep.raise_interruption(error)
            self._end(error)
            raise

    def _encode(self, encoder: Any) -> None:
        start = 0
        for (memory, _, _), size in zip(self._parts, self._sizes(), strict=True):
            encoder.copy_buffer_to_buffer(memory.buffer, 0, self._room, start, size)
            start += size
        if not self._parts:
            encoder.clear_buffer(self._room, 0, 8)

    def is_done(self) -> bool:
        """Whether it is done, or has failed; neither waits nor raises."""
        # the device's lock may be held, which whoever has this one may wait for
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.seal()
            if not self._is_finished and _is_settled(self._promise):
                self.finish()
        # it is raised to who waits
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
        finally:
            self._lock.release()
        return self._is_finished

    def finish(self) -> None:
        """Wait, and hand out what was read.

        Raises:
            Exception: what a consumer raised, however often this is called.
            DeviceLost: the device was lost.
        """
        self.seal()
        with self._lock:
            if not self._is_finished:
                try:
                    self._wait()
                    self._read()
                except Exception as error:  # noqa: BLE001
                    ep.raise_interruption(error)
                    self._end(error)
                else:
                    self._end(None)
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        """Wait until the staging buffer can be read, or the device is lost."""
        settled = getattr(self._promise, "_thread_event", None)
        while settled is not None and not settled.wait(_PATIENCE):
            if self._device.is_gone():
                self._device.lose()
                raise lost(self._device)

    def _read(self) -> None:
        device, room = self._device, self._room
        with driving(device):
            self._promise.sync_wait()
        device.completed = max(device.completed, self._number)
        first: Exception | None = None
        # what is mapped goes with a device that is lost, as whoever queues work finds
        with device.lock:
            if device.is_lost or self._generation != device.generation:
                raise lost(device)
            with driving(device):
                device.check_there()
            starts = itertools.accumulate(self._sizes(), initial=0)
            for (_, nbytes, consume), start in zip(self._parts, starts, strict=False):
                found = room.read_mapped(start, -(-nbytes // 8) * 8, copy=False)
                try:
                    consume(np.frombuffer(found, np.uint8)[:nbytes])
                except Exception as error:  # noqa: BLE001
                    ep.raise_interruption(error)
                    first = first or error
            with driving(device):
                room.unmap()
            device.give_back(room)
        if first is not None:
            raise first

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._is_finished = True
        # an interrupted one leaves its buffer to the driver
        self._room = None
        self._parts.clear()


def _is_settled(promise: Any) -> bool:
    """Whether a promise of wgpu's is kept or broken.

    wgpu tells no other way without waiting; where it does not tell so either, it is
    waited for, which is as right.
    """
    settled = getattr(promise, "_thread_event", None)
    return settled is None or settled.is_set()


def has_done(device: Queue, number: int) -> bool:
    """Whether what was queued on *device* up to *number* is known to be done, or lost;
    neither waits nor raises.

    wgpu does not tell, so something to read is queued, one at a time.
    """
    if device.completed >= number or device.is_lost:
        return True
    with device.lock:
        if device.fence is None:
            device.fence = Readback(device)
        if device.fence.is_done():
            device.fence = None
    return device.completed >= number or device.is_lost


def wait_until_done(device: Queue, number: int) -> None:
    """Wait until what was queued on *device* up to *number* is done.

    Raises:
        DeviceLost: it was lost.
    """
    if device.completed < number:
        Readback(device).finish()
