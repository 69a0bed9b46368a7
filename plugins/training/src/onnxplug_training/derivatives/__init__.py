"""How to differentiate each operator: one table from operator to rule.

A rule turns the gradients of a node's outputs into nodes that compute those of its
inputs.  Whatever rules emit is differentiable itself, so higher orders need no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug_training.derivatives.elementwise import ELEMENTWISE
from onnxplug_training.derivatives.emit import Emitter, Rule, Step
from onnxplug_training.derivatives.layout import LAYOUT
from onnxplug_training.derivatives.pick import PICK
from onnxplug_training.derivatives.products import PRODUCTS

__all__ = ["RULES", "Emitter", "Rule", "Step"]

RULES: Final[Mapping[str, Rule]] = {**ELEMENTWISE, **PRODUCTS, **LAYOUT, **PICK}
"""The rules of ONNX's own operators."""
