"""How many chunks a command is divided into."""

from __future__ import annotations

import math
from typing import Final

from onnxplug_compiler.ir.traced import either, larger, smaller

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
    return smaller(larger(1, math.trunc(seconds / LONGEST_CHUNK)), MAX_CHUNKS)


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
    fewest = fewest_chunks(seconds)
    if workers < 2:
        return fewest
    wanted = larger(1, round(seconds / (workers * CHUNK)))
    each = smaller(CHUNKS_PER_WORKER, wanted)
    chunks = larger(workers * each, fewest)
    return either(seconds, workers * SHORTEST_CHUNK, fewest, chunks)
