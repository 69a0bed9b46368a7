"""Rules of operators that work element by element, with broadcasting.

Sources: the formulas of the operators in ONNX's Operators.md, differentiated.  At
points without a derivative a subgradient is given: 0 for ``Relu`` and ``Abs`` at 0,
equal shares for ``Max`` and ``Min``, and the input's own for ``Clip`` at its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from onnxplug_training.derivatives.emit import FLOATING, Build, Emitter, Rule, Step

_Unary: TypeAlias = Callable[[Emitter, str, str, str], str]
"""From input, output and the output's gradient to the input's."""
_Binary: TypeAlias = Callable[[Emitter, str, str, str, str], str]
"""From two inputs, output and the output's gradient to one input's."""


# one input


def _sqrt(e: Emitter, x: str, y: str, g: str) -> str:
    return e("Div", e("Mul", g, e.scalar(0.5, y)), y)


def _reciprocal(e: Emitter, x: str, y: str, g: str) -> str:
    return e("Neg", e("Mul", g, e("Mul", y, y)))


def _tanh(e: Emitter, x: str, y: str, g: str) -> str:
    return e("Mul", g, e("Sub", e.scalar(1, y), e("Mul", y, y)))


def _sigmoid(e: Emitter, x: str, y: str, g: str) -> str:
    return e("Mul", g, e("Mul", y, e("Sub", e.scalar(1, y), y)))


def _relu(e: Emitter, x: str, y: str, g: str) -> str:
    zero = e.scalar(0, x)
    return e("Where", e("Greater", x, zero), g, zero)


def _erf(e: Emitter, x: str, y: str, g: str) -> str:
    bell = e("Exp", e("Neg", e("Mul", x, x)))
    return e("Mul", g, e("Mul", bell, e.scalar(2 / math.sqrt(math.pi), x)))


_UNARY: Final[Mapping[str, tuple[int, _Unary]]] = {
    "Abs": (6, lambda e, x, y, g: e("Mul", g, e("Sign", x))),
    "Cos": (7, lambda e, x, y, g: e("Neg", e("Mul", g, e("Sin", x)))),
    "Erf": (9, _erf),
    "Exp": (6, lambda e, x, y, g: e("Mul", g, y)),
    "Identity": (1, lambda e, x, y, g: g),
    "Log": (6, lambda e, x, y, g: e("Div", g, x)),
    "Neg": (6, lambda e, x, y, g: e("Neg", g)),
    "Reciprocal": (6, _reciprocal),
    "Relu": (6, _relu),
    "Sigmoid": (6, _sigmoid),
    "Sin": (7, lambda e, x, y, g: e("Mul", g, e("Cos", x))),
    "Softplus": (1, lambda e, x, y, g: e("Mul", g, e("Sigmoid", x))),
    "Sqrt": (6, _sqrt),
    "Tanh": (6, _tanh),
}


def _of_unary(gradient: _Unary) -> Build:
    return lambda step: {0: gradient(step.emit, step.x(), step.y, step.g)}


def _leaky_relu(step: Step) -> Mapping[int, str]:
    e, x, g = step.emit, step.x(), step.g
    leak = e("Mul", g, e.scalar(step.attribute("alpha", 0.01), x))
    return {0: e("Where", e("Less", x, e.scalar(0, x)), leak, g)}


def _cast(step: Step) -> Mapping[int, str]:
    e = step.emit
    for name in (step.x(), step.y):
        if e.dtype(name) not in FLOATING:
            step.refuse(f"{name!r} is {e.dtype(name)}, which has no gradient")
    return {0: e.cast(step.g, step.x())}


def _dropout(step: Step) -> Mapping[int, str]:
    mode = step.optional(2)
    if mode is not None:
        training = step.emit.constant(mode)
        if training is None or training.any():
            step.refuse("only Dropout in inference mode is differentiable")
    return {0: step.g}


def _flat(step: Step) -> Mapping[int, str]:
    """Of steps the gradient is zero."""
    return {}


# two inputs


def _div_by(e: Emitter, a: str, b: str, y: str, g: str) -> str:
    return e("Neg", e("Div", e("Mul", g, y), b))


_BINARY: Final[Mapping[str, tuple[int, _Binary, _Binary]]] = {
    "Add": (7, lambda e, a, b, y, g: g, lambda e, a, b, y, g: g),
    "Div": (7, lambda e, a, b, y, g: e("Div", g, b), _div_by),
    "Mul": (
        7,
        lambda e, a, b, y, g: e("Mul", g, b),
        lambda e, a, b, y, g: e("Mul", g, a),
    ),
    "Sub": (7, lambda e, a, b, y, g: g, lambda e, a, b, y, g: e("Neg", g)),
}


def _of_binary(by_first: _Binary, by_second: _Binary) -> Build:
    def build(step: Step) -> Mapping[int, str]:
        made: dict[int, str] = {}
        for position, gradient in enumerate((by_first, by_second)):
            if position in step.wanted:
                full = gradient(step.emit, step.x(0), step.x(1), step.y, step.g)
                made[position] = step.sum_to(full, position)
        return made

    return build


def _pow(step: Step) -> Mapping[int, str]:
    e, made = step.emit, dict[int, str]()
    if 0 in step.wanted:
        by_base = _pow_by_base(step)
        if by_base is not None:
            made[0] = step.sum_to(by_base, 0)
    if 1 in step.wanted:
        base, exponent = step.x(0), step.x(1)
        # 0 ** b is 0 for any b > 0, so its logarithm must not make it NaN
        zero, one = e.scalar(0, base), e.scalar(1, base)
        safe = e("Where", e("Equal", base, zero), one, base)
        full = e("Mul", step.g, e("Mul", step.y, e("Log", safe)))
        if e.dtype(exponent) is not e.dtype(base):
            full = e.cast(full, exponent)
        made[1] = step.sum_to(full, 1)
    return made


def _pow_by_base(step: Step) -> str | None:
    """``g b a**(b-1)``; None for zero."""
    e, base, exponent, g = step.emit, step.x(0), step.x(1), step.g
    known = e.constant(exponent)
    if known is not None and known.size:
        if (known == 0).all():
            return None
        if (known == 1).all():
            return g
        if (known == 2).all():
            return e("Mul", g, e("Mul", base, e.scalar(2, base)))
    power = exponent
    if e.dtype(exponent) is not e.dtype(base):
        power = e.cast(exponent, base)
    one = e.scalar(1, base)
    less = e("Sub", power, one)
    if known is None or (known == 0).any():
        # the derivative of 0 ** 0 is 0, not 0 · 0 ** -1; both conditions, so that the
        # mixed second derivative is right elsewhere
        zero = e.scalar(0, base)
        both = e("And", e("Equal", base, zero), e("Equal", power, zero))
        less = e("Where", both, one, less)
    return e("Mul", g, e("Mul", power, e("Pow", base, less)))


# any number of inputs


def _sum(step: Step) -> Mapping[int, str]:
    return {position: step.sum_to(step.g, position) for position in sorted(step.wanted)}


def _mean(step: Step) -> Mapping[int, str]:
    e, count = step.emit, len(step.node.inputs)
    share = e("Div", step.g, e.scalar(count, step.y)) if count > 1 else step.g
    return {position: step.sum_to(share, position) for position in sorted(step.wanted)}


def _extreme(step: Step) -> Mapping[int, str]:
    """``Max`` and ``Min``: the inputs that reach the result share its gradient."""
    e, y = step.emit, step.y
    if len(step.node.inputs) == 1:
        return {0: step.g}
    masks = [
        e.cast(e("Equal", step.x(position), y), y)
        for position in range(len(step.node.inputs))
    ]
    share = e("Div", step.g, e.add_up(masks))
    return {
        position: step.sum_to(e("Mul", share, masks[position]), position)
        for position in sorted(step.wanted)
    }


def _where(step: Step) -> Mapping[int, str]:
    e, condition, g = step.emit, step.x(0), step.g
    zero, made = e.scalar(0, step.y), dict[int, str]()
    if 1 in step.wanted:
        made[1] = step.sum_to(e("Where", condition, g, zero), 1)
    if 2 in step.wanted:
        made[2] = step.sum_to(e("Where", condition, zero, g), 2)
    return made


def _clip(step: Step) -> Mapping[int, str]:
    """``Min(max, Max(x, min))``, undone from the outside in."""
    e, x, g, made = step.emit, step.x(), step.g, dict[int, str]()
    low, high = step.optional(1), step.optional(2)
    zero = e.scalar(0, x)
    if high is not None:
        inner = x if low is None else e("Max", x, low)
        over = e("Greater", inner, high)
        if 2 in step.wanted:
            made[2] = step.sum_to(e("Where", over, g, zero), 2)
        g = e("Where", over, zero, g)
    if low is not None:
        under = e("Less", x, low)
        if 1 in step.wanted:
            made[1] = step.sum_to(e("Where", under, g, zero), 1)
        g = e("Where", under, zero, g)
    made[0] = g
    return made


# along an axis


def _softmax(step: Step) -> Mapping[int, str]:
    e, y, g = step.emit, step.y, step.g
    total = e.reduce_sum(e("Mul", g, y), [step.attribute("axis", -1)])
    return {0: e("Mul", y, e("Sub", g, total))}


def _log_softmax(step: Step) -> Mapping[int, str]:
    e, g = step.emit, step.g
    total = e.reduce_sum(g, [step.attribute("axis", -1)])
    return {0: e("Sub", g, e("Mul", e("Exp", step.y), total))}


ELEMENTWISE: Final[Mapping[str, Rule]] = {
    **{name: Rule(since, _of_unary(by)) for name, (since, by) in _UNARY.items()},
    **{
        name: Rule(since, _of_binary(first, second))
        for name, (since, first, second) in _BINARY.items()
    },
    "Cast": Rule(6, _cast),
    "CastLike": Rule(15, _cast, passes=(0,)),
    "Ceil": Rule(1, _flat, passes=()),
    "Clip": Rule(11, _clip),
    "Dropout": Rule(7, _dropout, passes=(0,)),
    "Floor": Rule(1, _flat, passes=()),
    "LeakyRelu": Rule(6, _leaky_relu),
    "LogSoftmax": Rule(13, _log_softmax),
    "Max": Rule(8, _extreme),
    "Mean": Rule(8, _mean),
    "Min": Rule(8, _extreme),
    "Pow": Rule(7, _pow),
    "Round": Rule(11, _flat, passes=()),
    "Sign": Rule(9, _flat, passes=()),
    "Softmax": Rule(13, _softmax),
    "Sum": Rule(8, _sum),
    "Where": Rule(9, _where),
}
