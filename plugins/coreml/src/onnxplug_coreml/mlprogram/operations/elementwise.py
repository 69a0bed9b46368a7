"""Primitives on each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug_coreml.mlprogram.operations.movement import broadcast_to
from onnxplug_coreml.mlprogram.registry import EMITTERS, emits

_UNARY: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            "abs", "acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
            "floor", "logical_not", "relu", "round", "sigmoid", "sign", "silu", "sin",
            "sinh", "sqrt", "tan", "tanh",
        )
    },
}  # fmt: skip

_BINARY: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            "add", "maximum", "minimum", "mul", "pow", "sub", "logical_and",
            "logical_or", "logical_xor", "equal", "not_equal", "greater",
            "greater_equal", "less", "less_equal",
        )
    },
    "divide": "real_div",
    "floor_divide": "floor_div",
    "modulo": "mod",
}  # fmt: skip


def _unary(name: str) -> Callable[..., Any]:
    return lambda writer, operation, x: getattr(writer.mb, name)(x=x)


def _binary(name: str) -> Callable[..., Any]:
    return lambda writer, operation, x, y: getattr(writer.mb, name)(x=x, y=y)


EMITTERS.update({name: _unary(target) for name, target in _UNARY.items()})
EMITTERS.update({name: _binary(target) for name, target in _BINARY.items()})


@emits("log", "rsqrt")
def _without_epsilon(writer: Any, operation: Any, x: Any) -> Any:
    target = getattr(writer.mb, operation.primitive)
    return target(x=x, epsilon=writer.like(x, 0))


@emits("neg")
def _neg(writer: Any, operation: Any, x: Any) -> Any:
    return writer.mb.mul(x=x, y=writer.like(x, -1))


@emits("asinh")
def _asinh(writer: Any, operation: Any, x: Any) -> Any:
    """By atanh for small ones, and by log where that would lose digits or overflow."""
    mb, one = writer.mb, writer.like(x, 1)
    size = mb.abs(x=x)
    low, high = mb.minimum(x=size, y=one), mb.maximum(x=size, y=one)
    root = mb.sqrt(x=mb.add(x=mb.square(x=low), y=one))
    small = mb.atanh(x=mb.real_div(x=low, y=root))
    inverse = mb.real_div(x=one, y=high)
    share = mb.add(x=mb.sqrt(x=mb.add(x=mb.square(x=inverse), y=one)), y=one)
    zero = writer.like(x, 0)
    large = mb.add(x=mb.log(x=high, epsilon=zero), y=mb.log(x=share, epsilon=zero))
    found = mb.select(cond=mb.less(x=size, y=one), a=small, b=large)
    return mb.mul(x=mb.sign(x=x), y=found)


@emits("acosh")
def _acosh(writer: Any, operation: Any, x: Any) -> Any:
    """By atanh near 1, and by log where that would lose digits or overflow."""
    mb, one, two, zero = writer.mb, *(writer.like(x, n) for n in (1, 2, 0))
    below = mb.sqrt(x=mb.sub(x=x, y=one))
    ratio = mb.mul(x=below, y=mb.real_div(x=mb.sqrt(x=mb.add(x=x, y=one)), y=x))
    share = mb.log(x=mb.add(x=ratio, y=one), epsilon=zero)
    large = mb.add(x=mb.log(x=x, epsilon=zero), y=share)
    return mb.select(cond=mb.less(x=x, y=two), a=mb.atanh(x=ratio), b=large)


@emits("equal", "not_equal")
def _equal(writer: Any, operation: Any, x: Any, y: Any) -> Any:
    """Of bools by exclusive or: MIL compares numbers only."""
    if writer.kind(operation).dtype is not ep.DataType.BOOL:
        return getattr(writer.mb, operation.primitive)(x=x, y=y)
    differ = writer.mb.logical_xor(x=x, y=y)
    if operation.primitive == "not_equal":
        return differ
    return writer.mb.logical_not(x=differ)


@emits("gelu")
def _gelu(writer: Any, operation: Any, x: Any, *, approximate: bool) -> Any:
    return writer.mb.gelu(x=x, mode="TANH_APPROXIMATION" if approximate else "EXACT")


_CASTS: Final = {
    ep.DataType.BOOL: "bool",
    ep.DataType.FLOAT16: "fp16",
    ep.DataType.FLOAT32: "fp32",
    ep.DataType.INT32: "int32",
}


@emits("cast")
def _cast(writer: Any, operation: Any, x: Any, *, dtype: ep.DataType) -> Any:
    if dtype is ep.DataType.BOOL and writer.kind(operation).dtype is not dtype:
        return writer.mb.not_equal(x=x, y=writer.like(x, 0))
    return writer.mb.cast(x=x, dtype=_CASTS[dtype])


@emits("select")
def _select(writer: Any, operation: Any, condition: Any, x: Any, y: Any) -> Any:
    """Chosen among values of the result's shape: MIL infers it of these alone."""
    shape = operation.outputs[0].shape
    operands = []
    for at, each in ((1, x), (2, y)):
        known = writer.kind(operation, at).shape
        operands.append(
            each if known == shape else broadcast_to(writer, each, known, shape)
        )
    return writer.mb.select(cond=condition, a=operands[0], b=operands[1])
