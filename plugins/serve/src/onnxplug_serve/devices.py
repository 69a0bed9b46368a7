"""How many runs are on the devices of a kind at the same time, whichever models they
are of."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug import InferenceSession


class DeviceRuns:
    """Gives runs their turns.

    Args:
        most: runs on devices of one kind; 0: as many as there are.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._turns: dict[str, threading.Semaphore] = {}
        self._changing = threading.Lock()

    @contextmanager
    def turn(self, kinds: Collection[str]) -> Iterator[bool]:
        """A context in which one more run is on devices of *kinds*; begins when there
        are few enough, and gives whether that had to be waited for."""
        waited = False
        with ExitStack() as held:
            # in one order, so that no two wait for each other
            for kind in sorted(kinds) if self._most else ():
                turns = self._of(kind)
                if not turns.acquire(blocking=False):
                    waited = True
                    turns.acquire()
                held.callback(turns.release)
            yield waited

    def _of(self, kind: str) -> threading.Semaphore:
        with self._changing:
            return self._turns.setdefault(kind, threading.Semaphore(self._most))


def kinds_of_devices(session: InferenceSession) -> frozenset[str]:
    """The kinds of devices that run nodes of *session*: ``cpu``, ``gpu``, ``npu``."""
    placed = session.explain().partitions
    return frozenset(kind for each in placed for kind in each.device.split(", "))
