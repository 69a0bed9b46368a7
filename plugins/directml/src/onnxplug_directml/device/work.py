"""What a device's queue is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_directml.com.d3d12 import ID3D12GraphicsCommandList
from onnxplug_directml.device.pool import Memory
from onnxplug_directml.device.queue import DmlQueue
from onnxplug_directml.device.staging import Room

_MOST_AT_ONCE: Final = 4
"""Lists of the same commands that wait for the queue at once."""


class Recording(Record):
    """A closed command list.

    Attributes:
        commands: Direct3D's list.
        of: what has to stay as it is meanwhile: what the list was recorded with.
    """

    commands: ID3D12GraphicsCommandList
    of: object


class Execution:
    """Commands that may be queued any number of times.

    Direct3D removes a device that is given a list before its execution before is known
    to be complete.  So where all lists are still executed, another one is recorded;
    beyond a few, who queues waits.

    Args:
        record: makes a list of the commands.
    """

    def __init__(self, queue: DmlQueue, record: Callable[[], Recording]) -> None:
        self._queue = queue
        self._record = record
        self._executed: deque[tuple[int, Recording]] = deque()

    def execute(self) -> int:
        """Queue the commands, under the queue's lock; the number of that.

        Raises:
            DeviceRemoved: the device is lost.
            MemoryError: there is not enough memory for another list.
        """
        queue, executed = self._queue, self._executed
        if executed and (
            len(executed) >= _MOST_AT_ONCE or queue.has_done(executed[0][0])
        ):
            number, recording = executed.popleft()
            queue.wait(number)
        else:
            recording = self._record()
        number = queue.execute(recording.commands)
        executed.append((number, recording))
        return number


class Region(Record):
    """Bytes that are copied on the device.

    Attributes:
        source, target: from which memory to which; another one, or ranges apart.
        source_begin, target_begin: where, in bytes.
        nbytes: how many.
    """

    source: Memory | Room
    target: Memory | Room
    nbytes: int
    source_begin: int = 0
    target_begin: int = 0


class Copies(Record):
    """Copies on the device, in order."""

    regions: tuple[Region, ...]


Work: TypeAlias = Execution | Copies
