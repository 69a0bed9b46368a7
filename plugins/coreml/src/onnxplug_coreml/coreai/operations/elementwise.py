"""Primitives that treat each element alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug_coreml.coreai.registry import emits
from onnxplug_coreml.coreai.writer import Writer
from onnxplug_coreml.lowering.program import Operation

_NAMES: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf",
            "exp", "log", "relu", "rsqrt", "sigmoid", "silu", "sin", "sinh", "sqrt",
            "tan", "tanh",
        )
    },
    **{name: f"{name}_" for name in ("abs", "round")},
    **{
        name: f"broadcasting_{name}"
        for name in (
            "add", "divide", "maximum", "minimum", "mul", "pow", "sub",
            "equal", "not_equal", "greater",
        )
    },
    "logical_not": "not_",
    **{f"logical_{name}": f"broadcasting_{name}" for name in ("and", "or", "xor")},
    "select": "broadcasting_where",
}  # fmt: skip
"""What Core AI calls those that it has itself."""


@emits(*_NAMES)
def _directly(writer: Writer, operation: Operation, *operands: Any) -> Any:
    return getattr(writer.authoring, _NAMES[operation.primitive])(*operands)


@emits("floor")
def _floor(writer: Writer, operation: Operation, x: Any) -> Any:
    # the engine has floor_divide, but that of infinity is NaN
    a = writer.authoring
    near = a.round_(x)
    above = a.cast(a.broadcasting_greater(near, x), writer.scalar_type(operation))
    return a.broadcasting_sub(near, above)


@emits("ceil")
def _ceil(writer: Writer, operation: Operation, x: Any) -> Any:
    return neg(writer, operation, _floor(writer, operation, neg(writer, operation, x)))


@emits("neg")
def neg(writer: Writer, operation: Operation, x: Any) -> Any:
    """Of a type as the operation's first operand."""
    return writer.authoring.broadcasting_mul(x, writer.like(operation, -1))


@emits("sign")
def _sign(writer: Writer, operation: Operation, x: Any) -> Any:
    a = writer.authoring
    zero, one, minus = (writer.like(operation, number) for number in (0, 1, -1))
    below = a.broadcasting_where(a.broadcasting_greater(zero, x), minus, x)
    return a.broadcasting_where(a.broadcasting_greater(x, zero), one, below)


@emits("greater_equal")
def _greater_equal(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    a = writer.authoring
    return a.broadcasting_or(a.broadcasting_greater(x, y), a.broadcasting_equal(x, y))


@emits("less")
def _less(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    return writer.authoring.broadcasting_greater(y, x)


@emits("less_equal")
def _less_equal(writer: Writer, operation: Operation, x: Any, y: Any) -> Any:
    a = writer.authoring
    return a.broadcasting_or(a.broadcasting_greater(y, x), a.broadcasting_equal(x, y))


@emits("gelu")
def _gelu(writer: Writer, operation: Operation, x: Any, *, approximate: bool) -> Any:
    return writer.authoring.gelu(x, approximate="tanh" if approximate else "none")


@emits("identity")
def _identity(writer: Writer, operation: Operation, x: Any) -> Any:
    kind = operation.outputs[0]
    return writer.authoring.transpose(x, writer.counts(range(kind.rank)))


@emits("cast")
def _cast(writer: Writer, operation: Operation, x: Any, *, dtype: ep.DataType) -> Any:
    return writer.authoring.cast(x, dtype.numpy.type)
