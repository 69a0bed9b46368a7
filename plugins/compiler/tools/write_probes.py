"""Writes the models by which families of kernels are probed on a GPU.

python tools/write_probes.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from onnxplug_compiler.gpu.probes import FAMILIES, WIDE
from onnxplug_testing.probe_models import write_all

FOLDER: Final = Path(__file__).parents[1] / "src/onnxplug_compiler/gpu/probe_models"

if __name__ == "__main__":
    write_all(FAMILIES | WIDE, FOLDER)
