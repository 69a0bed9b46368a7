"""Which of several ways to compute the same was the fastest on a GPU, kept on disk."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from onnxplug import ep
from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.authoring.locks import new_rlock

DISTRIBUTION: Final = "onnxplug-cuda"
"""Under whose name entries are kept."""

MOST_PLANS: Final = 1024
"""Plans that a library keeps; those that are not are made anew."""

_FORMAT: Final = 1
_ROUNDS: Final = 3
_MOST_NAME: Final = 4096
"""Characters of a way's name, at most."""


class Scratch(Protocol):
    """Memory that nobody else reads; it is given back when this object goes."""

    @property
    def address(self) -> int:
        """Where it is, divided by 256."""


class Bench(Protocol):
    """Measures work on a GPU."""

    def memory(self, nbytes: int) -> Scratch:
        """Memory to measure with, filled with zeros.

        Raises:
            MemoryError: there is none.
        """

    def seconds(self, queue: Callable[[int], None]) -> float:
        """How long what *queue* puts on a stream takes, by the device's own clock.

        Args:
            queue: given the address of a stream; called more than once.

        Raises:
            whatever *queue* raises.
        """


class Choices:
    """The fastest ways for a GPU with these versions of libraries.  Safe for threads.

    Entries are owned by the user and checksummed; one that is damaged, or names no way
    that there is, is measured anew.

    Args:
        kind: what is chosen among, a word for the names of entries.
        machine: what the results depend on: the GPU's name, versions.
    """

    def __init__(
        self,
        kind: str,
        machine: Mapping[str, str],
        logger: logging.Logger,
    ) -> None:
        self._kind = kind
        self._machine = {"format": str(_FORMAT), **machine}
        self._logger = logger
        self._cache = Cache(DISTRIBUTION)
        self._lock = new_rlock()
        self._known: dict[str, str] = {}

    def best(
        self,
        key: str,
        names: Sequence[str],
        measure: Callable[[int], float] | None,
        seconds: float = 0.0,
    ) -> int:
        """The number of the fastest way: as found before, else measured now; the first
        if that is not to be, or all fail.

        What is found where there was no memory for one of them, which may be faster
        where there is, is kept by this process alone.

        Args:
            key: what is computed.
            names: of the ways, which tell them apart with these versions.
            measure: the seconds that the way of a number takes; ``None``: nothing is
                measured.  One that raises is out.
            seconds: after which no other way is tried; 0: all are.

        Raises:
            DeviceLost: the device was, when it was measured.
        """
        if len(names) < 2:
            return 0
        entry = self.entry_name(key)
        with self._lock:
            found = self._known.get(entry) or self._kept(entry)
            if found not in names:
                if measure is None:
                    return 0
                found = self._fastest(entry, key, names, measure, seconds)
            self._known[entry] = found
        return names.index(found)

    def _fastest(
        self,
        entry: str,
        key: str,
        names: Sequence[str],
        measure: Callable[[int], float],
        seconds: float,
    ) -> str:
        """The name of the way that takes the least time, kept on disk; the first if all
        fail."""
        times, lacked_memory = self._measured(names, measure, seconds)
        found = names[min(times, key=times.__getitem__, default=0)]
        self._logger.info("%s: %s is computed by %s", self._kind, key, found)
        if times and not lacked_memory:
            self._cache.store(entry, found.encode())
            self._cache.prune_if_due()
        return found

    def entry_name(self, key: str) -> str:
        """The name of the entry for *key* on disk."""
        facts = json.dumps([self._kind, self._machine, key], sort_keys=True)
        return f"{self._kind}-{fingerprint(facts).hex()}"

    def _kept(self, entry: str) -> str:
        """The name in an entry; empty if there is none, or it is damaged."""
        content = self._cache.load(entry)
        if content is None or len(content) > _MOST_NAME:
            return ""
        return content.decode(errors="replace")  # what is none of the names is none

    def _measured(
        self, names: Sequence[str], measure: Callable[[int], float], seconds: float
    ) -> tuple[dict[int, float], bool]:
        """The seconds of ways by their numbers, without those that fail; and whether
        there was no memory for one."""
        times: dict[int, float] = {}
        lacked_memory = False
        end = time.monotonic() + seconds
        for number, name in enumerate(names):
            if times and seconds and time.monotonic() >= end:
                break
            try:
                times[number] = min(measure(number) for _ in range(_ROUNDS))
            except Exception as error:  # others are tried
                ep.raise_interruption(error)
                if isinstance(error, ep.OnnxplugError):
                    raise  # the device was lost
                lacked_memory |= isinstance(error, MemoryError)
                self._logger.info("%s: %s fails: %s", self._kind, name, error)
        return times, lacked_memory
