"""What is known of CuPy without importing it, which loads CUDA's libraries."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any, Final

from onnxplug.authoring.record import Record

OLDEST: Final = (14, 2)
"""The oldest CuPy whose interface is used."""

INSTALL: Final = (
    "pip install 'onnxplug-cuda[cu13]' for drivers of CUDA 13, from 580 on, or "
    "'onnxplug-cuda[cu12]' for older ones"
)

_WHEELS: Final = {"cupy-cuda13x": 13, "cupy-cuda12x": 12}
"""CuPy's distributions, and the major version of CUDA that each is for."""


class Engine(Record):
    """The CuPy that is installed.

    Attributes:
        distribution: its name.
        version: CuPy's.
        major: of the CUDA that it is built for.
    """

    distribution: str
    version: str
    major: int

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks what the EP calls."""
        numbers = re.findall(r"\d+", self.version)[:2]
        return tuple(map(int, numbers)) < OLDEST


def find_engine() -> Engine | None:
    """The installed CuPy for CUDA; ``None``: there is none."""
    for distribution, major in _WHEELS.items():
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Engine(distribution, version, major)
    return None


def unusable(engine: Engine | None) -> str:
    """Why there is nothing to compute with; empty if there is."""
    if engine is None:
        return "CuPy for CUDA is not installed"
    if engine.is_too_old:
        needed = ".".join(map(str, OLDEST))
        return f"{engine.distribution} {engine.version} is older than {needed}"
    return ""


def import_cupy() -> Any:
    """The module of CuPy.

    Raises:
        RuntimeError: it is missing, too old, or cannot be imported.
    """
    reason = unusable(find_engine())
    if reason:
        raise RuntimeError(f"{reason}; {INSTALL}")
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(f"CuPy cannot be imported: {error}; {INSTALL}") from error
    return cupy
