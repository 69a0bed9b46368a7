"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from onnxplug_kernels.elementwise import declare, widened, with_consumed_inputs

for _op_type, _function, _since in (
    ("Acos", "acos", 7),
    ("Acosh", "acosh", 9),
    ("Asin", "asin", 7),
    ("Asinh", "asinh", 9),
    ("Atan", "atan", 7),
    ("Atanh", "atanh", 9),
    ("Cos", "cos", 7),
    ("Cosh", "cosh", 9),
    ("Sin", "sin", 7),
    ("Sinh", "sinh", 9),
    ("Tan", "tan", 7),
):
    declare(_op_type, widened(_function), since=_since)

declare("Tanh", widened("tanh"), since=1, legacy=with_consumed_inputs)
