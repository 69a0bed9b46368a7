"""What the host reads of a device's memory, once work that is queued is done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.execution.device import Consumer
from onnxplug_cuda.staging import Room, Staging

if TYPE_CHECKING:
    from onnxplug_cuda.timeline import Point, Timeline


class Readback:
    """Copies to pinned memory that are queued, and who gets what is there then.

    It is *open* until a point after its copies is recorded.  What is read may say that
    work failed, which is raised from then on, to whoever waits.

    Args:
        timeline: of the copies.
    """

    def __init__(self, staging: Staging, timeline: Timeline) -> None:
        self._staging = staging
        self._timeline = timeline
        self._parts: deque[tuple[Room, int, Consumer]] = deque()
        self._points: tuple[Point, ...] = ()
        # held while it is waited for
        self._lock: Final = new_rlock()
        self._error: Exception | None = None
        self.is_open = True
        self.is_finished = False

    @property
    def has_failed(self) -> bool:
        """Whether it is known to have failed."""
        return self._error is not None

    def add(self, room: Room, nbytes: int, consume: Consumer) -> None:
        """Have *consume* get the first bytes of *room*, into which a copy is queued."""
        self._parts.append((room, nbytes, consume))

    def seal(self, points: tuple[Point, ...]) -> None:
        """Take no more: after *points* all copies are done."""
        self._points = points
        self.is_open = False

    def is_done(self) -> bool:
        """Whether it is done, or has failed; neither waits nor raises."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.is_finished and all(point.done() for point in self._points):
                self.finish()
        # it is raised to who waits
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
        finally:
            self._lock.release()
        return self.is_finished

    def finish(self) -> None:
        """Wait, and hand out what was read.

        Raises:
            Exception: what a consumer raised, however often this is called.
            DeviceLost: CUDA does nothing more in this process.
        """
        with self._lock:
            if not self.is_finished:
                try:
                    for point in self._points:
                        point.synchronize()
                # it is raised to whoever waits
                except Exception as error:  # noqa: BLE001
                    ep.raise_interruption(error)
                    self._end(error)
                else:
                    self._end(self._consumed())
        if self._error is not None:
            raise self._error

    def _consumed(self) -> Exception | None:
        first: Exception | None = None
        while self._parts:
            room, nbytes, consume = self._parts[0]
            try:
                consume(room.bytes[:nbytes])
            except Exception as error:  # noqa: BLE001
                ep.raise_interruption(error)  # it is read once more then
                first = first or error
            self._parts.popleft()
            self._staging.return_soon(room)
        return first

    def _end(self, error: Exception | None) -> None:
        self._error = error
        self.is_finished = True
        self._parts.clear()
        self._points = ()

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        for room, *_ in self._parts:
            self._staging.return_after(room, self._timeline)


def finish(readbacks: tuple[Readback, ...]) -> None:
    """Wait for all, whatever goes wrong in one of them.

    Raises:
        Exception: what the first raised that failed.
    """
    first: Exception | None = None
    for readback in readbacks:
        try:
            readback.finish()
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            first = first or error
    if first is not None:
        raise first
