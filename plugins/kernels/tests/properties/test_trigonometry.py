"""Trigonometric and hyperbolic functions against NumPy's widest floats."""

from __future__ import annotations

import pytest

from onnxplug_kernels.families import FAMILIES

from .comparison import result_of
from .formulas import TRANSCENDENTAL
from .strategies import Draw, examples


@pytest.mark.parametrize(
    "op_type", [name for name in TRANSCENDENTAL if FAMILIES["", name] == "trigonometry"]
)
@examples(25)
def test_functions(op_type: str, draw: Draw) -> None:
    x = draw.array(draw.dtype(op_type), draw.shape())
    TRANSCENDENTAL[op_type].check(result_of(op_type, x), x)
