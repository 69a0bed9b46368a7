"""Lets the tests import what the scripts in ``benchmarks/`` import."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"

sys.path.append(str(FOLDER))
