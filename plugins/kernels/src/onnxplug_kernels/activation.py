"""Activation functions, and Dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug_kernels.arrays import in_computing_dtype, require_extent
from onnxplug_kernels.elementwise import (
    as_array,
    declare,
    widened,
    with_consumed_inputs,
)
from onnxplug_kernels.registry import PORTABLE, operator

# Where one formula serves both signs, maximum and minimum select: several times faster
# than numpy's where, and NaN passes through them.


def relu(xp: Any, x: Any) -> Any:
    # bfloat16 does not take a Python number without turning into float32
    zero = xp.zeros((), dtype=x.dtype) if xp.is_narrow(x.dtype) else 0
    return as_array(xp, xp.maximum(x, zero))


def leaky_relu(xp: Any, x: Any, *, alpha: float = 0.009999999776482582) -> Any:
    if 0 < alpha <= 1:
        return xp.maximum(x, alpha * x)
    return xp.where(x < 0, alpha * x, x)


def elu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    # not as a sum: an infinite alpha concerns negative elements only
    return xp.where(x < 0, alpha * xp.expm1(xp.minimum(x, 0)), x)


def selu(
    xp: Any,
    x: Any,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Any:
    return gamma * elu(xp, x, alpha=alpha)


def celu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return xp.maximum(x, 0) + xp.minimum(alpha * xp.expm1(x / alpha), 0)


def sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def hard_sigmoid(
    xp: Any, x: Any, *, alpha: float = 0.20000000298023224, beta: float = 0.5
) -> Any:
    return xp.maximum(xp.minimum(alpha * x + beta, 1), 0)


def hard_swish(xp: Any, x: Any) -> Any:
    return x * hard_sigmoid(xp, x, alpha=1 / 6, beta=0.5)


def swish(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return x * sigmoid(xp, x if alpha == 1 else alpha * x)


def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), rearranged so that exp does not overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def softsign(xp: Any, x: Any) -> Any:
    return x / (1 + xp.abs(x))


def mish(xp: Any, x: Any) -> Any:
    """x tanh(log(1 + e)) for e = exp(x), which is x n / (n + 2) for n = e (e + 2).

    From 20 on the quotient rounds to 1, in float64 too.
    """
    exponential = xp.exp(xp.minimum(x, 20))
    numerator = exponential * (exponential + 2)
    return x * (numerator / (numerator + 2))


def gelu(xp: Any, x: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + xp.tanh(inner))
    if approximate != "none":
        raise ValueError(f"approximate is {approximate!r}, expected none or tanh")
    return 0.5 * x * (1 + xp.erf(x * math.sqrt(0.5)))


def thresholded_relu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return xp.where(x > alpha, x, xp.zeros((), dtype=x.dtype))


declare("Relu", relu, since=1, legacy=with_consumed_inputs)

for _op_type, _function in (
    ("Elu", elu),
    ("HardSigmoid", hard_sigmoid),
    ("LeakyRelu", leaky_relu),
    ("Sigmoid", sigmoid),
):
    declare(_op_type, widened(_function), since=1, legacy=with_consumed_inputs)

for _op_type, _function, _since in (
    ("Celu", celu, 12),
    ("Gelu", gelu, 20),
    ("HardSwish", hard_swish, 14),
    ("Mish", mish, 18),
    ("Selu", selu, 6),
    ("Softplus", softplus, 1),
    ("Softsign", softsign, 1),
    ("Swish", swish, 24),
    ("ThresholdedRelu", thresholded_relu, 10),
):
    declare(_op_type, widened(_function), since=_since)


@operator("Selu", since=1, until=5)
def selu_1(
    xp: Any,
    x: Any,
    *,
    alpha: float = 1.673200011253357,
    gamma: float = 1.0506999492645264,
    consumed_inputs: Any = None,
) -> Any:
    return _selu(xp, x, alpha=alpha, gamma=gamma)


_selu = widened(selu)
_swish = widened(swish)


@operator("SwiGLU", since=28, portable=PORTABLE)
def swiglu(xp: Any, a: Any, b: Any, *, alpha: float = 1.0) -> Any:
    """Swish of *a*, in the dtype of *a*, times *b*; there is no broadcasting."""
    if a.shape != b.shape:
        raise ValueError(
            f"shapes {a.shape} and {b.shape} differ; SwiGLU needs equal ones"
        )
    return as_array(xp, xp.multiply(_swish(xp, a, alpha=alpha), b))


@operator("Shrink", since=9)
def shrink(xp: Any, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """In integers the sum with a *bias* that is not whole is truncated toward zero."""
    dtype = x.dtype
    wide = dtype if xp.kind(dtype) == "f" or bias.is_integer() else xp.float64
    offset = xp.astype(xp.asarray(bias, dtype=xp.float64), wide)
    shrunk = xp.where(
        x > lambd,
        x - offset,
        xp.where(x < -lambd, x + offset, xp.zeros((), dtype=wide)),
    )
    return xp.astype(shrunk, dtype, copy=False)


@operator("PRelu", since=7)
def prelu(xp: Any, x: Any, slope: Any) -> Any:
    require_extent(x.shape, slope, what="slope")
    zero = xp.zeros((), dtype=x.dtype)
    return as_array(xp, xp.maximum(x, zero) + slope * xp.minimum(x, zero))


@operator("PRelu", since=6, until=6)
def prelu_6(xp: Any, x: Any, slope: Any) -> Any:
    """A *slope* of rank 1 has one number for all channels, or one for each."""
    if xp.size(slope) == 1:
        slope = xp.reshape(slope, ())
    elif slope.ndim == 1 and x.ndim > 1:
        slope = xp.reshape(slope, (-1, *(1,) * (x.ndim - 2)))
    return prelu(xp, x, slope)


operator("PRelu", since=1, until=5)(with_consumed_inputs(prelu_6))


@operator("Dropout", since=12)
def dropout(
    xp: Any,
    x: Any,
    ratio: Any = None,
    training_mode: Any = None,
    *,
    seed: int | None = None,
    output_count: int = 2,
) -> Any:
    rate = 0.5 if ratio is None else float(xp.item(ratio))
    _check_ratio(rate)
    if training_mode is None or not bool(xp.item(training_mode)) or rate == 0:
        return _keep_all(xp, x, xp.bool, output_count)
    return _drop(xp, x, rate, seed)


@operator("Dropout", since=10, until=11)
def dropout_10(xp: Any, x: Any, *, ratio: float = 0.5, output_count: int = 2) -> Any:
    return _keep_all(xp, x, xp.bool, output_count)


@operator("Dropout", since=7, until=9)
def dropout_7(xp: Any, x: Any, *, ratio: float = 0.5, output_count: int = 2) -> Any:
    return _keep_all(xp, x, x.dtype, output_count)


@operator("Dropout", since=6, until=6)
def dropout_6(
    xp: Any, x: Any, *, is_test: int = 0, ratio: float = 0.5, output_count: int = 2
) -> Any:
    """Drops unless the model says *is_test*: there is no other sign of inference."""
    if is_test or ratio == 0:
        return _keep_all(xp, x, x.dtype, output_count)
    result, mask = _drop(xp, x, ratio, seed=None)
    return result, xp.astype(mask, x.dtype)


operator("Dropout", since=1, until=5)(with_consumed_inputs(dropout_6))


def _check_ratio(ratio: float) -> None:
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio is {ratio}, expected at least 0 and less than 1")


def _keep_all(xp: Any, x: Any, mask_dtype: Any, output_count: int) -> Any:
    return x if output_count < 2 else (x, xp.ones(x.shape, dtype=mask_dtype))


def _drop(xp: Any, x: Any, ratio: float, seed: int | None) -> tuple[Any, Any]:
    _check_ratio(ratio)
    # the legacy generator, because it is what the ONNX backend suite's data come from
    generator = np.random.RandomState(None if seed is None else seed % 2**32)
    mask = xp.from_numpy(np.asarray(generator.uniform(0, 1, x.shape) >= ratio))
    factors = xp.astype(mask, xp.float64) * (1 / (1 - ratio))
    return as_array(xp, in_computing_dtype(_multiply, xp, x, factors=factors)), mask


def _multiply(xp: Any, x: Any, factors: Any) -> Any:
    return x * xp.astype(factors, x.dtype)
