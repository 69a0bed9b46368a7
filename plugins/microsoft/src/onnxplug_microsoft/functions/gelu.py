"""The Gaussian error linear unit, with what is fused before and after it."""

from __future__ import annotations

import math
from typing import Final

from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import operator

_ERF: Final = 9
"""The opset that brought the operator."""


@operator("Gelu")
def _gelu(body: Body, x: str) -> str:
    return gelu(body, x, x)


@operator("BiasGelu")
def _bias_gelu(body: Body, a: str, b: str) -> str:
    return gelu(body, body.op("Add", a, b), a, b)


@operator("FastGelu")
def _fast_gelu(body: Body, x: str, bias: str | None = None) -> str:
    biased = x if bias is None else body.op("Add", x, bias)
    return fast_gelu(body, biased, x, bias)


@operator("GemmFastGelu")
def _gemm_fast_gelu(body: Body, x: str, w: str, bias: str | None = None) -> str:
    product = body.op("MatMul", x, w)
    if bias is not None:
        product = body.op("Add", product, bias)
    return fast_gelu(body, product, x, w)


@operator("QuickGelu")
def _quick_gelu(body: Body, x: str, *, alpha: float = 1.702) -> str:
    scaled = x if alpha == 1 else body.op("Mul", x, body.number(alpha, x))
    return body.op("Mul", x, body.op("Sigmoid", scaled))


@operator("BiasSplitGelu")
def _bias_split_gelu(body: Body, x: str, bias: str) -> str:
    left, right = body.split(body.op("Add", x, bias), 2, -1)
    return body.op("Mul", left, gelu(body, right, x, bias))


@operator("BiasAdd")
def _bias_add(body: Body, x: str, bias: str, skip: str) -> str:
    return body.op("Add", body.op("Add", x, bias), skip)


@operator("BiasSoftmax")
def _bias_softmax(
    body: Body, data: str, bias: str, *, is_inner_broadcast: int, axis: int = 1
) -> str:
    rank = body.rank(data)
    if axis % rank != rank - 1:
        raise NoFunction(
            f"its attribute 'axis' is {axis} and its input has rank {rank}; "
            "its function is for the last axis"
        )
    return body.softmax(body.op("Add", data, bias), rank)


@operator("BiasDropout")
def _bias_dropout(
    body: Body,
    data: str,
    bias: str,
    residual: str | None = None,
    ratio: str | None = None,
    training_mode: str | None = None,
    *,
    seed: int | None = None,
) -> str:
    if training_mode is not None:
        training = body.content(training_mode)
        if training is None or training.any():
            raise NoFunction("its input 'training_mode' is not the constant false")
    total = body.op("Add", data, bias)
    return total if residual is None else body.op("Add", total, residual)


def gelu(body: Body, x: str, *like: str | None) -> str:
    """x · Φ(x), where Φ is the normal distribution's.

    Args:
        like: inputs of the element type of *x*.

    Raises:
        NoFunction: this opset has no Erf.
    """
    if body.opset >= 20:
        return body.op("Gelu", x)
    if body.opset < _ERF:
        raise NoFunction(
            f"its function needs opset {_ERF} of ai.onnx, and the model imports "
            f"{body.opset}; convert the model with onnx.version_converter"
        )
    erf = body.op("Erf", body.op("Mul", x, body.number(math.sqrt(0.5), *like)))
    half = body.op("Mul", x, body.number(0.5, *like))
    return body.op("Mul", half, body.op("Add", erf, body.number(1, *like)))


def fast_gelu(body: Body, x: str, *like: str | None) -> str:
    """x · (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, as :func:`gelu`."""
    if body.opset >= 20:
        return body.op("Gelu", x, approximate="tanh")
    factor = math.sqrt(2 / math.pi)
    square = body.op("Mul", body.op("Mul", x, x), body.number(factor * 0.044715, *like))
    inner = body.op("Mul", x, body.op("Add", square, body.number(factor, *like)))
    half = body.op("Mul", x, body.number(0.5, *like))
    grown = body.op("Add", body.op("Tanh", inner), body.number(1, *like))
    return body.op("Mul", half, grown)
