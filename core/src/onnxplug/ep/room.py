"""How much memory there is, for who is asked to allocate more than that.

Linux promises memory that it does not have, and ends the process that uses it.  A
request beyond all that the process can ever get is better refused than promised; what
is smaller the system knows better.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from onnxplug.ep.bounds import MOST_ELEMENTS

if TYPE_CHECKING:
    from pathlib import Path

LARGE: Final = 1 << 30
"""Bytes below which a request is not looked at: any machine has them."""


def check_room(nbytes: int) -> None:
    """Check that *nbytes*, asked for at once, are no more than there is in all.

    Raises:
        MemoryError: they are more than the machine's memory and swap space, or than
            the process's control group may use.
    """
    if nbytes < LARGE:
        return
    most = memory_in_all() or MOST_ELEMENTS
    if nbytes > most:
        raise MemoryError(
            f"{nbytes:,} bytes are asked for at once; this process can have at most "
            f"{most:,} in all"
        )


def check_growth(nbytes: int) -> None:
    """Check that what has grown to *nbytes*, bit by bit, may double.

    It costs a read of a small file, so ask once in a GiB.

    Raises:
        MemoryError: less is left on the machine, or there is less in all.
    """
    from pathlib import Path

    check_room(2 * nbytes)
    left = memory_left_on_linux(Path("/")) if sys.platform == "linux" else None
    if left is not None and nbytes > left:
        raise MemoryError(
            f"{nbytes:,} bytes are held and as many will be needed; {left:,} are left"
        )


@functools.cache
def memory_in_all() -> int | None:
    """Bytes of memory and swap space that this process can have; ``None``: unknown."""
    if sys.platform != "linux":
        return None  # whose systems refuse by themselves what they cannot give
    from pathlib import Path

    return memory_of_linux(Path("/"))


def memory_of_linux(root: Path) -> int | None:
    """As :func:`memory_in_all`, of the system whose files are below *root*.

    Source: proc(5), and the kernel's documentation of control groups,
    ``cgroup-v2.rst`` and ``cgroup-v1/memory.rst``.
    """
    machine = _of_machine(root, "MemTotal", "SwapTotal")
    limits = [limit for limit in (machine, *_of_groups(root)) if limit is not None]
    return min(limits, default=None)


def memory_left_on_linux(root: Path) -> int | None:
    """Bytes that the system whose files are below *root* could still give."""
    return _of_machine(root, "MemAvailable", "SwapFree")


def _of_machine(root: Path, *names: str) -> int | None:
    total = 0
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name in names:
            total += 1024 * int(rest.split()[0])
    return total or None


def _of_groups(root: Path) -> Iterator[int | None]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.rstrip().split(":", 2)
        if not controllers:
            top, of_memory, of_swap = "", "memory.max", "memory.swap.max"
        elif "memory" in controllers.split(","):
            # which limits memory and swap together, if it does
            top, of_memory, of_swap = "memory", "memory.limit_in_bytes", ""
        else:
            continue
        # in a container the path may be that outside, and the group the topmost
        folder = root / "sys/fs/cgroup" / top
        group = folder / path.lstrip("/")
        for each in dict.fromkeys((group, *group.parents)):
            if each.is_relative_to(folder):
                memory = _number(each / of_memory)
                swap = _number(each / of_swap) if of_swap else 0
                yield None if memory is None or swap is None else memory + swap


def _number(path: Path) -> int | None:
    """What a file says; ``None`` for ``max``, and where it is missing."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return []
