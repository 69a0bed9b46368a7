"""Code is written, then executed, never both; many images share pages."""

from __future__ import annotations

import ctypes
import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from onnxplug_cpu.compiler.runtime.code_memory import REGION, CodeMemory
from onnxplug_cpu.compiler.runtime.image import Image

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="its code is of x86-64"
)


def returning(number: int, *, alignment: int = 16, lead: int = 0) -> Image:
    """``mov eax, number; ret`` after *lead* other bytes."""
    code = b"\xcc" * lead + b"\xb8" + number.to_bytes(4, "little") + b"\xc3"
    return Image(code, alignment, lead)


def call(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def test_images_run_from_their_entries() -> None:
    memory = CodeMemory()
    first = memory.place([returning(n, lead=n) for n in range(40)])
    second = memory.place([returning(7)])
    assert [call(address) for address in first] == list(range(40))
    assert call(second[0]) == 7


def test_images_of_one_call_share_pages_and_keep_their_alignment() -> None:
    images = [returning(1), returning(2, alignment=4096), returning(3), returning(4)]
    addresses = CodeMemory().place(images)
    assert addresses[0] % 4096 == addresses[1] % 4096 == 0
    assert addresses[3] - addresses[2] == 64
    assert [call(address) for address in addresses] == [1, 2, 3, 4]


def test_more_than_a_region_fits() -> None:
    memory = CodeMemory()
    large = Image(b"\xc3" * (REGION + 1), 16, REGION)
    (one,), (two,) = memory.place([large]), memory.place([returning(5)])
    ctypes.CFUNCTYPE(None)(one)()
    assert call(two) == 5


def test_no_images_take_no_place() -> None:
    assert CodeMemory().place([]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_no_page_is_writable_and_executable() -> None:
    memory = CodeMemory()
    (first,) = memory.place([returning(1)])
    memory.place([returning(2)])
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        for page in (first, first + mmap.PAGESIZE, first + 2 * mmap.PAGESIZE):
            if start <= page < end:
                rights[page] = line.split()[1]
    assert list(rights.values()) == ["r-xp", "r-xp", "rw-p"]


REFUSING = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit(77)
from onnxplug_cpu.compiler.runtime.code_memory import CodeMemory
from onnxplug_cpu.compiler.runtime.image import Image
from onnxplug_cpu.compiler.runtime import jit
print(CodeMemory().problem())
print(jit.machine_code_unavailable())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux can refuse it")
def test_a_system_that_refuses_is_understood() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSING], capture_output=True, text=True, timeout=60
    )
    if done.returncode == 77:
        pytest.skip("this Linux cannot refuse it")
    assert done.returncode == 0, done.stderr
    problem, reason = done.stdout.splitlines()
    assert problem.startswith("the system lets no memory that was written be executed")
    assert "machine code cannot be executed in this process" in reason
