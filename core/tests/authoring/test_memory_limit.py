"""How much memory there is, by what a Linux system says in its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxplug.authoring import memory_limit
from onnxplug.authoring.memory_limit import (
    check_growth,
    check_left,
    check_room,
    memory_left_on_linux,
    memory_of_linux,
)

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = {
    "proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n"
    "SwapTotal: 1048576 kB\nSwapFree: 1024 kB\n"
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 9 * GIB),
        # version 2: the tightest of the group and those around it
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": str(2 * GIB),
                "sys/fs/cgroup/a/memory.swap.max": "0\n",
                "sys/fs/cgroup/memory.max": str(3 * GIB),
            },
            2 * GIB,
        ),
        # no limit of swap space is no limit
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": str(2 * GIB),
                "sys/fs/cgroup/a/memory.swap.max": "max\n",
            },
            9 * GIB,
        ),
        # in a container, where the path is that outside
        (
            {
                "proc/self/cgroup": "0::/docker/0123\n",
                "sys/fs/cgroup/memory.max": str(4 * GIB),
                "sys/fs/cgroup/memory.swap.max": str(GIB),
            },
            5 * GIB,
        ),
        # version 1
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(GIB),
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712",
            },
            9 * GIB,
        ),
    ],
)
def test_the_memory_of_a_process_is_the_tightest_limit(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    assert memory_of_linux(write(tmp_path, MEMINFO | files)) == expected


def test_a_system_that_says_nothing_has_no_known_limit(tmp_path: Path) -> None:
    assert memory_of_linux(tmp_path) is None
    assert memory_left_on_linux(tmp_path) is None


def test_what_is_left_is_memory_and_swap_space(tmp_path: Path) -> None:
    assert memory_left_on_linux(write(tmp_path, MEMINFO)) == 2 * GIB + (1 << 20)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": str(GIB),
                "sys/fs/cgroup/a/memory.swap.max": "0\n",
                "sys/fs/cgroup/a/memory.current": str(GIB - 5000),
                "sys/fs/cgroup/a/memory.swap.current": "0\n",
                "sys/fs/cgroup/a/memory.stat": "anon 10\nfile 3000\nkernel 7\n",
            },
            8000,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(GIB),
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes": str(2 * GIB),
            },
            0,
        ),
        # the machine has less than the group may use
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": str(7 * GIB),
                "sys/fs/cgroup/a/memory.swap.max": "0\n",
            },
            2 * GIB + (1 << 20),
        ),
    ],
)
def test_what_is_left_is_what_the_tightest_group_has_left(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    assert memory_left_on_linux(write(tmp_path, MEMINFO | files)) == expected


def test_what_is_filled_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit.sys, "platform", "linux")
    monkeypatch.setattr(memory_limit, "memory_in_all", lambda: 100 * GIB)
    monkeypatch.setattr(memory_limit, "memory_left_on_linux", lambda root: 1000)
    check_left(memory_limit.WORTH_ASKING - 1)
    with pytest.raises(MemoryError, match="1,000 are left"):
        check_left(memory_limit.WORTH_ASKING)
    with pytest.raises(MemoryError, match="in all"):
        check_left(101 * GIB)


def test_requests_beyond_all_memory_are_refused() -> None:
    check_room(GIB)
    with pytest.raises(MemoryError, match="1,152,921,504,606,846,976 bytes"):
        check_room(1 << 60)


def test_what_grows_must_be_able_to_double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit.sys, "platform", "linux")
    monkeypatch.setattr(memory_limit, "memory_in_all", lambda: 100 * GIB)
    monkeypatch.setattr(memory_limit, "memory_left_on_linux", lambda root: 10 * GIB)
    check_growth(9 * GIB)
    with pytest.raises(MemoryError, match="are left"):
        check_growth(11 * GIB)
    with pytest.raises(MemoryError, match="in all"):
        check_growth(51 * GIB)
