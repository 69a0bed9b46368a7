"""Code is written, then executed, never both; many images share pages."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from onnxplug_cpu.compiler.runtime.code_memory import (
    REGION,
    CodeMemory,
    allowance,
)
from onnxplug_cpu.compiler.runtime.image import Image

IS_ARM = platform.machine() in ("aarch64", "arm64")

needs_code = pytest.mark.skipif(
    not IS_ARM and platform.machine() not in ("x86_64", "AMD64"),
    reason="its code is of x86-64 and aarch64",
)

RETURN = bytes.fromhex("c0035fd6" if IS_ARM else "c3")


def returning(number: int, *, alignment: int = 16, lead: int = 0) -> Image:
    """``mov eax, number; ret``, or ``mov w0, number; ret``, after *lead* times four
    other bytes."""
    if IS_ARM:
        move = (0x52800000 | number << 5).to_bytes(4, "little")
    else:
        move = b"\xb8" + number.to_bytes(4, "little")
    return Image(b"\xcc" * 4 * lead + move + RETURN, alignment, 4 * lead)


Calls: TypeAlias = list[tuple[Any, ...]]


class Library:
    """A system's library whose functions note that they are called.

    Args:
        calls: where they note it.
        results: of functions by name; a number, or what gives one; 0 by default.
    """

    def __init__(self, calls: Calls, results: dict[str, Any]) -> None:
        self._calls, self._results = calls, results

    def __getattr__(self, name: str) -> Any:
        def function(*given: Any) -> Any:
            values = [getattr(each, "value", each) for each in given]
            self._calls.append((name, *values))
            result = self._results.get(name, 0)
            return result(*given) if callable(result) else result

        setattr(self, name, function)
        return function


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What this system is asked for, which it does."""
    found: Calls = []
    if os.name == "posix":
        system = ctypes.CDLL(None, use_errno=True)
        number, size = ctypes.c_int, ctypes.c_size_t
        system.mmap.restype = ctypes.c_void_p
        system.mmap.argtypes = [ctypes.c_void_p, size, *3 * [number], ctypes.c_long]
        system.mprotect.argtypes = [ctypes.c_void_p, size, number]
        real = {"mmap": system.mmap, "mprotect": system.mprotect}
        if IS_ARM and sys.platform == "linux":
            real["__clear_cache"] = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library(found, real))
    return found


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Calls]]:
    """Makes this system one whose calls are noted, in memory that is no code."""
    room = mmap.mmap(-1, 2 * REGION)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))

    def make(name: str, machine: str, **results: Any) -> Calls:
        found: Calls = []
        library = Library(found, {"mmap": start, "VirtualAlloc": start} | results)
        monkeypatch.setattr(sys, "platform", name)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        for loader in ("CDLL", "WinDLL"):
            monkeypatch.setattr(ctypes, loader, lambda *_, **__: library, raising=False)
        monkeypatch.setattr(ctypes, "get_last_error", lambda: 87, raising=False)
        move = ctypes.memmove

        def noted(target: int, source: bytes, size: int) -> None:
            found.append(("memmove", target, size))
            threads.append(threading.current_thread())
            move(target, source, size)

        threads: list[threading.Thread] = []
        monkeypatch.setattr(ctypes, "memmove", noted)
        found.append(("threads", threads))
        return found

    yield make
    del room  # what was written to until now


def call(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


@needs_code
def test_images_run_from_their_entries() -> None:
    memory = CodeMemory()
    first = memory.place([returning(n, lead=n) for n in range(40)])
    second = memory.place([returning(7)])
    assert [call(address) for address in first] == list(range(40))
    assert call(second[0]) == 7


@needs_code
def test_images_of_one_call_share_pages_and_keep_their_alignment() -> None:
    images = [returning(1), returning(2, alignment=4096), returning(3), returning(4)]
    addresses = CodeMemory().place(images)
    assert addresses[0] % 4096 == addresses[1] % 4096 == 0
    assert addresses[3] - addresses[2] == 64
    assert [call(address) for address in addresses] == [1, 2, 3, 4]


@needs_code
def test_more_than_a_region_fits() -> None:
    memory = CodeMemory()
    large = Image(RETURN * (REGION // len(RETURN) + 1), 16, REGION)
    (one,), (two,) = memory.place([large]), memory.place([returning(5)])
    ctypes.CFUNCTYPE(None)(one)()
    assert call(two) == 5


def test_no_images_take_no_place(calls: Calls) -> None:
    assert CodeMemory().place([]) == []
    assert not calls


@needs_code
@pytest.mark.parametrize("page", [1 << 14, 1 << 16])
def test_larger_pages(monkeypatch: pytest.MonkeyPatch, calls: Calls, page: int) -> None:
    """What is made executable are whole pages, which the next images do not share."""
    monkeypatch.setattr(mmap, "PAGESIZE", page)
    memory = CodeMemory()
    first, second = (memory.place([returning(n)])[0] for n in (1, 2))
    assert [call(first), call(second)] == [1, 2]
    assert second - first == page
    protected = [given for name, *given in calls if name == "mprotect"]
    assert protected == [[first, page, 5], [second, page, 5]]


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


READ_WRITE, READ_EXECUTE = 3, 5


def test_linux_on_aarch64_flushes_before_the_first_call(another: Any) -> None:
    calls = another("linux", "aarch64")
    (start,) = CodeMemory().place([returning(1)])
    place, size = start, mmap.PAGESIZE
    _, (name, _, _, protection, flags, *_), *rest = calls
    assert (name, protection) == ("mmap", READ_WRITE)
    assert not flags & 0x800
    assert rest == [
        ("memmove", place, size),
        ("mprotect", place, size, READ_EXECUTE),
        ("__clear_cache", place, place + size),
    ]


def test_apple_silicon_writes_on_a_thread_that_executes_nothing(another: Any) -> None:
    """A signal's handler runs on the main thread, which may execute code meanwhile."""
    calls = another("darwin", "arm64")
    (start,) = CodeMemory().place([returning(1)])
    (_, threads), (name, _, _, protection, flags, *_), *rest = calls
    assert (name, protection) == ("mmap", READ_WRITE | READ_EXECUTE)
    assert flags & 0x800  # MAP_JIT
    assert rest == [
        ("pthread_jit_write_protect_np", 0),
        ("memmove", start, mmap.PAGESIZE),
        ("pthread_jit_write_protect_np", 1),
        ("sys_icache_invalidate", start, mmap.PAGESIZE),
    ]
    assert threads and threading.main_thread() not in threads


def test_apple_silicon_is_protected_again_whatever_happens(
    another: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = another("darwin", "arm64")

    def fail(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(ctypes, "memmove", fail)
    with pytest.raises(MemoryError, match="no room"):
        CodeMemory().place([returning(1)])
    assert calls[-1] == ("pthread_jit_write_protect_np", 1)


def test_where_no_thread_can_begin_the_problem_is_told(
    another: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    another("darwin", "arm64")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "can't start new thread" in (CodeMemory().problem() or "")


@pytest.mark.parametrize("machine", ["AMD64", "ARM64"])
def test_windows_flushes_what_it_made_executable(another: Any, machine: str) -> None:
    calls = another("win32", machine, VirtualProtect=1, GetCurrentProcess=-1)
    (start,) = CodeMemory().place([returning(1)])
    _, (name, _, size, kind, protection), *rest = calls
    assert (name, size) == ("VirtualAlloc", REGION)
    assert (kind, protection) == (0x3000, 0x04)  # commit and reserve; read and write
    moved, protected, process, flushed = rest
    assert moved == ("memmove", start, mmap.PAGESIZE)
    assert protected[:4] == ("VirtualProtect", start, mmap.PAGESIZE, 0x20)
    assert process == ("GetCurrentProcess",)
    assert flushed[0] == "FlushInstructionCache"
    assert flushed[2:] == (start, mmap.PAGESIZE)


@pytest.mark.parametrize("name", ["VirtualAlloc", "VirtualProtect"])
def test_what_windows_refuses_is_told(another: Any, name: str) -> None:
    another("win32", "AMD64", **{"VirtualProtect": 1, name: 0})
    assert "Windows error 87" in (CodeMemory().problem() or "")


@pytest.mark.parametrize(
    ("name", "word"),
    [("linux", "systemd"), ("darwin", "allow-jit"), ("win32", "Code Guard")],
)
def test_what_may_be_done_is_that_of_the_system(
    monkeypatch: pytest.MonkeyPatch, name: str, word: str
) -> None:
    monkeypatch.setattr(sys, "platform", name)
    assert word in allowance()
