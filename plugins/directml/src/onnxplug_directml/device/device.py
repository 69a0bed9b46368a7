"""A device as sessions use it: its memory, and work that is queued on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_directml.abi.d3d12 import D3D12_HEAP_TYPE
from onnxplug_directml.com.errors import OutOfMemory
from onnxplug_directml.com.libraries import Libraries
from onnxplug_directml.com.unknown import IUnknown
from onnxplug_directml.device.adapters import Adapter
from onnxplug_directml.device.buffers import create_buffer
from onnxplug_directml.device.commands import CommandLists
from onnxplug_directml.device.loss import driving
from onnxplug_directml.device.pool import Memory, Pool
from onnxplug_directml.device.queue import DmlQueue
from onnxplug_directml.device.readback import Readback
from onnxplug_directml.device.staging import CHUNK, Consumer, Staging
from onnxplug_directml.device.work import Execution, Region, Work


class DmlDevice(DmlQueue):
    """A device, for all sessions of a process.

    Args:
        libraries: Windows'.
        adapter: what it is on.

    Raises:
        ComError: Windows makes none.
        LookupError: the adapter is not there.
    """

    def __init__(self, libraries: Libraries, adapter: Adapter) -> None:
        super().__init__(libraries, adapter)
        self._pool = Pool(self._create, self.retire)
        self._lists = CommandLists(self)
        self._staging = Staging(self, self._create, self.retire)

    # memory

    def memory(self, nbytes: int) -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Raises:
            MemoryError: there is none.
            DeviceRemoved: the device is lost.
        """
        with self.lock:
            self.refuse_lost()
            self.collect()
            return self._pool.take(nbytes, self)

    def used_bytes(self) -> int:
        """Of memory that somebody has."""
        with self.lock:
            self._pool.collect()
            return self._pool.total - self._pool.idle

    def _create(
        self, nbytes: int, kind: D3D12_HEAP_TYPE = D3D12_HEAP_TYPE.DEFAULT
    ) -> IUnknown:
        with driving(self):
            try:
                return self.own(create_buffer(self.native, nbytes, kind))
            except OutOfMemory:
                self._make_room()
            return self.own(create_buffer(self.native, nbytes, kind))

    def _make_room(self) -> None:
        """Release all that is kept and that nobody uses."""
        self._pool.collect()
        self._pool.trim()
        self._staging.trim()
        self.wait(self.submitted)
        self.collect()

    # work

    def submit(self, work: Sequence[Work]) -> int:
        """Queue *work*, in order; the number of the last.

        Each list is executed by itself: so it begins when those before it are done,
        and finds all buffers in their first state.

        Raises:
            DeviceRemoved: the device is lost.
        """
        with self.lock, driving(self):
            self.refuse_lost()
            self.collect()
            for part in work:
                if isinstance(part, Execution):
                    part.execute()
                else:
                    self._copy(part.regions)
            return self.submitted

    def _copy(self, regions: Sequence[Region]) -> None:
        """Queue copies: in one list, until one needs what another in it wrote."""
        roles: dict[int, str] = {}
        batch: list[Region] = []
        for region in regions:
            uses = ((id(region.source), "source"), (id(region.target), "target"))
            if any(roles.get(place, role) != role for place, role in uses):
                self._copy_at_once(batch)
                roles, batch = {}, []
            roles.update(uses)
            batch.append(region)
        self._copy_at_once(batch)

    def _copy_at_once(self, regions: Sequence[Region]) -> None:
        if not regions:
            return
        with self._lists.open() as commands:
            for source, target, nbytes, source_begin, target_begin in regions:
                commands.CopyBufferRegion(
                    target.resource, target_begin, source.resource, source_begin, nbytes
                )
            commands.Close()
            self.execute(commands)

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> int:
        """Queue that the bytes of *array*, which may change then, are written to
        *memory*; the number of that.

        Raises:
            DeviceRemoved: the device is lost.
            MemoryError: there is none to put them into meanwhile.
        """
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self.lock, driving(self):
            self.refuse_lost()
            for begin in range(0, content.size, CHUNK):
                part = content[begin : begin + CHUNK]
                room = self._staging.filled(part)
                # whole words, as DirectML counts them
                padded = -(-part.size // 4) * 4
                try:
                    self._copy_at_once([Region(room, memory, padded, 0, begin)])
                finally:
                    self._staging.sent(self.submitted, room)
            return self.submitted

    def read(self, memory: Memory, nbytes: int, consume: Consumer) -> Readback:
        """Queue that bytes of *memory* are brought where the host can read them, and
        has *consume* take them.

        Raises:
            DeviceRemoved: the device is lost.
            MemoryError: there is none to put them into meanwhile.
        """
        with self.lock, driving(self):
            self.refuse_lost()
            room = None
            if nbytes:
                room = self._staging.for_reading(nbytes)
                try:
                    self._copy_at_once([Region(memory, room, nbytes)])
                except BaseException:
                    self._staging.leave(self.submitted, room)
                    raise
            return Readback(self, self._staging, room, self.submitted, nbytes, consume)

    def read_array(self, memory: Memory, target: np.ndarray[Any, Any]) -> Readback:
        """The same for all of an array of the host's, which is filled.

        Raises:
            DeviceRemoved, MemoryError: as of :meth:`read`.
        """

        def fill(content: np.ndarray[Any, Any]) -> None:
            target[...] = content.view(target.dtype).reshape(target.shape)

        return self.read(memory, target.nbytes, fill)
