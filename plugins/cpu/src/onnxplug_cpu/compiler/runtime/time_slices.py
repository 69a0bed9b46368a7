"""A long program in parts, between which Python looks whether it should go on.

A part is some whole commands, or some chunks of one.  Native code does not end before
its part does, so what cancels a run or interrupts the program waits that long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, MAX_CHUNKS

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.words import Command

BETWEEN_LOOKS: Final = 50e-3
"""Seconds that a part should take.  Entering the next one costs microseconds, and an
idle thread at its end less than a chunk."""

_FIRST: Final = BETWEEN_LOOKS / 4
"""Estimated seconds of the first part, before it is known what estimates are worth."""


class Part(Record):
    """Commands from *first* up to, but not with, *last*.

    If it is one, only its chunks from *begin* up to, but not with, *end*.
    """

    first: int
    last: int
    begin: int = 0
    end: int = MAX_CHUNKS


def estimated_seconds(command: Command, workers: int) -> float:
    """About how long a command takes; only orders of magnitude count."""
    each = [command.flops], [command.nbytes], [command.chunks]
    return seconds_of_all(*each, workers)[0]


_FLOPS: Final = 40e9  # of one thread, a second
_SHORTEST, _SHORTEST_OF_MANY, _START = 1e-6, 20e-6, 1e-7


def seconds_of_all(
    flops: Sequence[int], nbytes: Sequence[int], chunks: Sequence[int], workers: int
) -> list[float]:
    """The same of each of some commands, by their attributes."""
    found = np.maximum(
        np.array(flops, np.float64) / _FLOPS,
        np.array(nbytes, np.float64) / BYTES_PER_SECOND,
    )
    found[found == 0] = _SHORTEST
    threads = np.minimum(np.array(chunks, np.float64), workers)
    # which only long work is worth
    found = np.where(threads > 1, np.maximum(found, _SHORTEST_OF_MANY), found)
    seconds: list[float] = (_START + found / threads).tolist()
    return seconds


class Division:
    """How long the commands of a program take, and so how to divide it.

    Args:
        chunks: of each.
        costs: about how many seconds each takes.
        workers: threads of a run.

    Attributes:
        chunks, costs: as given.
        seconds: what a run takes, as estimated.
    """

    def __init__(
        self, chunks: Sequence[int], costs: Sequence[float], workers: int
    ) -> None:
        self._workers = workers
        self.chunks: Final = chunks
        self.costs: Final = costs
        self.seconds = sum(costs)

    @property
    def most_chunks(self) -> int:
        """Of any command."""
        return max(self.chunks, default=0)

    @property
    def is_long(self) -> bool:
        """Whether a run should look on its way."""
        return self.seconds > BETWEEN_LOOKS

    def parts(self, first: int = 0, last: int | None = None) -> Iterator[Part]:
        """All commands, or those from *first* to before *last*, in parts.

        The next part is to be asked for when the one before is done: how long that took
        corrects the estimate.
        """
        last = len(self.costs) if last is None else last
        share = _FIRST
        command, chunk = first, 0
        while command < last:
            part, estimate = self._next(command, chunk, last, share)
            began = time.perf_counter()
            yield part
            taken = max(time.perf_counter() - began, 1e-9)
            # a slow part may have been stopped for a while, so change it in steps
            share = min(4 * share, max(share / 64, BETWEEN_LOOKS * estimate / taken))
            command, chunk = part.last, 0
            if part.end < self.chunks[part.first]:
                command, chunk = part.first, part.end

    def _next(
        self, command: int, chunk: int, last: int, share: float
    ) -> tuple[Part, float]:
        """The part that begins with a chunk, and how long it takes, as estimated."""
        estimate = 0.0
        end = command
        while not chunk and end < last and estimate + self.costs[end] <= share:
            estimate += self.costs[end]
            end += 1
        if end > command:
            return Part(command, end), estimate
        chunks = self.chunks[command]
        each = self.costs[command] / chunks
        threads = min(self._workers, chunks)
        # as many for each thread
        count = max(1, int(share / each) // threads) * threads
        stop = min(chunks, chunk + count)
        return Part(command, command + 1, chunk, stop), each * (stop - chunk)
