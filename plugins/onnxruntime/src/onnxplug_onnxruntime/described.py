"""ONNX Runtime's distribution, as ``importlib.metadata`` describes others."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import onnxplug_onnxruntime


class Described(importlib.metadata.Distribution):
    """A distribution of the version that is stood for.

    Attributes:
        distribution: its name.
    """

    def __init__(self, distribution: str) -> None:
        self.distribution = distribution

    def read_text(self, filename: str) -> str | None:
        """The two files that tell the name, the version and the package."""
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: {self.distribution}\n"
            f"Version: {onnxplug_onnxruntime.__version__}\n"
            "Summary: onnxplug in its place\n",
            "top_level.txt": f"{self.distribution}\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Path:
        """Where a file would be."""
        return Path(onnxplug_onnxruntime.__file__).parent.joinpath(path)
