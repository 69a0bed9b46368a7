"""Arrays in mapped files, as weights are."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np


def mapped(path: Path, access: int) -> tuple[mmap.mmap, Any]:
    size = 16 * mmap.PAGESIZE
    path.write_bytes(bytes(range(256)) * (size // 256))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), size, access=access)
    return mapping, np.frombuffer(memoryview(mapping)[100:-100], np.uint8)


def resident(address: int) -> int:
    """Bytes in memory of the mapping that *address* is in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0]:
            first, last = (int(number, 16) for number in fields[0].split("-"))
            inside = first <= address < last
        elif inside and fields[0] == "Rss:":
            return int(fields[1]) << 10
    raise AssertionError("no such mapping")
