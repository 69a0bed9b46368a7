"""What ``onnxplug doctor`` says of CUDA, and of what is missing of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from onnxplug import ep
from onnxplug_cuda.installation import find_engine, problem, wanted_major
from onnxplug_cuda.libraries import (
    DRIVER,
    LIBRARIES,
    Found,
    Library,
    Missing,
    find,
    lacking,
    preload,
)

Finder = Callable[[Library], Found | Missing]
"""Loads a library, or says why it is not there."""

FRONTEND: Final = "pip install 'nvidia-cudnn-frontend>=1.22,<1.29'"
"""How cuDNN's Python frontend is installed."""


def findings(
    environment: Mapping[str, str] = os.environ, look: Finder = find
) -> Iterator[ep.Finding]:
    """CuPy, the driver, and each library: its version, or what is to be installed.

    Loads the driver and the libraries; makes no context on a GPU.
    """
    wrong = problem(environment)
    if wrong:
        yield ep.Finding(
            level=ep.Level.ERROR, message=wrong.reason, remedy=wrong.remedy
        )
    elif engine := find_engine():
        message = f"CuPy {engine.version} for CUDA {engine.major}"
        yield ep.Finding(level=ep.Level.OK, message=message)
    try:
        major = wanted_major(environment)
    except ep.OptionError:
        return  # it is what is wrong, and nothing can be said of libraries then
    if look is find and not is_installed("cuda.pathfinder"):
        yield ep.Finding(
            level=ep.Level.ERROR,
            message="cuda-pathfinder, which finds CUDA's libraries, is not installed",
            remedy="pip install cuda-pathfinder",
        )
        return
    driver = look(DRIVER)
    yield _of(DRIVER, driver, major)
    if isinstance(driver, Missing) and sys.platform == "linux":
        yield from _devices_without_driver()
    for library in LIBRARIES:
        yield _of(library, look(library), major)
    yield _of_frontend()


def preloaded(groups: Collection[str], directory: Path | None) -> Iterator[ep.Finding]:
    """What became of libraries that were to be loaded before all else.

    Raises:
        OptionError: the environment says no major version of CUDA.
    """
    major = wanted_major()
    for library, found in preload(groups, directory):
        yield _of(library, found, major)


def is_installed(module: str) -> bool:
    """Whether a module of a package can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _of(library: Library, found: Found | Missing, major: int) -> ep.Finding:
    wrong = lacking(library, found, major)
    if wrong is None:
        assert isinstance(found, Found)
        version = ".".join(map(str, found.version)) or "of a version that it hides"
        return ep.Finding(
            level=ep.Level.OK, message=f"{library.title} {version}, {found.path}"
        )
    if not library.is_optional:
        return ep.Finding(
            level=ep.Level.ERROR, message=wrong.reason, remedy=wrong.remedy
        )
    return ep.Finding(
        level=ep.Level.WARNING,
        message=f"{wrong.reason}; kernels of this EP's serve in its place",
        remedy=wrong.remedy,
    )


def _of_frontend() -> ep.Finding:
    """cuDNN is used through it."""
    try:
        version = importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        return ep.Finding(
            level=ep.Level.WARNING,
            message="cuDNN's Python frontend is not installed; kernels of this EP's "
            "compute convolutions and attention",
            remedy=FRONTEND,
        )
    return ep.Finding(level=ep.Level.OK, message=f"cuDNN's Python frontend {version}")


def _devices_without_driver(folder: Path = Path("/dev")) -> Iterator[ep.Finding]:
    """GPUs whose device files are there, though their driver's library is not."""
    files = sorted(str(path) for path in folder.glob("nvidia[0-9]*"))
    if files:
        yield ep.Finding(
            level=ep.Level.ERROR,
            message=f"{', '.join(files)} {'is' if len(files) == 1 else 'are'} there, "
            "and libcuda.so.1 is not: the driver's libraries are not in this container",
            remedy="start it with NVIDIA's container toolkit, such as docker run "
            "--gpus all",
        )
