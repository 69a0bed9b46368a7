"""NVIDIA's libraries: where they are, and of which version.

They are loaded, as only then they say their versions; none of them makes a context on a
GPU by that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_cuda.installation import DRIVERS, MAJORS, Problem, dotted, install


class Library(Record):
    """One of NVIDIA's libraries.

    Attributes:
        name: what ``cuda-pathfinder`` calls it.
        title: what it is called in messages.
        oldest: the oldest version that serves, by CUDA's major version.
        packages: the distribution that has it, by CUDA's major version; empty where it
            comes with the driver.
        group: which of the arguments of ``preload_dlls`` is about it.
        is_optional: whether the EP computes without it, by kernels of its own.
    """

    name: str
    title: str
    oldest: Mapping[int, tuple[int, ...]]
    packages: Mapping[int, str]
    group: str = "cuda"
    is_optional: bool = False


DRIVER: Final = Library("cuda", "NVIDIA's driver", {12: (12, 0), 13: (13, 0)}, {})

LIBRARIES: Final = (
    Library(
        "cudart",
        "the CUDA runtime",
        {12: (12, 0), 13: (13, 0)},
        {12: "nvidia-cuda-runtime-cu12", 13: "nvidia-cuda-runtime"},
    ),
    Library(
        "nvrtc",
        "NVRTC, the compiler of kernels",
        {12: (12, 0), 13: (13, 0)},
        {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"},
    ),
    Library(
        "cublasLt",
        "cuBLASLt",
        {12: (12, 0), 13: (13, 0)},
        {12: "nvidia-cublas-cu12", 13: "nvidia-cublas"},
        is_optional=True,
    ),
    Library(
        "cudnn",
        "cuDNN",
        {12: (9, 8), 13: (9, 12)},  # 9.12 is the first for CUDA 13
        {12: "nvidia-cudnn-cu12", 13: "nvidia-cudnn-cu13"},
        group="cudnn",
        is_optional=True,
    ),
)
"""What the EP computes with, besides the driver; each after those that it needs."""


class Found(Record):
    """A library that was loaded.

    Attributes:
        path: its file.
        version: as it says itself; empty: it does not.
        handle: what ``ctypes`` calls it by.
    """

    path: str
    version: tuple[int, ...]
    handle: ctypes.CDLL


class Missing(Record):
    """A library that was not loaded, and why."""

    reason: str


def find(library: Library) -> Found | Missing:
    """Load *library*, from wherever ``cuda-pathfinder`` finds it.

    It stays loaded.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        loaded = load_nvidia_dynamic_lib(library.name)
    # what a broken library raises when it is loaded is what is asked for here
    except Exception as error:  # noqa: BLE001
        ep.raise_interruption(error)
        # what follows is a list of all that lies in folders
        return Missing(" ".join(str(error).split(" listdir(")[0].split()).rstrip("."))
    return opened(library, str(loaded.abs_path))


def opened(library: Library, path: str) -> Found | Missing:
    """The library of the file *path*, loaded."""
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        ep.raise_interruption(error)
        return Missing(str(error))
    try:
        version = _VERSIONS[library.name](handle)
    except AttributeError as error:
        return Missing(f"{path} is no {library.title}: {error}")
    return Found(path, version, handle)


def _two_numbers(handle: ctypes.CDLL) -> tuple[int, ...]:
    """What NVRTC says."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return () if status else (major.value, minor.value)


def _thousands(symbol: str) -> Callable[[ctypes.CDLL], tuple[int, ...]]:
    """What a function says that fills in 1000·major + 10·minor."""

    def ask(handle: ctypes.CDLL) -> tuple[int, ...]:
        number = ctypes.c_int()
        status = getattr(handle, symbol)(ctypes.byref(number))
        return () if status else (number.value // 1000, number.value % 1000 // 10)

    return ask


def _digits(symbol: str, most: int) -> Callable[[ctypes.CDLL], tuple[int, ...]]:
    """What a function returns as *most*·major + 100·minor + patch."""

    def ask(handle: ctypes.CDLL) -> tuple[int, ...]:
        function = getattr(handle, symbol)
        function.restype = ctypes.c_size_t
        number = int(function())
        # before 9, cuDNN had three digits behind the major version
        parts = most if number >= 9 * most else most // 10
        return number // parts, number % parts // 100, number % 100

    return ask


_VERSIONS: Final[Mapping[str, Callable[[ctypes.CDLL], tuple[int, ...]]]] = {
    "cuda": _thousands("cuDriverGetVersion"),
    "cudart": _thousands("cudaRuntimeGetVersion"),
    "nvrtc": _two_numbers,
    "cublasLt": _digits("cublasLtGetVersion", 10000),
    "cudnn": _digits("cudnnGetVersion", 10000),
}


def lacking(library: Library, found: Found | Missing, major: int) -> Problem | None:
    """What is wrong with a library for CUDA *major*; ``None``: nothing."""
    package = library.packages.get(major)
    remedy = (
        f"pip install {package}"
        if package
        else f"install or update the driver of your GPU, {DRIVERS}"
    )
    if library is DRIVER and isinstance(found, Found) and major > MAJORS[0]:
        remedy += f", or {install(MAJORS[0])}, which older ones do for"
    if isinstance(found, Missing):
        return Problem(f"{library.title} is not found: {found.reason}", remedy)
    oldest = library.oldest[major]
    if found.version and found.version < oldest:
        return Problem(
            f"{library.title} is {dotted(found.version)} ({found.path}); expected "
            f"{dotted(oldest)} or newer for CUDA {major}",
            remedy.replace("install ", "install -U ", 1),
        )
    belongs = library.group == "cuda" and library is not DRIVER
    if belongs and found.version and found.version[0] != major:
        return Problem(
            f"{library.title} is {dotted(found.version)} ({found.path}); expected one "
            f"of CUDA {major}",
            remedy,
        )
    return None


def preload(
    groups: Collection[str], directory: Path | None = None
) -> Iterator[tuple[Library, Found | Missing]]:
    """Load libraries before anything else asks for them, each after those that it
    needs; what became of each.

    Args:
        groups: of ``cuda`` and ``cudnn``, those to load.
        directory: where to look first; ``None``: where ``cuda-pathfinder`` looks.
    """
    for library in LIBRARIES:
        if library.group in groups:
            yield library, _preloaded(library, directory)


def _preloaded(library: Library, directory: Path | None) -> Found | Missing:
    if directory is not None:
        for path in _files(library, directory):
            found = opened(library, str(path))
            if isinstance(found, Found):
                return found
    return find(library)


def _files(library: Library, directory: Path) -> list[Path]:
    """The files in *directory* that may be a library, the newest version first."""
    name = library.name
    found = [*directory.glob(f"lib{name}.so*"), *directory.glob(f"{name}64_*.dll")]
    return sorted(found, key=lambda path: path.name, reverse=True)
