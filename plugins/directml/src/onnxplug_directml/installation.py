"""Which DirectML.dll is used, and what it is, without loading it."""

from __future__ import annotations

import mmap
import os
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_directml.com.libraries import DIRECTML, UPDATE

_MACHINES: Final = {0x8664: "win-amd64", 0xAA64: "win-arm64", 0x014C: "win32"}
"""Processors in the headers of libraries, as ``sysconfig.get_platform`` has them."""

_VERSION_KEY: Final = "VS_VERSION_INFO".encode("utf-16-le")
_FIXED_INFO: Final = struct.pack("<I", 0xFEEF04BD)
"""How ``VS_FIXEDFILEINFO`` begins, which follows that key."""


_FIRST_BUILD_OF_11: Final = 22000


class Installation(Record):
    """A DirectML.dll.

    Attributes:
        path: where it is.
        origin: why that one: ``option dll_path``, ``app-local`` or ``System32``.
        version: of the file; empty where it does not say.
    """

    path: Path
    origin: str
    version: str

    def __str__(self) -> str:
        return f"DirectML {self.version or 'of an unknown version'} ({self.path})"


def problem() -> str:
    """Why DirectML cannot be used on this system at all; empty: nothing does."""
    if sys.platform != "win32":
        return f"DirectML is a part of Windows, and this system is {sys.platform}"
    if sys.maxsize < 1 << 32:
        return "the process has 32 bits; DirectML is used in 64"
    return ""


def system_name() -> str:
    """Windows, as people know it."""
    build = sys.getwindowsversion().build  # type: ignore[attr-defined, unused-ignore]
    release = 11 if build >= _FIRST_BUILD_OF_11 else 10
    return f"Windows {release}, build {build}, {sysconfig.get_platform()}"


def find_directml(dll_path: str = "") -> Installation:
    """The DirectML.dll to use: that of the option, a copy beside the program, or the
    system's.

    Args:
        dll_path: the option's value: a file, or a folder with a ``DirectML.dll``.

    Raises:
        OptionError: the option names what is not there, or is for another processor.
        RuntimeError: there is none, or the one beside the program is for another
            processor or cannot be read.
    """
    if dll_path:
        return _named(dll_path)
    for folder in program_folders():
        path = folder / DIRECTML
        if path.is_file():
            return _described(path, "app-local")
    path = system_folder() / DIRECTML
    if path.is_file():
        return _described(path, "System32", is_systems=True)
    raise RuntimeError(
        f"there is no DirectML.dll, neither beside the program ("
        f"{', '.join(map(str, program_folders()))}) nor in {system_folder()}; {UPDATE}"
    )


def program_folders() -> list[Path]:
    """The folders of the program that runs: of the interpreter, and of the one that a
    virtual environment is of; never the current directory."""
    programs = (sys.executable, getattr(sys, "_base_executable", ""))
    return list(dict.fromkeys(Path(each).parent for each in programs if each))


def system_folder() -> Path:
    """Windows' folder of libraries."""
    return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"


def _named(dll_path: str) -> Installation:
    path = Path(dll_path).absolute()
    if path.is_dir():
        path = path / DIRECTML
    if not path.is_file():
        raise ep.OptionError(
            f"option 'dll_path' is {dll_path!r}, and there is no file {path}; name a "
            "DirectML.dll, or the folder that it is in"
        )
    try:
        return _described(path, "option dll_path")
    except RuntimeError as error:
        raise ep.OptionError(f"option 'dll_path' is {dll_path!r}: {error}") from error


def _described(path: Path, origin: str, *, is_systems: bool = False) -> Installation:
    """A library that is there.

    Args:
        is_systems: it is Windows' own, which any process can load: on ARM64 its header
            names that, and Windows shows it to processes of x64 as one of theirs
            (Arm64X).

    Raises:
        RuntimeError: it cannot be read, or is for another processor.
    """
    try:
        machine, version = read_library(path)
    except OSError as error:
        raise RuntimeError(f"{path} cannot be read: {error}") from error
    ours = sysconfig.get_platform()
    if machine != ours and not is_systems:
        raise RuntimeError(
            f"{path} is for {machine}, and this Python for {ours}; take the file of "
            f"the folder for {ours} from the NuGet package Microsoft.AI.DirectML"
        )
    return Installation(path, origin, version)


def read_library(path: Path) -> tuple[str, str]:
    """For which system a library is, as ``sysconfig.get_platform`` has it, and its
    version, which is empty where it has none.

    It is read as Microsoft's PE format and ``VS_VERSIONINFO`` are documented.

    Raises:
        OSError: it cannot be read.
        RuntimeError: it is no library of Windows.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < 64:
            raise RuntimeError(f"{path} is no library of Windows: it is too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _machine(content, path), _version(content)


def _machine(content: mmap.mmap, path: Path) -> str:
    (begin,) = struct.unpack_from("<I", content, 60)
    header = content[begin : begin + 6]
    if content[:2] != b"MZ" or header[:4] != b"PE\0\0" or len(header) < 6:
        raise RuntimeError(f"{path} is no library of Windows: it has no PE header")
    (machine,) = struct.unpack("<H", header[4:])
    return _MACHINES.get(machine, f"machine 0x{machine:04X}")


def _version(content: mmap.mmap) -> str:
    key = content.find(_VERSION_KEY)
    begin = content.find(_FIXED_INFO, key, key + len(_VERSION_KEY) + 16)
    numbers = content[begin + 8 : begin + 16]
    if key < 0 or begin < 0 or len(numbers) < 8:
        return ""
    high, low = struct.unpack("<2I", numbers)
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"
