"""What is known of CuPy without importing it, which loads CUDA's libraries."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record

OLDEST: Final = (14, 2)
"""The oldest CuPy whose interface is used."""

TOO_NEW: Final = (15,)
"""The first that may have another."""

MAJORS: Final = (12, 13)
"""The major versions of CUDA that there are wheels of CuPy for."""

NEWEST: Final = 13
"""The major version where nothing speaks for another."""

VARIABLE: Final = "ONNXPLUG_CUDA_VERSION"
"""The environment variable that says the major version of CUDA."""

DRIVERS: Final = "https://www.nvidia.com/drivers"

INSTALL: Final = (
    "pip install 'onnxplug-cuda[cu13]' for drivers of CUDA 13, from 580 on, or "
    "'onnxplug-cuda[cu12]' for older ones"
)

_WHEELS: Final = {"cupy-cuda13x": 13, "cupy-cuda12x": 12}
"""CuPy's distributions, and the major version of CUDA that each is for."""

_LIBRARIES: Final = (
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-frontend",
)
"""What computes, or compiles what does, besides CuPy."""

_BRANCHES: Final = {580: 13, 525: 12}
"""The first branches of the driver for major versions of CUDA, the newest first."""


class Engine(Record):
    """A CuPy that is installed.

    Attributes:
        distribution: its name.
        version: CuPy's.
        major: of the CUDA that it is built for.
    """

    distribution: str
    version: str
    major: int

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks what the EP calls."""
        return self._numbers < OLDEST

    @property
    def is_too_new(self) -> bool:
        """Whether the EP was not written for it."""
        return self._numbers >= TOO_NEW


class Problem(Record):
    """Why the EP cannot compute, and the remedy."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def installed_libraries() -> dict[str, str]:
    """The versions of NVIDIA's libraries, of those that are distributions."""
    found = {}
    for distribution in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[distribution] = importlib.metadata.version(distribution)
    return found


def find_engines() -> list[Engine]:
    """The CuPys for CUDA that are installed; more than one are none, as they overwrite
    each other's files."""
    found = []
    for distribution, major in _WHEELS.items():
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(Engine(distribution, version, major))
    return found


def find_engine() -> Engine | None:
    """The installed CuPy for CUDA; ``None``: there is none."""
    return next(iter(find_engines()), None)


def said_major(environment: Mapping[str, str] = os.environ) -> int | None:
    """The major version of CUDA that the environment says; ``None``: it says none.

    Raises:
        OptionError: what it says is no such version.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    major = text.split(".", 1)[0]
    if major not in map(str, MAJORS):
        raise ep.OptionError(
            f"{VARIABLE} is {text!r}; expected {' or '.join(map(str, MAJORS))}"
        )
    return int(major)


def driver_major(root: Path = Path("/")) -> int | None:
    """The major version of CUDA that the driver's module is for, by what Linux says of
    it; ``None``: it is not loaded, or says none."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        ep.raise_interruption(error)
        return None
    branch = re.search(r"\s(\d{3,})\.\d+", text)
    if branch is None:
        return None
    number = int(branch[1])
    return next((major for first, major in _BRANCHES.items() if number >= first), None)


def wanted_major(environment: Mapping[str, str] = os.environ) -> int:
    """The major version of CUDA to work with: what the environment says, else what
    CuPy is built for, else what the driver is for, else the newest.

    Raises:
        OptionError: what the environment says is no such version.
    """
    said = said_major(environment)
    if said is not None:
        return said
    engine = find_engine()
    return driver_major() or NEWEST if engine is None else engine.major


def install(major: int) -> str:
    """How all that the EP needs is installed for CUDA *major*."""
    return f"pip install 'onnxplug-cuda[cu{major}]'"


def problem(environment: Mapping[str, str] = os.environ) -> Problem | None:
    """Why CuPy cannot be used, as far as that is seen without importing it; ``None``:
    nothing speaks against it."""
    try:
        said = said_major(environment)
    except ep.OptionError as error:
        return Problem(str(error), f"unset {VARIABLE}")
    engines, how = find_engines(), INSTALL if said is None else install(said)
    if not engines:
        return Problem("CuPy for CUDA is not installed", how)
    if len(engines) > 1:
        named = " and ".join(f"{each.distribution} {each.version}" for each in engines)
        others = " ".join(each.distribution for each in engines)
        return Problem(
            f"{named} are both installed, and overwrite each other's files",
            f"pip uninstall {others}, then {how}",
        )
    (engine,) = engines
    what = f"{engine.distribution} {engine.version}"
    if engine.is_too_old:
        return Problem(f"{what} is older than {dotted(OLDEST)}", install(engine.major))
    if engine.is_too_new:
        return Problem(
            f"{what} is not older than {dotted(TOO_NEW)}", install(engine.major)
        )
    if said not in (None, engine.major):
        assert said is not None
        return Problem(
            f"{VARIABLE} is {said}, and {what} is built for CUDA {engine.major}",
            f"unset {VARIABLE}, or pip uninstall {engine.distribution}, then "
            f"{install(said)}",
        )
    return None


def dotted(numbers: tuple[int, ...]) -> str:
    """A version as it is written."""
    return ".".join(map(str, numbers))


def import_cupy() -> Any:
    """The module of CuPy.

    Raises:
        RuntimeError: it is missing, of another version, built for another CUDA than the
            environment says, or cannot be imported.
    """
    if wrong := problem():
        raise RuntimeError(str(wrong))
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(f"CuPy cannot be imported: {error}; {INSTALL}") from error
    return cupy
