"""What is known of torch without importing it, which takes seconds."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from typing import Any, Final

from onnxplug.authoring.record import Record

NOT_INSTALLED: Final = "torch is not installed"
INSTALL: Final = (
    "install the build of torch for your device, as https://pytorch.org/get-started "
    "tells, in this environment; for processors alone: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu"
)
OLDEST: Final = (2, 6)


class Build(Record):
    """What an installed torch was built for.

    Attributes:
        version: as torch says it, ``2.13.0+cpu``.
        cuda, hip, xpu: the version of the platform, empty if the build is without it.
    """

    version: str
    cuda: str
    hip: str
    xpu: str

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks what the EP calls."""
        numbers = re.findall(r"\d+", self.version)[:2]
        return tuple(map(int, numbers)) < OLDEST


@functools.cache
def find_build() -> Build | None:
    """The installed torch; ``None``: there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    file = Path(found.origin).parent / "version.py"
    return _read_build(file.read_text(encoding="utf-8")) if file.exists() else None


def _read_build(text: str) -> Build:
    """What torch's own ``version.py`` states."""
    stated = dict(re.findall(r"^(\w+)(?:: [^=]+)? = '([^']*)'$", text, re.MULTILINE))
    return Build(
        stated.get("__version__", ""),
        stated.get("cuda", ""),
        stated.get("hip", "") or stated.get("rocm", ""),
        stated.get("xpu", ""),
    )


def import_torch() -> Any:
    """torch.

    Raises:
        ImportError: there is none, or it is broken.
    """
    import torch

    return torch
