"""Functions and casts of float64, in languages that have it.

Functions are the language's own, right to a few units in the last place; those of
float32 are series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body, Pair

_Write: TypeAlias = Callable[[Body, Sequence[str], Mapping[str, Any]], str]


def _function(name: str) -> _Write:
    return lambda body, x, attributes: body.dialect.call(name, x[0])


def _elu(body: Body, x: str, alpha: float, gamma: float, scale: float = 1.0) -> str:
    """``gamma x`` above 0, else ``gamma alpha (exp(scale x) - 1)``."""
    factor, outer = (body.number("f64", n) for n in (scale, gamma * alpha))
    below = f"{outer} * {body.dialect.call('expm1', f'{x} * {factor}')}"
    inside = f"{body.number('f64', gamma)} * {x}"
    return body.dialect.select(f"{x} < 0.0", below, inside)


def _sigmoid(body: Body, x: str) -> str:
    return f"1.0 / (1.0 + {body.dialect.call('exp', f'-({x})')})"


def _softplus(body: Body, x: str) -> str:
    small = body.dialect.call("log1p", body.dialect.call("exp", f"-abs({x})"))
    return f"{body.dialect.select(f'{x} < 0.0', '0.0', x)} + {small}"


def _gelu(body: Body, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    call = body.dialect.call
    if attributes.get("approximate") == "tanh":
        cube = f"({x[0]} + 0.044715 * {x[0]} * {x[0]} * {x[0]})"
        return f"0.5 * {x[0]} * (1.0 + {call('tanh', f'0.7978845608028654 * {cube}')})"
    return f"0.5 * {x[0]} * {call('erfc', f'-({x[0]}) * 0.7071067811865476')}"


def _swish(body: Body, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    alpha = body.number("f64", attributes.get("alpha", 1.0))
    power = body.dialect.call("exp", f"-({alpha} * {x[0]})")
    return f"{x[0]} / (1.0 + {power})"


def _mod(body: Body, x: Sequence[str], attributes: Mapping[str, Any]) -> str:
    select = body.dialect.select
    rest = body.let("f64", body.dialect.call("fmod", *x))
    if attributes.get("fmod", 0):
        return rest
    turned = select(f"({rest} < 0.0) != ({x[1]} < 0.0)", f"{rest} + {x[1]}", rest)
    zero = select(f"{x[1]} < 0.0", "-0.0", "0.0")
    return select(f"{rest} == 0.0", zero, turned)


STEPS: Final[Mapping[str, _Write]] = {
    **{
        name: _function(name.lower())
        for name in (
            "Exp Log Sqrt Floor Ceil Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh "
            "Acosh Atanh Erf Abs"
        ).split()
    },
    "Round": _function("rint"),
    "Mod": _mod,
    "Elu": lambda body, x, attributes: _elu(
        body, x[0], attributes.get("alpha", 1.0), 1.0
    ),
    "Selu": lambda body, x, attributes: _elu(
        body,
        x[0],
        attributes.get("alpha", 1.67326319217681884765625),
        attributes.get("gamma", 1.05070102214813232421875),
    ),
    "Celu": lambda body, x, attributes: _elu(
        body,
        x[0],
        attributes.get("alpha", 1.0),
        1.0,
        1 / attributes.get("alpha", 1.0),
    ),
    "Sigmoid": lambda body, x, attributes: _sigmoid(body, x[0]),
    "Softplus": lambda body, x, attributes: _softplus(body, x[0]),
    "Mish": lambda body, x, attributes: (
        f"{x[0]} * {body.dialect.call('tanh', _softplus(body, x[0]))}"
    ),
    "Swish": _swish,
    "SwiGLU": lambda body, x, attributes: f"({_swish(body, x, attributes)}) * {x[1]}",
    "Gelu": _gelu,
    "Pow": lambda body, x, attributes: body.dialect.call("pow", *x),
}
"""Those whose text is not that of float32."""


def widened(body: Body, x: Any, source: str) -> str:
    """An element of another kind as a float64."""
    if source == "i1":
        return body.let("f64", body.dialect.select(x, "1.0", "0.0"))
    if source in PAIRED:
        x = body.joined(x, source)
    return body.let("f64", body.dialect.convert("f64", x))


def to_odd(body: Body, x: str) -> str:
    """The float32 towards 0, whose last bit says whether that is another number: it
    rounds to narrower floats as *x* does (S. Boldo and G. Melquiond, "When double
    rounding is odd", 2005)."""
    return body.let("f32", body.dialect.call("f32_to_odd", x))


def truncated(body: Body, x: str, *, signed: bool) -> Pair:
    """Towards 0; beyond all numbers, and no number, the least of those with a sign."""
    dialect = body.dialect
    least, half = "0x8000000000000000ull", "9223372036854775808.0"
    inside = body.let("i1", f"{x} >= -{half} && {x} < {half}")
    near = body.let("f64", dialect.select(inside, x, "0.0"))
    whole = dialect.convert("u64", dialect.convert("i64", near))
    beyond = least
    if not signed:
        above = body.let("i1", f"{x} >= {half} && {x} < 2.0 * {half}")
        rest = body.let("f64", dialect.select(above, f"{x} - {half}", "0.0"))
        far = f"{least} + {dialect.convert('u64', rest)}"
        beyond = dialect.select(above, far, least)
    return body.split(dialect.select(inside, whole, beyond))


def narrowed(body: Body, x: str, target: str) -> tuple[Any, str]:
    """A float64 as what is nearest to *target* among other elements, and that one."""
    if target == "i1":
        return body.let("i1", f"{x} != 0.0"), "i1"
    if target == "f32":
        return body.let("f32", body.dialect.convert("f32", x)), "f32"
    if KINDS.get(target) == "f32":
        return to_odd(body, x), "f32"
    whole = truncated(body, x, signed=target != "u64")
    return whole, "u64" if target == "u64" else "i64"
