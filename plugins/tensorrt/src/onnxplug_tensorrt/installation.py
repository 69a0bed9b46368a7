"""What is known of TensorRT without importing it, which loads gigabytes."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

OLDEST: Final = (10, 13)
"""The oldest TensorRT whose interface is used."""

TOO_NEW: Final = (12,)
"""The first that may have another."""

NEWEST_MAJOR: Final = 13
"""The newest CUDA that TensorRT is built for."""

_DISTRIBUTIONS: Final = {
    "tensorrt-cu13": 13,
    "tensorrt-cu12": 12,
    "tensorrt": NEWEST_MAJOR,
}
"""TensorRT's distributions, and the major version of the CUDA that each is for."""

_CUPY: Final = {"cupy-cuda13x": 13, "cupy-cuda12x": 12}
"""Those of the CUDA EP's engine, likewise."""


class Installation(Record):
    """A TensorRT that is installed.

    Attributes:
        distribution: its name; empty for one that is none, as in NVIDIA's containers.
        version: TensorRT's.
        major: of the CUDA that it is for; 0 where that is not said.
    """

    distribution: str
    version: str
    major: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version's major and minor."""
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))


class Problem(Record):
    """Why TensorRT cannot be used, and the remedy."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def find_tensorrt() -> Installation | None:
    """The installed TensorRT; ``None``: there is none."""
    for distribution, major in _DISTRIBUTIONS.items():
        if version := _version(distribution):
            return Installation(distribution, version, major)
    if _is_there("tensorrt"):
        return Installation("", "", 0)
    return None


def cuda_major() -> int:
    """The major version of the CUDA that the CUDA EP works with; 0: there is none."""
    return next((major for name, major in _CUPY.items() if _version(name)), 0)


def install(major: int = 0) -> str:
    """How all that the EP needs is installed."""
    major = major or cuda_major() or NEWEST_MAJOR
    return f"pip install 'onnxplug-tensorrt[cu{major}]'"


def problem() -> Problem | None:
    """Why TensorRT cannot be used, as far as that is seen without importing it;
    ``None``: nothing speaks against it."""
    found = find_tensorrt()
    if found is None:
        return Problem("TensorRT is not installed", install())
    if found.version and (wrong := _wrong_version(found)):
        return wrong
    cuda = cuda_major()
    if found.major and cuda and found.major != cuda:
        return Problem(
            f"{found.distribution} {found.version} is for CUDA {found.major}, and the "
            f"installed CuPy for CUDA {cuda}",
            f"pip uninstall {found.distribution}, then {install(cuda)}",
        )
    return None


def _wrong_version(found: Installation) -> Problem | None:
    what = f"{found.distribution or 'TensorRT'} {found.version}"
    if found.numbers < OLDEST:
        return Problem(f"{what} is older than {_dotted(OLDEST)}", install(found.major))
    if found.numbers >= TOO_NEW:
        return Problem(
            f"{what} is not older than {_dotted(TOO_NEW)}", install(found.major)
        )
    return None


@functools.cache
def import_tensorrt() -> Any:
    """TensorRT's module.

    Raises:
        RuntimeError: it is missing, of another version, or cannot be imported.
    """
    if wrong := problem():
        raise RuntimeError(str(wrong))
    try:
        module = importlib.import_module("tensorrt")
    # its own __init__ looks for libraries, and raises what it likes
    except Exception as error:
        ep.raise_interruption(error)
        raise RuntimeError(
            f"TensorRT cannot be imported: {type(error).__name__}: {error}; {install()}"
        ) from error
    found = Installation("", str(module.__version__), 0)
    if wrong := _wrong_version(found):
        raise RuntimeError(str(wrong))
    return module


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # the latter of a module without a spec
        return False


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
