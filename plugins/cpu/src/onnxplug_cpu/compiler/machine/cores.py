"""How many threads computing in this process is worth."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable


def default_workers(root: str | os.PathLike[str] = "/") -> int:
    """The physical cores that this process may use, at least 1.

    It counts the processors of the process's affinity, takes two hardware threads of
    a core for one, and respects the processor time that control groups allow: half a
    processor more is not worth a thread, which would be stopped half of the time.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    processors, base = _affinity(), os.fspath(root)
    count = len(_cores(processors, base)) if processors else os.cpu_count() or 1
    # it may change while the process runs, and many sessions be made in a second
    quota = _quota_of_second(base, int(time.monotonic()))
    return max(1, count if quota is None else min(count, int(quota)))


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset()


def _cores(processors: Iterable[int], root: str) -> set[frozenset[int]]:
    """The processors grouped by core; a core of its own where the system is silent."""
    return {_siblings(processor, root) for processor in processors}


@functools.cache  # a file for each processor, which says the same as long as it runs
def _siblings(processor: int, root: str) -> frozenset[int]:
    topology = f"sys/devices/system/cpu/cpu{processor}/topology"
    siblings = _read(os.path.join(root, topology, "thread_siblings_list"))
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


@functools.lru_cache(maxsize=1)
def _quota_of_second(root: str, second: int) -> float | None:
    return _quota(root)


def _quota(root: str) -> float | None:
    """Processors' worth of time that control groups allow; ``None`` for no limit.

    See the kernel's Documentation/admin-guide/cgroup-v2.rst, "cpu.max", and
    Documentation/scheduler/sched-bwc.rst for version 1.  A group is also limited by
    the groups that it is in; in a container, those that cannot be seen are those that
    the mounted root stands for.
    """
    limits = []
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
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
                limit = read(os.path.join(root, mount, *parts[:depth]))
                if limit is not None:
                    limits.append(limit)
    return min(limits, default=None)


def _limit_v2(group: str) -> float | None:
    quota, _, period = _read(os.path.join(group, "cpu.max")).strip().partition(" ")
    return _ratio(quota, period)


def _limit_v1(group: str) -> float | None:
    return _ratio(
        _read(os.path.join(group, "cpu.cfs_quota_us")).strip(),
        _read(os.path.join(group, "cpu.cfs_period_us")).strip(),
    )


def _ratio(quota: str, period: str) -> float | None:
    # "max" and -1 are no limit
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
