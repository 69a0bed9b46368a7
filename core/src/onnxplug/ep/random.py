"""Seeds for operators whose nodes have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.authoring.locks import new_lock

if TYPE_CHECKING:
    from random import Random

_lock = new_lock()
_seeds: Random | None = None


def set_seed(seed: int) -> None:
    """Have :func:`next_seed` give, from now on, the seeds that follow from *seed*."""
    from random import Random  # seldom wanted

    global _seeds
    with _lock:
        _seeds = Random(seed)


def next_seed() -> int | None:
    """A seed of 32 bits for one computation, different for each; ``None``: any.

    An EP that computes random numbers asks for one where the node has no seed.
    """
    with _lock:
        return None if _seeds is None else _seeds.getrandbits(32)
