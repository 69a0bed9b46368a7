"""What the nodes of a cluster have together: an actor that keeps it in Ray's object
store.

What it keeps is its own, so it outlives who brought it.  Nodes get references and not
bytes: Ray then copies each object to a node once, whoever asks for it there.
"""

from __future__ import annotations

import time
from typing import Any, Final

import ray

LEASE: Final = 300.0
"""Seconds after which another may make what somebody set out to make: who did is taken
to be gone."""

MADE, MAKE, WAIT = "made", "make", "wait"


class Store:
    """Chunks of files, and what was made once for a kind of machine; an actor."""

    def __init__(self) -> None:
        self._chunks: list[ray.ObjectRef[Any]] = []
        self._made: dict[str, ray.ObjectRef[Any]] = {}
        self._makers: dict[str, tuple[str, float]] = {}

    def add(self, chunk: Any) -> int:
        """Keep a chunk, an array of bytes; its number."""
        self._chunks.append(ray.put(chunk))
        return len(self._chunks) - 1

    def chunk(self, number: int) -> list[ray.ObjectRef[Any]]:
        """The reference of a chunk, in a list, so that Ray leaves it one."""
        return [self._chunks[number]]

    def claim(self, key: str, who: str) -> tuple[str, list[ray.ObjectRef[Any]]]:
        """What *who* is to do about *key*: take what was made, make it, or wait."""
        if key in self._made:
            return MADE, [self._made[key]]
        maker, since = self._makers.get(key, (who, 0.0))
        if maker != who and time.monotonic() - since < LEASE:
            return WAIT, []
        self._makers[key] = (who, time.monotonic())
        return MAKE, []

    def publish(self, key: str, made: Any) -> None:
        """Keep what was made."""
        self._made[key] = ray.put(made)
        self._makers.pop(key, None)

    def give_up(self, key: str, who: str) -> None:
        """Let another make it."""
        if self._makers.get(key, ("", 0.0))[0] == who:
            del self._makers[key]

    def made(self) -> list[str]:
        """What was made, by key."""
        return sorted(self._made)
