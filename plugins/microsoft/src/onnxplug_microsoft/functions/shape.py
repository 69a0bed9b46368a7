"""Operators that ONNX took over later, with small differences."""

from __future__ import annotations

import numpy as np

from onnxplug.ep import DataType
from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import operator


@operator("Range", since=11)
def _range(body: Body, start: str, limit: str, delta: str | None = None) -> str:
    """Numbers may be scalars or of shape [1]."""
    step = body.number(1, start, limit) if delta is None else body.scalar(delta)
    return body.op("Range", body.scalar(start), body.scalar(limit), step)


@operator("Trilu", since=14)
def _trilu(body: Body, X: str, k: str | None = None, *, upper: int = 1) -> str:
    diagonal = None if k is None else body.scalar(k)
    return body.op("Trilu", X, diagonal, upper=upper)


@operator("Pad", since=11)
def _pad(
    body: Body,
    data: str,
    pads: str,
    value: str | None = None,
    *,
    mode: str = "constant",
) -> str:
    """Pads may be of shape [1, n], the value of shape [1]."""
    flat = body.reshape(pads, -1)
    inputs = (data, flat) if value is None else (data, flat, body.scalar(value))
    return body.op("Pad", *inputs, mode=mode)


@operator("ExpandDims")
def _expand_dims(body: Body, X: str, axis: str) -> str:
    content = body.content(axis)
    if content is not None:
        return body.unsqueeze(X, int(content.reshape(-1)[0]))
    if body.opset < 13:
        raise NoFunction(
            f"its input 'axis' is not a constant, in opset {body.opset} of ai.onnx"
        )
    return body.op("Unsqueeze", X, body.cast(body.reshape(axis, 1), DataType.INT64))


@operator("GatherND", since=11)
def _gather_nd(body: Body, data: str, indices: str) -> str:
    return body.op("GatherND", data, body.cast(indices, DataType.INT64))


@operator("TorchEmbedding")
def _torch_embedding(
    body: Body,
    weight: str,
    indices: str,
    padding_idx: str | None = None,
    scale_grad_by_freq: str | None = None,
) -> str:
    """The optional inputs concern gradients only."""
    return body.op("Gather", weight, indices, axis=0)


@operator("ComplexMul")
def _complex_mul(body: Body, A: str, B: str) -> str:
    return _complex_product(body, A, B, "Sub", "Add")


@operator("ComplexMulConj")
def _complex_mul_conj(body: Body, A: str, B: str) -> str:
    return _complex_product(body, A, B, "Add", "Sub")


def _complex_product(body: Body, a: str, b: str, real: str, imaginary: str) -> str:
    """Pairs of real and imaginary parts, in the last axis, multiplied.

    Args:
        real: how the products of the parts are put together for the real part.
        imaginary: how those of imaginary · real and real · imaginary are.
    """
    a_real, a_imaginary = body.split(a, 2, -1)
    b_real, b_imaginary = body.split(b, 2, -1)
    parts = (
        body.op(
            real,
            body.op("Mul", a_real, b_real),
            body.op("Mul", a_imaginary, b_imaginary),
        ),
        body.op(
            imaginary,
            body.op("Mul", a_imaginary, b_real),
            body.op("Mul", a_real, b_imaginary),
        ),
    )
    return body.op("Concat", *parts, axis=-1)


@operator("IsAllFinite", since=10)
def _is_all_finite(
    body: Body, input: str, *, isinf_only: int = 0, isnan_only: int = 0
) -> str:
    """Of one input; the result is a scalar."""
    if isinf_only and isnan_only:
        raise NoFunction("its attributes 'isinf_only' and 'isnan_only' are both set")
    bad = None
    flat = body.reshape(input, -1)
    if body.dtype(input) in (DataType.FLOAT16, DataType.BFLOAT16):
        flat = body.cast(flat, DataType.FLOAT32)  # IsInf took them late
    for op_type, wanted in (("IsInf", not isnan_only), ("IsNaN", not isinf_only)):
        if wanted:
            found = body.op(op_type, flat)
            bad = found if bad is None else body.op("Or", bad, found)
    assert bad is not None
    # an empty input has nothing bad in it
    zero = body.constant(np.zeros(1, np.float32))
    counted = body.op("Concat", body.cast(bad, DataType.FLOAT32), zero, axis=0)
    worst = body.reduce("ReduceMax", counted, 0, keepdims=0)
    return body.op("Not", body.cast(worst, DataType.BOOL))
