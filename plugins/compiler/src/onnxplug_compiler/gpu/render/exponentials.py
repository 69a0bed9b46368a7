"""Functions of float32 by exponentials, which neither overflow nor cancel where their
results do not."""

from __future__ import annotations

import math

from onnxplug_compiler.gpu.render import arcs
from onnxplug_compiler.gpu.render.body import Body


def exp(body: Body, x: str) -> str:
    return body.dialect.call("exp", x)


def expm1(body: Body, x: str) -> str:
    """``exp(x) - 1`` for x of at most 0, near 0 by its series."""
    terms = [1 / math.factorial(n) for n in range(1, 6)]
    series = f"{x} * {body.polynomial(x, terms)}"
    near = f"{x} > -0.25f"
    return body.let("f32", body.dialect.select(near, series, f"{exp(body, x)} - 1.0f"))


def elu(body: Body, x: str, alpha: float, gamma: float, scale: float = 1.0) -> str:
    """``gamma x`` above 0, else ``gamma alpha (exp(scale x) - 1)``."""
    factor = body.number("f32", scale)
    below = body.let("f32", body.dialect.select(f"{x} < 0.0f", x, "0.0f"))
    scaled = body.let("f32", f"{below} * {factor}")
    outside = f"{body.number('f32', gamma * alpha)} * {expm1(body, scaled)}"
    inside = f"{body.number('f32', gamma)} * {x}"
    return body.dialect.select(f"{x} < 0.0f", outside, inside)


def sigmoid(body: Body, x: str) -> str:
    return body.let("f32", f"1.0f / (1.0f + {exp(body, f'-({x})')})")


def softplus(body: Body, x: str) -> str:
    """``log(1 + exp(x))``, without overflow."""
    small = arcs.log1p(body, body.let("f32", exp(body, f"-abs({x})")))
    positive = body.dialect.select(f"{x} < 0.0f", "0.0f", x)
    return body.let("f32", f"{positive} + {small}")


def tanh(body: Body, x: str) -> str:
    """By an exponential, near 0 by the series; drivers' own may cancel or overflow."""
    square = body.let("f32", f"{x} * {x}")
    series = body.polynomial(square, [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835])
    high = body.let("f32", body.dialect.select(f"{x} > 15.0f", "15.0f", x))
    far = f"1.0f - 2.0f / ({exp(body, f'2.0f * {high}')} + 1.0f)"
    near = f"{square} < 0.09f"
    return body.let("f32", body.dialect.select(near, f"{x} * {series}", far))


def erf(body: Body, x: str) -> str:
    """The error function: its Taylor series below 0.9, above that 7.1.26 of Abramowitz
    and Stegun's, whose error of 1.5e-7 is of the order of what float32 rounds."""
    size = body.let("f32", f"abs({x})")
    square = body.let("f32", f"{size} * {size}")
    terms = [
        (-1) ** n / (math.factorial(n) * (2 * n + 1)) * 2 / math.pi**0.5
        for n in range(10)
    ]
    series = body.polynomial(square, terms)
    t = body.let("f32", f"1.0f / (1.0f + 0.3275911f * {size})")
    tail = body.polynomial(
        t, [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429]
    )
    far = f"1.0f - {t} * {tail} * {exp(body, f'-{square}')}"
    found = body.let(
        "f32", body.dialect.select(f"{size} < 0.9f", f"{size} * {series}", far)
    )
    return body.let("f32", body.dialect.select(f"{x} < 0.0f", f"-{found}", found))
