"""How much memory there is, for who is asked to allocate more than that.

Linux grants memory that it does not have, and ends the process that uses it.  So a
request beyond all that the process can ever get is refused here, and one for memory
that is filled at once also if less is left.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.bounds import MOST_ELEMENTS
from onnxplug.authoring.record import Record
from onnxplug.interruption import raise_interruption

if TYPE_CHECKING:
    from pathlib import Path

LARGE: Final = 1 << 30
"""Bytes below which a request is not looked at: any machine has them."""

WORTH_ASKING: Final = 1 << 26
"""Bytes to fill that take hundreds of times as long as asking how many are left."""


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


def check_left(nbytes: int) -> None:
    """Check that *nbytes*, which are to be filled at once, are there now.

    It costs a read of small files, of about 0.1 ms, from :data:`WORTH_ASKING` bytes on.

    Raises:
        MemoryError: they are more than is left, or more than there is in all.
    """
    if nbytes < WORTH_ASKING:
        return
    check_room(nbytes)
    left = _left()
    if left is not None and nbytes > left:
        raise MemoryError(f"{nbytes:,} bytes are asked for at once; {left:,} are left")


def check_growth(nbytes: int) -> None:
    """Check that what has grown to *nbytes*, bit by bit, may double.

    It costs a read of a small file, so ask once in a GiB.

    Raises:
        MemoryError: less is left on the machine, or there is less in all.
    """
    check_room(2 * nbytes)
    left = _left()
    if left is not None and nbytes > left:
        raise MemoryError(
            f"{nbytes:,} bytes are held and as many will be needed; {left:,} are left"
        )


def _left() -> int | None:
    if sys.platform != "linux":
        return None
    from pathlib import Path

    return memory_left_on_linux(Path("/"))


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
    limits = [machine, *map(_limit, _groups(root))]
    return min((limit for limit in limits if limit is not None), default=None)


def memory_left_on_linux(root: Path) -> int | None:
    """Bytes that the system whose files are below *root* could still give.

    What caches of files hold is among them, since the system takes it back.
    """
    machine = _of_machine(root, "MemAvailable", "SwapFree")
    limits = [machine, *map(_left_in_group, _groups(root))]
    return min((limit for limit in limits if limit is not None), default=None)


def _of_machine(root: Path, *names: str) -> int | None:
    total = 0
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name in names:
            total += 1024 * int(rest.split()[0])
    return total or None


class _Group(Record):
    """A control group, and what its files are called; ``""`` for none.

    Attributes:
        limits: of memory, and of swap space.
        uses: how much of each is in use.
        cached: the line of ``memory.stat`` that says what caches of files hold.
    """

    folder: Path
    limits: tuple[str, str]
    uses: tuple[str, str]
    cached: str


def _groups(root: Path) -> Iterator[_Group]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.rstrip().split(":", 2)
        if not controllers:
            top, cached = "", "file"
            limits = "memory.max", "memory.swap.max"
            uses = "memory.current", "memory.swap.current"
        elif "memory" in controllers.split(","):
            # which limits memory and swap together, if it does
            top, cached = "memory", "total_cache"
            limits, uses = ("memory.limit_in_bytes", ""), ("memory.usage_in_bytes", "")
        else:
            continue
        # in a container the path may be that outside, and the group the topmost
        folder = root / "sys/fs/cgroup" / top
        group = folder / path.lstrip("/")
        for each in dict.fromkeys((group, *group.parents)):
            if each.is_relative_to(folder):
                yield _Group(each, limits, uses, cached)


def _limit(group: _Group) -> int | None:
    memory, swap = (_number(group.folder, name) for name in group.limits)
    return None if memory is None or swap is None else memory + swap


def _left_in_group(group: _Group) -> int | None:
    most = _limit(group)
    if most is None:
        return None
    used = sum(_number(group.folder, name) or 0 for name in group.uses)
    for line in _lines(group.folder / "memory.stat"):
        name, _, number = line.partition(" ")
        if name == group.cached:
            used -= int(number)
    return max(0, most - max(0, used))


def _number(folder: Path, name: str) -> int | None:
    """What a file says; ``None`` for ``max``, and where it is missing."""
    if not name:
        return 0
    text = "".join(_lines(folder / name)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except (OSError, ValueError) as error:
        raise_interruption(error)
        return []
