"""NVIDIA's compiler at run time, which needs no GPU to compile for one."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path


class Nvrtc:
    """The library.

    Args:
        path: of libnvrtc.
    """

    def __init__(self, path: Path) -> None:
        self._native = ctypes.CDLL(str(path))

    def compile(self, text: str, architecture: str) -> bytes:
        """The machine code of kernels in CUDA C++.

        Raises:
            ValueError: there is an error in them.
        """
        native, program = self._native, ctypes.c_void_p()
        native.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None
        )
        try:
            options = (ctypes.c_char_p * 2)(
                f"--gpu-architecture={architecture}".encode(), b"--std=c++17"
            )
            failed = native.nvrtcCompileProgram(program, len(options), options)
            what = "ProgramLog" if failed else "CUBIN"
            size = ctypes.c_size_t()
            getattr(native, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
            found = ctypes.create_string_buffer(size.value)
            getattr(native, f"nvrtcGet{what}")(program, found)
            if failed:
                raise ValueError(f"{found.value.decode()}\n{text}")
            return found.raw
        finally:
            native.nvrtcDestroyProgram(ctypes.byref(program))


def find_nvrtc() -> Nvrtc | None:
    """The library of the distribution nvidia-cuda-nvrtc, if it is installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob("libnvrtc.so.*")):
            if "builtins" not in path.name:
                return Nvrtc(path)
    return None
