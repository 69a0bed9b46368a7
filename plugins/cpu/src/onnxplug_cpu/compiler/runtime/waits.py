"""How a thread sleeps until another one wakes it, on each system.

Native code calls the system through addresses that it is given, so that it needs no
symbol.  Only Linux's way is tested; the others are written after their manuals and
have not run.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.emit import Function, Value
    from onnxplug_cpu.compiler.machine.isa import Isa

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE: Final = 128
_FUTEX_WAKE_PRIVATE: Final = 129
_UL_COMPARE_AND_WAIT: Final = 1

LONGEST_MICROSECONDS: Final = 100_000
"""After so long a thread wakes by itself."""


class System(Record):
    """Addresses of the system's functions, 0 for those it has not.

    Attributes:
        name: which system calls these are; empty where native code cannot sleep.
        wait: sleeps as long as a word is 1.
        wake: wakes a thread that sleeps on a word.
        give_way: lets another thread have the processor; takes nothing.
    """

    name: str
    wait: int
    wake: int
    give_way: int


def convention(system: str) -> str:
    """How the system and Python call and are called, in LLVM's words.

    Kernels call each other as C does on Linux, whatever the system.

    Args:
        system: the :attr:`System.name`.
    """
    return "win64cc" if system == "address" else ""


def find_system() -> System:
    """This system's functions."""
    if sys.platform == "win32":
        synch = ctypes.WinDLL("api-ms-win-core-synch-l1-2-0")
        return System(
            "address",
            _address(synch, "WaitOnAddress"),
            _address(synch, "WakeByAddressSingle"),
            _address(ctypes.WinDLL("kernel32"), "SwitchToThread"),
        )
    process = ctypes.CDLL(None)
    give_way = _address(process, "sched_yield")
    if sys.platform == "linux" and (call := _address(process, "syscall")):
        return System("futex", call, call, give_way)
    wait, wake = _address(process, "__ulock_wait"), _address(process, "__ulock_wake")
    if sys.platform == "darwin" and wait and wake:
        return System("ulock", wait, wake, give_way)
    return System("", 0, 0, give_way)


def _address(library: Any, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def write_wait(
    f: Function,
    isa: Isa,
    system: str,
    function: Value,
    word: Value,
    one: Value,
    longest: Value,
) -> None:
    """Sleep until woken, if the i32 at *word* is 1; it may also return for no reason,
    and does so after :data:`LONGEST_MICROSECONDS`.

    Args:
        function: the address :attr:`System.wait`.
        one: points to an i32 that is 1.
        longest: points to the longest time, as two i64: seconds and nanoseconds.
    """
    match system:
        case "futex":
            f.effect(
                f"call i64 (i64, ...) {function.text}(i64 {_futex(isa)}, {word}, "
                f"i32 {_FUTEX_WAIT_PRIVATE}, i32 1, {longest})"
            )
        case "ulock":  # as libc++'s atomic waits call it
            f.effect(
                f"call i32 {function.text}(i32 {_UL_COMPARE_AND_WAIT}, {word}, "
                f"i64 1, i32 {LONGEST_MICROSECONDS})"
            )
        case "address":
            f.effect(
                f"call {convention(system)} i32 {function.text}({word}, {one}, i64 4, "
                f"i32 {LONGEST_MICROSECONDS // 1000})"
            )


def write_wake(
    f: Function, isa: Isa, system: str, function: Value, word: Value
) -> None:
    """Wake the thread that sleeps on *word*, if there is one.

    Args:
        function: the address :attr:`System.wake`.
    """
    match system:
        case "futex":
            f.effect(
                f"call i64 (i64, ...) {function.text}(i64 {_futex(isa)}, {word}, "
                f"i32 {_FUTEX_WAKE_PRIVATE}, i32 1)"
            )
        case "ulock":
            f.effect(
                f"call i32 {function.text}(i32 {_UL_COMPARE_AND_WAIT}, {word}, i64 0)"
            )
        case "address":
            f.effect(f"call {convention(system)} void {function.text}({word})")


def write_give_way(f: Function, system: str, function: Value) -> None:
    """Let another thread have the processor.

    Args:
        function: the address :attr:`System.give_way`.
    """
    f.effect(f"call {convention(system)} i32 {function.text}()")


def _futex(isa: Isa) -> int:
    return _FUTEX[isa.triple.partition("-")[0]]
