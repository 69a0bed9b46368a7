"""What the system says of the processor: features, caches, permission for AMX.

The systems are asked, rather than the processor, because a feature counts only where
the system saves its registers.  A file or an answer that is missing means a feature
less, or a cache of unknown size, never an error.  macOS and Windows are untested.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterable
from typing import Final

from onnxplug.authoring.record import Record

_X86_64, _AARCH64 = "x86-64", "aarch64"
_ARCHITECTURES: Final = {
    "x86_64": _X86_64,
    "amd64": _X86_64,
    "aarch64": _AARCH64,
    "arm64": _AARCH64,
}

_LLVM_NAMES: Final = {
    "abm": "lzcnt",
    "avx512_bf16": "avx512bf16",
    "avx512_vnni": "avx512vnni",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
}
"""Features that Linux and macOS call otherwise than LLVM, in small letters."""

_AVX2_PROCESSOR: Final = "avx2 fma f16c bmi bmi2 lzcnt movbe popcnt"
_AVX512_PROCESSOR: Final = "avx512f avx512bw avx512cd avx512dq avx512vl"


class Processor(Record):
    """A processor as the system describes it.

    Attributes:
        architecture: ``x86-64``, ``aarch64``, or empty for any other.
        features: LLVM's names.
        caches: bytes of the data caches of levels 1, 2 and 3; 0 where unknown.
    """

    architecture: str
    features: frozenset[str]
    caches: tuple[int, int, int]


def read_processor(root: str = "/") -> Processor:
    """This processor; *root* stands for Linux's ``/``."""
    architecture = _ARCHITECTURES.get(platform.machine().lower(), "")
    if sys.maxsize < 1 << 32 or sys.byteorder != "little":
        architecture = ""
    is_x86 = architecture == _X86_64
    features, caches = frozenset[str](), (0, 0, 0)
    if sys.platform == "darwin":
        caches = _macos_caches()
        if architecture:
            features = _macos_features() if is_x86 else _macos_arm_features()
    elif sys.platform == "win32":
        if architecture:
            features = _windows_features() if is_x86 else _windows_arm_features()
    else:
        caches = _linux_caches(root)
        if architecture:
            features = _linux_features(root) if is_x86 else _linux_arm_features()
    return Processor(architecture, features, caches)


def _linux_features(root: str) -> frozenset[str]:
    # the file has a block for each processor, and making one takes the kernel long
    text = _read(os.path.join(root, "proc/cpuinfo"), 8192)
    for line in text.splitlines():
        if line.startswith("flags"):
            return llvm_names(line.partition(":")[2].split())
    return frozenset()


_LINUX_ARM: Final = {
    16: {8: "lse", 20: "dotprod"},
    26: {13: "i8mm", 14: "bf16"},
}
"""Features by the bits of ``AT_HWCAP`` and ``AT_HWCAP2`` (Linux's uapi/asm/hwcap.h)."""


def _linux_arm_features() -> frozenset[str]:
    """What the process may use, on every core: an emulator's ``/proc/cpuinfo`` is that
    of the machine that it runs on."""
    return frozenset(
        name
        for kind, names in _LINUX_ARM.items()
        for bit, name in names.items()
        if auxiliary(kind) >> bit & 1
    )


def auxiliary(kind: int) -> int:
    """A number that Linux gave the process when it began; 0 if it gave none."""
    try:
        find = ctypes.CDLL(None).getauxval
    except AttributeError:  # a C library without it
        return 0
    find.argtypes, find.restype = [ctypes.c_ulong], ctypes.c_ulong
    return int(find(kind))


def llvm_names(names: Iterable[str]) -> frozenset[str]:
    """Features by LLVM's names, from those that operating systems give them."""
    return frozenset(
        _LLVM_NAMES.get(name, name.replace("amx_", "amx-").replace("sse4_", "sse4."))
        for name in names
    )


def _linux_caches(root: str) -> tuple[int, int, int]:
    sizes = [0, 0, 0]
    folder = os.path.join(root, "sys/devices/system/cpu/cpu0/cache")
    for index in range(8):
        cache = os.path.join(folder, f"index{index}")
        kind = _read(os.path.join(cache, "type")).strip()
        if not kind:
            break
        level = _read(os.path.join(cache, "level")).strip()
        size = _read(os.path.join(cache, "size")).strip()
        number, unit = size[:-1], {"K": 1 << 10, "M": 1 << 20}.get(size[-1:])
        is_data = kind != "Instruction" and level in ("1", "2", "3")
        if is_data and unit and number.isdecimal():
            sizes[int(level) - 1] = int(number) * unit
    return sizes[0], sizes[1], sizes[2]


def _read(path: str, size: int = 256) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return (file.read(size) or b"").decode("ascii", "replace")
    except OSError:
        return ""


def _macos_features() -> frozenset[str]:
    # Apple's names are those of Linux in capitals, apart from AVX1.0 and a few others
    texts = (
        sysctl(f"machdep.cpu.{name}")
        for name in ("features", "leaf7_features", "extfeatures")
    )
    return llvm_names(" ".join(text.decode() for text in texts).lower().split())


_MACOS_ARM: Final = {
    "FEAT_LSE": "lse",
    "FEAT_DotProd": "dotprod",
    "FEAT_I8MM": "i8mm",
    "FEAT_BF16": "bf16",
}


def _macos_arm_features() -> frozenset[str]:
    return frozenset(
        name
        for key, name in _MACOS_ARM.items()
        if any(sysctl(f"hw.optional.arm.{key}"))
    )


def _macos_caches() -> tuple[int, int, int]:
    first, second, third = (
        int.from_bytes(sysctl(f"hw.{name}"), "little")
        for name in ("l1dcachesize", "l2cachesize", "l3cachesize")
    )
    return first, second, third


def sysctl(name: str) -> bytes:
    """A value of macOS's kernel, a trailing zero removed; empty if it has none."""
    find = ctypes.CDLL(None).sysctlbyname
    value = ctypes.create_string_buffer(4096)
    size = ctypes.c_size_t(len(value))
    if find(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return b""
    return value.raw[: size.value].rstrip(b"\0")


def _windows_features() -> frozenset[str]:
    """Windows reports two features; processors have the others of their time too.

    No processor that Windows runs on has AVX2 without FMA, or AVX-512F without the
    parts that Skylake introduced.
    """
    avx2, avx512f = 40, 41
    kernel32 = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    names = "sse4.1"
    if kernel32.IsProcessorFeaturePresent(avx2):
        names += f" {_AVX2_PROCESSOR}"
        if kernel32.IsProcessorFeaturePresent(avx512f):
            names += f" {_AVX512_PROCESSOR}"
    return frozenset(names.split())


_WINDOWS_ARM: Final = {34: "lse", 43: "dotprod", 66: "i8mm", 68: "bf16"}
"""Features by the numbers that Windows has for them (``winnt.h``)."""


def _windows_arm_features() -> frozenset[str]:
    kernel32 = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    return frozenset(
        name
        for number, name in _WINDOWS_ARM.items()
        if kernel32.IsProcessorFeaturePresent(number)
    )


def amx_refusal() -> str | None:
    """Ask Linux to save this process's tile registers; why it does not.

    Without that, the first AMX instruction ends the process
    (https://docs.kernel.org/arch/x86/xstate.html).

    Returns:
        A sentence with a remedy, or ``None`` if tiles may be used from now on.
    """
    if not sys.platform.startswith("linux"):
        return f"on {sys.platform} the EP cannot ask for it; use Linux to have it"
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    ctypes.set_errno(0)
    result = syscall(
        ctypes.c_long(arch_prctl),
        ctypes.c_ulong(request_permission),
        ctypes.c_ulong(tile_data),
    )
    if result == 0:
        return None
    number = ctypes.get_errno()
    remedy = _AMX_REMEDIES.get(number, "allow arch_prctl(ARCH_REQ_XCOMP_PERM, 18)")
    return (
        f"Linux refuses the process the tile registers ({os.strerror(number)}); "
        f"{remedy}"
    )


_AMX_REMEDIES: Final = {
    errno.EINVAL: "use Linux 5.16 or newer",
    errno.EOPNOTSUPP: "use a system, or a virtual machine, that offers them",
    errno.ENOSPC: (
        "give signals a larger stack of their own: a thread has one (sigaltstack) that "
        "the registers would not fit in"
    ),
    errno.EPERM: "allow arch_prctl in the container's or the sandbox's filter",
    errno.ENOSYS: "allow arch_prctl in the container's or the sandbox's filter",
}


HASWELL: Final = frozenset(_AVX2_PROCESSOR.split())
"""What code for ``haswell`` uses without being asked to."""

SKYLAKE_SERVER: Final = HASWELL | frozenset(_AVX512_PROCESSOR.split())
"""The same for ``skylake-avx512``."""
