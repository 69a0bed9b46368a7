"""How long the slots of a sequence of steps hold a value that is still needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def last_uses(
    uses: Sequence[Collection[int]], keep: Collection[int]
) -> list[tuple[int, ...]]:
    """For each step the slots that no later step uses, sorted.

    Args:
        uses: for each step, in order, the slots that it reads or writes.
        keep: slots that are needed after the last step.
    """
    needed = set(keep)
    last: list[tuple[int, ...]] = []
    for used in reversed(uses):
        ended = set(used) - needed
        needed |= ended
        last.append(tuple(sorted(ended)))
    return last[::-1]
