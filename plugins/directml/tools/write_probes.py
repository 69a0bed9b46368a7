"""Writes the models by which families of operators are probed on a device.

python tools/write_probes.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from onnxplug_directml.probes import FAMILIES
from onnxplug_testing.probe_models import write_all

FOLDER: Final = Path(__file__).parents[1] / "src/onnxplug_directml/probe_models"

if __name__ == "__main__":
    write_all(FAMILIES, FOLDER)
