"""How many chunks a command is divided into."""

from __future__ import annotations

from typing import Final

MAX_CHUNKS: Final = (1 << 24) - 1
"""Chunks of one command at most."""

LONGEST_CHUNK: Final = 20e-3
"""Seconds that a chunk should take at most, for a run ends between chunks only when it
is cancelled or interrupted."""


def fewest_chunks(seconds: float) -> int:
    """Into how many chunks to divide a command at least, if it can be divided.

    Args:
        seconds: about how long it takes one thread.
    """
    return min(max(1, int(seconds / LONGEST_CHUNK)), MAX_CHUNKS)


BYTES_PER_SECOND: Final = 8e9
"""What one thread reads from memory, about."""


CHUNK: Final = 20e-6
"""Seconds that a chunk should take at least, if each worker has one: long beside a
claim."""

SHORTEST_CHUNK: Final = 3e-6
"""The same of the only chunk of a worker: long beside the start of a job."""

CHUNKS_PER_WORKER: Final = 4
"""For the work of a worker that the system puts aside to go to others."""


def chunks_for(seconds: float, workers: int) -> int:
    """Into how many chunks to divide a command, if it can be divided: as many for each
    worker, so that none waits for another's.

    Args:
        seconds: about how long it takes one thread.
        workers: how many threads there are.
    """
    if workers < 2 or seconds < workers * SHORTEST_CHUNK:
        return fewest_chunks(seconds)
    each = min(CHUNKS_PER_WORKER, max(1, round(seconds / (workers * CHUNK))))
    return max(workers * each, fewest_chunks(seconds))
