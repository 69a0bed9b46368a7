"""Tangents, arcs, and hyperbolic functions with their inverses: from square roots,
exponentials, logarithms far from 1, and series, as what drivers compute of their own
may cancel, overflow, or be right to a few digits only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from onnxplug_compiler.gpu.render import angles
from onnxplug_compiler.gpu.render.body import Body


def _odd(body: Body, x: str, coefficients: list[float]) -> str:
    """The same of its square, times *x*."""
    square = body.let("f32", f"{x} * {x}")
    return body.let("f32", f"{x} * {body.polynomial(square, coefficients)}")


def _signed(body: Body, x: str, found: str) -> str:
    """What an odd function is of *x*, from what it is of its magnitude."""
    negative = f"({body.dialect.reinterpret('u32', x)} >> 31u) != 0u"
    return body.let("f32", body.dialect.select(negative, f"-({found})", found))


def _defined(body: Body, condition: str, found: str) -> str:
    return body.let(
        "f32", body.dialect.select(condition, found, body.number("f32", math.nan))
    )


_ATAN: Final = [(-1) ** n / (2 * n + 1) for n in range(10)]
_ASIN: Final = [math.comb(2 * n, n) / 4**n / (2 * n + 1) for n in range(12)]
_SINH: Final = [1 / math.factorial(2 * n + 1) for n in range(7)]
_ATANH: Final = [1 / (2 * n + 1) for n in range(8)]


def log1p(body: Body, x: str) -> str:
    """``log(1 + x)`` for x from 0 on: near 0 by the series of the inverse hyperbolic
    tangent of ``x / (2 + x)``."""
    ratio = body.let("f32", f"{x} / (2.0f + {x})")
    near = f"2.0f * {_odd(body, ratio, _ATANH)}"
    far = body.dialect.call("log", f"1.0f + {x}")
    return body.let("f32", body.dialect.select(f"{x} < 0.5f", near, far))


def _tan(body: Body, x: str) -> str:
    return angles.tangent(body, x)


def _atan(body: Body, x: str) -> str:
    """Above 1 by the inverse, and above the tangent of an eighth of a turn by the
    difference to half of that."""
    select = body.dialect.select
    size = body.let("f32", f"abs({x})")
    is_far = body.let("i1", f"{size} > 1.0f")
    near = body.let("f32", select(is_far, f"1.0f / {size}", size))
    is_high = body.let("i1", f"{near} > {body.number('f32', math.sqrt(2) - 1)}")
    rest = body.let("f32", select(is_high, f"({near} - 1.0f) / ({near} + 1.0f)", near))
    found = _odd(body, rest, _ATAN)
    quarter = body.number("f32", math.pi / 4)
    found = body.let("f32", select(is_high, f"{quarter} + {found}", found))
    half = body.number("f32", math.pi / 2)
    return _signed(body, x, body.let("f32", select(is_far, f"{half} - {found}", found)))


def _half_chord(body: Body, size: str) -> str:
    """The arc sine of ``sqrt((1 - size) / 2)``, for a *size* from a half to 1."""
    within = body.let("f32", body.dialect.select(f"{size} > 1.0f", "1.0f", size))
    root = body.dialect.call("sqrt", f"(1.0f - {within}) * 0.5f")
    return _odd(body, body.let("f32", root), _ASIN)


def _asin(body: Body, x: str) -> str:
    size = body.let("f32", f"abs({x})")
    far = f"{body.number('f32', math.pi / 2)} - 2.0f * {_half_chord(body, size)}"
    near = _odd(body, size, _ASIN)
    found = body.let("f32", body.dialect.select(f"{size} > 0.5f", far, near))
    return _defined(body, f"{size} <= 1.0f", _signed(body, x, found))


def _acos(body: Body, x: str) -> str:
    size, select = body.let("f32", f"abs({x})"), body.dialect.select
    twice = body.let("f32", f"2.0f * {_half_chord(body, size)}")
    turned = select(f"{x} < 0.0f", f"{body.number('f32', math.pi)} - {twice}", twice)
    near = f"{body.number('f32', math.pi / 2)} - {_odd(body, x, _ASIN)}"
    found = body.let("f32", select(f"{size} > 0.5f", turned, near))
    return _defined(body, f"{size} <= 1.0f", found)


def _root_of_power(body: Body, size: str) -> str:
    """The exponential of a half, whose square overflows when the result does."""
    return body.let("f32", body.dialect.call("exp", f"0.5f * {size}"))


def _sinh(body: Body, x: str) -> str:
    size = body.let("f32", f"abs({x})")
    root = _root_of_power(body, size)
    far = f"(0.5f * {root}) * {root} - (0.5f / {root}) / {root}"
    near = _odd(body, size, _SINH)
    found = body.let("f32", body.dialect.select(f"{size} < 1.0f", near, far))
    return _signed(body, x, found)


def _cosh(body: Body, x: str) -> str:
    root = _root_of_power(body, body.let("f32", f"abs({x})"))
    return body.let("f32", f"(0.5f * {root}) * {root} + (0.5f / {root}) / {root}")


_LARGE: Final = 1e9
"""Numbers whose squares may overflow, and to which 1 adds nothing."""


def _far_log(body: Body, x: str) -> str:
    """``log(2 x)``, of a number that may be the largest one."""
    return f"{body.dialect.call('log', x)} + {body.number('f32', math.log(2))}"


def _asinh(body: Body, x: str) -> str:
    size, select = body.let("f32", f"abs({x})"), body.dialect.select
    is_large = f"{size} > {body.number('f32', _LARGE)}"
    small = body.let("f32", select(is_large, "1.0f", size))
    square = body.let("f32", f"{small} * {small}")
    root = body.dialect.call("sqrt", f"1.0f + {square}")
    ahead = body.let("f32", f"{small} + {square} / (1.0f + {root})")
    near = log1p(body, ahead)
    found = body.let("f32", select(is_large, _far_log(body, size), near))
    return _signed(body, x, found)


def _acosh(body: Body, x: str) -> str:
    select = body.dialect.select
    is_large = f"{x} > {body.number('f32', _LARGE)}"
    ahead = body.let(
        "f32", select(f"{x} > 1.0f && !({is_large})", f"{x} - 1.0f", "0.0f")
    )
    root = body.dialect.call("sqrt", f"{ahead} * ({ahead} + 2.0f)")
    near = log1p(body, body.let("f32", f"{ahead} + {root}"))
    found = body.let("f32", select(is_large, _far_log(body, x), near))
    return _defined(body, f"{x} >= 1.0f", found)


def _atanh(body: Body, x: str) -> str:
    size, select = body.let("f32", f"abs({x})"), body.dialect.select
    is_one = f"{size} >= 1.0f"
    ratio = f"(1.0f + {size}) / (1.0f - {select(is_one, '0.0f', size)})"
    far = f"0.5f * {body.dialect.call('log', ratio)}"
    near = _odd(body, size, _ATANH)
    found = body.let("f32", select(f"{size} < 0.25f", near, far))
    infinity = body.number("f32", math.inf)
    found = body.let("f32", select(f"{size} == 1.0f", infinity, found))
    return _defined(body, f"{size} <= 1.0f", _signed(body, x, found))


FUNCTIONS: Final[Mapping[str, Callable[[Body, str], str]]] = {
    "Tan": _tan,
    "Asin": _asin,
    "Acos": _acos,
    "Atan": _atan,
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": _atanh,
}
"""ONNX's names, and what each writes of a float32."""
