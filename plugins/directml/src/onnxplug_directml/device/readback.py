"""What the host reads of an adapter's memory, once work that is queued is done."""

from __future__ import annotations

from typing import Final

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_directml.device.queue import DmlQueue
from onnxplug_directml.device.staging import Consumer, Room, Staging


class Readback:
    """Bytes on their way to the host.

    What they say may be that work failed, which is raised to whoever waits.

    Args:
        room: where the queue copies them; ``None``: there are none.
        nbytes: how many.
        consume: takes them.

    Attributes:
        number: of the work that copies them.
    """

    def __init__(
        self,
        queue: DmlQueue,
        staging: Staging,
        room: Room | None,
        number: int,
        nbytes: int,
        consume: Consumer,
    ) -> None:
        self._queue = queue
        self._staging = staging
        self._room = room
        self.number = number
        self._nbytes = nbytes
        self._consume: Consumer | None = consume
        # held while it is waited for, by whichever thread comes first
        self._lock: Final = new_rlock()
        self._error: ep.OnnxplugError | None = None

    def is_fine(self) -> bool:
        """Whether it is done, and nobody has to be told of a failure."""
        return self.is_done() and self._error is None

    def is_done(self) -> bool:
        """Whether they were taken, or never will be; neither waits nor raises."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._room is not None and self._queue.has_done(self.number):
                self.finish()
        # it is raised to who waits
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
        finally:
            self._lock.release()
        return self._room is None

    def finish(self) -> None:
        """Wait for the bytes, and have them taken.

        Raises:
            DeviceRemoved: the device was, however often this is called.
            OnnxplugError: what was raised by who took them, however often.
        """
        with self._lock:
            room, consume = self._room, self._consume
            if room is not None and consume is not None:
                # one that is interrupted is waited for by who needs it next
                try:
                    self._queue.wait(self.number)
                    self._staging.read(room, self._nbytes, consume)
                except ep.OnnxplugError as error:
                    self._error = error
                self._room = self._consume = None
                self._staging.leave(self.number, room)
        if self._error is not None:
            raise self._error

    def __del__(self) -> None:
        # one that nobody waits for; no lock may be taken
        room = self._room
        if room is not None:
            self._staging.leave(self.number, room)
