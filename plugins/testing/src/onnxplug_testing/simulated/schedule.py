"""When a device does the work of its streams: as late as may be, or in threads.

A device that is quick and idle hides missing synchronisation: work queued is done
before anyone looks.  :class:`LateSchedule` does nothing until somebody waits for it,
and between streams that do not wait for each other, what was queued last is done first.
:class:`ThreadedSchedule` does the work of each stream in a thread, with delays.
"""

from __future__ import annotations

import _thread
import os
import random
import time
from abc import ABC, abstractmethod
from typing import Final

from onnxplug_testing.simulated.monitor import MONITOR
from onnxplug_testing.simulated.queues import Point, Queue


class Schedule(ABC):
    """The order in which devices do the work of all their streams."""

    def opened(self, queue: Queue) -> None:
        """There is a new stream."""
        return None

    def queued(self, queue: Queue) -> None:
        """There is work; called under the monitor."""
        return None

    def closed(self, queue: Queue) -> None:
        """The stream was closed, and has no work."""
        return None

    @abstractmethod
    def run_until(self, queue: Queue, position: int) -> None:
        """Block until the work of *queue* up to *position* is done."""


class LateSchedule(Schedule):
    """Does work when somebody waits, in an unexpected order.

    Args:
        seed: of the random choice among streams; ``None`` takes the newest work first.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._open: list[Queue] = []

    def opened(self, queue: Queue) -> None:
        with MONITOR:
            self._open.append(queue)

    def closed(self, queue: Queue) -> None:
        with MONITOR:
            self._open.remove(queue)

    def run_until(self, queue: Queue, position: int) -> None:
        while True:
            with MONITOR:
                if queue.done >= position:
                    return
                ready, elsewhere = self._heads()
                if ready:
                    self._choose(ready).work()
                    continue
            if elsewhere is None:
                raise RuntimeError(f"a stream of {queue.location} waits for itself")
            elsewhere.block()

    def _heads(self) -> tuple[list[Queue], Point | None]:
        """The queues whose first piece of work may be done, and a point of another
        schedule that one waits for."""
        ready: list[Queue] = []
        elsewhere: Point | None = None
        for queue in self._open:
            if not queue.pending:
                continue
            after = queue.pending[0].after
            if after is None or after.passed:
                ready.append(queue)
            elif after.queue.schedule is not self:
                elsewhere = after
        return ready, elsewhere

    def _choose(self, ready: list[Queue]) -> Queue:
        if self._random is None:
            return max(ready, key=_newest)
        return self._random.choice(ready)


class ThreadedSchedule(Schedule):
    """Does the work of each stream in a thread of its own, with small delays.

    A thread is started with the first work of a stream and ends when that is closed;
    one that is never closed does not keep the process.

    Args:
        seed: of the delays.
        longest: the longest delay before a piece of work, in seconds.
    """

    def __init__(self, seed: int | None = None, longest: float = 0.001) -> None:
        self._seed = seed or 0
        self._longest = longest
        # the processes whose threads serve queues, by handle
        self._served: dict[int, int] = {}

    def queued(self, queue: Queue) -> None:
        if queue.handle not in self._served:
            self._served[queue.handle] = os.getpid()
            # not a threading.Thread, as an interrupt while that starts may leave its
            # locks taken
            _thread.start_new_thread(self._serve, (queue,))
        queue.changed.notify_all()

    def closed(self, queue: Queue) -> None:
        with MONITOR:
            queue.changed.notify_all()
            while self._served.get(queue.handle) == os.getpid():
                queue.changed.wait(_LOOK)
            self._served.pop(queue.handle, None)

    def run_until(self, queue: Queue, position: int) -> None:
        with MONITOR:
            while queue.done < position:
                if self._served.get(queue.handle) != os.getpid():
                    raise RuntimeError(
                        f"the thread of a stream of {queue.location} is gone, as in "
                        "the child of a fork; its work is never done"
                    )
                queue.changed.wait(_LOOK)

    def _serve(self, queue: Queue) -> None:
        delays = random.Random(f"{self._seed} {queue.handle}")
        while True:
            with MONITOR:
                while not queue.pending:
                    if queue.closed:
                        del self._served[queue.handle]
                        queue.changed.notify_all()
                        return
                    queue.changed.wait(_LOOK)
                after = queue.pending[0].after
            if after is not None:
                after.block()
            time.sleep(delays.random() * self._longest)
            queue.work()


_LOOK: Final = 0.2
"""Seconds after which a thread looks by itself, as what notifies it is interrupted."""


def _newest(queue: Queue) -> tuple[bool, int]:
    # a wait that is over comes first: newer work may stand behind it
    work = queue.pending[0]
    return work.after is not None, work.serial
