"""NVIDIA's compiler at run time, which needs no GPU and no driver."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path
from typing import Final

from onnxplug.authoring.record import Record

ARCHITECTURES: Final = {
    "sm_75": "10.0",
    "sm_80": "11.0",
    "sm_86": "11.1",
    "sm_89": "11.8",
    "sm_90": "11.8",
    "sm_90a": "12.0",
    "sm_100": "12.8",
    "sm_100a": "12.8",
    "sm_120": "12.8",
    "sm_120a": "12.8",
}
"""What kernels are compiled for: Turing, Ampere, Ada, Hopper and Blackwell, each with
the oldest toolkit that knows it; those that end with "a" have instructions that later
GPUs lack."""

MOST_REGISTERS: Final = 255
"""Of a lane."""

REGISTERS_OF_BLOCK: Final = 65536

MOST_SHARED: Final = 48 << 10
"""Bytes of ``__shared__`` arrays, which are of fixed size."""

_USED: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+) bytes smem")
_FRAME: Final = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


class Compiled(Record):
    """A kernel as machine code, and what it takes of a GPU.

    Attributes:
        image: the CUBIN.
        registers: of a lane.
        stack: bytes of a lane in local memory.
        spilled: bytes of these that are stored or loaded because there were too few
            registers.
        shared: bytes of a block.
    """

    image: bytes
    registers: int
    stack: int
    spilled: int
    shared: int

    def beyond(self, lanes: int) -> str:
        """Why a block of so many lanes is not launched, or would be slow; or nothing.

        What is spilled although there are more registers, by which ptxas would have
        more blocks at once, is no reason.
        """
        most = min(MOST_REGISTERS, REGISTERS_OF_BLOCK // lanes // 8 * 8)
        if self.registers > most:
            return f"{lanes} lanes of {self.registers} registers"
        if self.shared > MOST_SHARED:
            return f"{self.shared} B of shared memory"
        if self.spilled and self.registers >= most - 8:
            return f"{self.spilled} B of {self.registers} registers are spilled"
        return ""


class Nvrtc:
    """The library.

    Args:
        path: of libnvrtc.

    Attributes:
        version: of the toolkit that it is of.
    """

    def __init__(self, path: Path) -> None:
        self._native = ctypes.CDLL(str(path))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._native.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def architectures(self) -> list[str]:
        """Those of :data:`ARCHITECTURES` that it knows."""
        count = ctypes.c_int()
        self._native.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._native.nvrtcGetSupportedArchs(known)
        return [name for name in ARCHITECTURES if int(name[3:].rstrip("a")) in known]

    def compile(self, text: str, architecture: str) -> Compiled:
        """Compile the kernel of a text in CUDA C++.

        Raises:
            ValueError: there is an error in it.
        """
        native, program = self._native, ctypes.c_void_p()
        native.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None
        )
        try:
            options = (
                f"--gpu-architecture={architecture}",
                "--std=c++17",
                "--ptxas-options=-v",
            )
            failed = native.nvrtcCompileProgram(
                program,
                len(options),
                (ctypes.c_char_p * len(options))(*(each.encode() for each in options)),
            )
            log = self._get("ProgramLog", program).rstrip(b"\0").decode()
            if failed:
                raise ValueError(f"{log}\n{text}")
            return _compiled(self._get("CUBIN", program), log)
        finally:
            native.nvrtcDestroyProgram(ctypes.byref(program))

    def _get(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._native, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        getattr(self._native, f"nvrtcGet{what}")(program, found)
        return found.raw


def _compiled(image: bytes, log: str) -> Compiled:
    """What ptxas says, of one kernel."""
    used = _USED.findall(log)
    frames = _FRAME.findall(log)
    if len(used) != 1 or not frames:
        raise ValueError(f"ptxas tells nothing of one kernel, but: {log}")
    return Compiled(
        image,
        int(used[0]),
        max(int(stack) for stack, _, _ in frames),
        sum(int(stores) + int(loads) for _, stores, loads in frames),
        sum(map(int, _SHARED.findall(log))),
    )


def find_nvrtc() -> Nvrtc | None:
    """The library of the distribution nvidia-cuda-nvrtc, if it is installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob("libnvrtc.so.*")):
            if "builtins" not in path.name:
                return Nvrtc(path)
    return None
