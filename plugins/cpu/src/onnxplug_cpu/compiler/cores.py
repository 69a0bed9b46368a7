"""How many threads computing in this process is worth."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path


def default_workers(root: Path = Path("/")) -> int:
    """The physical cores that this process may use, at least 1.

    It counts the processors of the process's affinity, takes two hardware threads of
    a core for one, and respects the processor time that control groups allow: half a
    processor more is not worth a thread, which would be stopped half of the time.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    processors = _affinity()
    count = len(_cores(processors, root)) if processors else os.cpu_count() or 1
    quota = _quota(root)
    return max(1, count if quota is None else min(count, int(quota)))


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset()


def _cores(processors: Iterable[int], root: Path) -> set[frozenset[int]]:
    """The processors grouped by core; a core of its own where the system is silent."""
    return {_siblings(processor, root) for processor in processors}


@functools.cache  # a file for each processor, which says the same as long as it runs
def _siblings(processor: int, root: Path) -> frozenset[int]:
    topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
    siblings = _read(topology / "thread_siblings_list")
    return _parse_list(siblings) or frozenset({processor})


def _parse_list(text: str) -> frozenset[int]:
    """The numbers of a list such as ``0-3,8``; none if it is not one."""
    numbers: set[int] = set()
    try:
        for part in text.strip().split(","):
            low, _, high = part.partition("-")
            numbers.update(range(int(low), int(high or low) + 1))
    except ValueError:
        return frozenset()
    return frozenset(numbers)


def _quota(root: Path) -> float | None:
    """Processors' worth of time that control groups allow; ``None`` for no limit.

    See the kernel's Documentation/admin-guide/cgroup-v2.rst, "cpu.max", and
    Documentation/scheduler/sched-bwc.rst for version 1.  A group is also limited by
    the groups that it is in; in a container, those that cannot be seen are those that
    the mounted root stands for.
    """
    limits = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            mounts, read = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], _limit_v2
        elif "cpu" in controllers.split(","):
            mounts, read = (
                [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"],
                (_limit_v1),
            )
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            for depth in range(len(parts) + 1):
                limit = read((root / mount).joinpath(*parts[:depth]))
                if limit is not None:
                    limits.append(limit)
    return min(limits, default=None)


def _limit_v2(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").strip().partition(" ")
    return _ratio(quota, period)


def _limit_v1(group: Path) -> float | None:
    return _ratio(
        _read(group / "cpu.cfs_quota_us").strip(),
        _read(group / "cpu.cfs_period_us").strip(),
    )


def _ratio(quota: str, period: str) -> float | None:
    # "max" and -1 are no limit
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
