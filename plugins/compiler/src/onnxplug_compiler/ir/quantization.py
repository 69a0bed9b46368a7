"""Numbers as small integers or floats, with a scale and a zero point, as steps of
chains."""

from __future__ import annotations

from typing import Any, Final, Protocol

CODE_LIMITS: Final = {
    "i2": (-2, 1),
    "u2": (0, 3),
    "i4": (-8, 7),
    "u4": (0, 15),
    "i8": (-128, 127),
    "u8": (0, 255),
    "i16": (-32768, 32767),
    "u16": (0, 65535),
}
"""What numbers are quantised to, of integers."""

FLOAT_CODES: Final = frozenset(
    {"f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn"}
)
"""The same of floats."""


class Steps(Protocol):
    """A chain in the making, as of :class:`~.formula.Formula`."""

    def number(self, value: float, element: str = "") -> Any:
        """A constant that is part of the code."""

    def step(
        self, operator: str, *operands: Any, element: str = "", **attributes: Any
    ) -> Any:
        """An operator, of float32 unless *element* says otherwise."""

    def cast(self, operand: Any, element: str, **attributes: Any) -> Any:
        """*operand* as another element, if it is none already."""


def dequantised(chain: Steps, codes: Any, scale: Any, zero: Any | None) -> Any:
    """What *codes* stand for; all in float32."""
    if zero is not None:
        codes = chain.step("Sub", codes, zero)
    return chain.step("Mul", codes, scale)


def in_steps(chain: Steps, x: Any, scale: Any, element: str) -> Any:
    """*x* in steps of *scale*, in float32, as floats of *element* have it."""
    x, scale = (chain.cast(chain.cast(each, element), "f32") for each in (x, scale))
    steps = chain.step("Div", x, scale)
    return chain.cast(chain.cast(steps, element), "f32")


def quantised(
    chain: Steps,
    steps: Any,
    zero: Any | None,
    element: str,
    *,
    saturates: bool = True,
) -> Any:
    """*steps*, in float32, rounded, with a zero point added, and saturated; of floats
    only where *saturates*, and rounded when the zero point is added."""
    if element in FLOAT_CODES:
        if zero is not None:
            steps = chain.step("Add", steps, zero)
        return chain.cast(steps, element, saturate=int(saturates))
    return chain.cast(whole_codes(chain, steps, zero, element), element)


def whole_codes(chain: Steps, steps: Any, zero: Any | None, element: str) -> Any:
    """Codes of integers that *steps* are rounded to, as float32."""
    value = chain.step("Round", steps)
    if zero is not None:
        value = chain.step("Add", value, zero)
    low, high = (chain.number(float(limit), "f32") for limit in CODE_LIMITS[element])
    return chain.step("Min", chain.step("Max", value, low), high)
