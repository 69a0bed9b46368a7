"""ONNX's type of an attribute that is given as a plain value."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.weight import Weight


def typed(value: Any) -> Attribute:
    """*value* as an attribute: a number, text, tensor, or a sequence of numbers.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(value, Weight):
        return Attribute(AttributeType.TENSOR, value)
    if isinstance(value, np.ndarray):
        return Attribute(AttributeType.TENSOR, Weight.from_array(value))
    if isinstance(value, str | bytes):
        return Attribute(AttributeType.STRING, value)
    if isinstance(value, int):
        return Attribute(AttributeType.INT, int(value))
    if isinstance(value, float):
        return Attribute(AttributeType.FLOAT, value)
    if all(isinstance(item, int) for item in value):
        return Attribute(AttributeType.INTS, tuple(value))
    return Attribute(AttributeType.FLOATS, tuple(float(item) for item in value))
