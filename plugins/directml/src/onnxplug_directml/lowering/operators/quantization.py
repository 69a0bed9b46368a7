"""Quantisation, and products and sums of codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.activation import activated
from onnxplug_directml.lowering.operators.arithmetic import scaled
from onnxplug_directml.lowering.operators.product import matmul_integer
from onnxplug_directml.lowering.operators.reduction import reduced


@lowers("QuantizeLinear")
@lowers("QuantizeLinear", domain=MICROSOFT)
def _quantize_linear(call: Call) -> Value:
    build, x, scale = call.build, call.operand(0), call.operand(1)
    call.ignore("saturate", "output_dtype", "precision")  # the output's type tells
    codes = call.output_dtype()
    if x.dtype is not ep.DataType.INT32 and scale.dtype is not x.dtype:
        x = build.cast(x, scale.dtype)
    zero = call.optional(2) or build.scalar(0, codes)
    seen, (scale, zero) = _blocks(call, x, scale, zero)
    return build.reshape(quantized(build, seen, scale, zero), x.shape)


@lowers("DequantizeLinear")
@lowers("DequantizeLinear", domain=MICROSOFT)
def _dequantize_linear(call: Call) -> Value:
    build, x, scale = call.build, call.operand(0), call.operand(1)
    call.ignore("output_dtype")
    zero = call.optional(2) or build.scalar(0, x.dtype)
    seen, (scale, zero) = _blocks(call, x, scale, zero)
    made = build.reshape(dequantized(build, seen, scale, zero), x.shape)
    return build.cast(made, call.output_dtype())


def _blocks(
    call: Call, x: Value, scale: Value, zero: Value
) -> tuple[Value, tuple[Value, Value]]:
    """*x* and its scales and zero points in shapes that go together.

    There is one of them for all elements, or one along an axis, or one for each block
    along it; blocks get a dimension of their own.
    """
    build = call.build
    size = call.attribute("block_size", 0)
    if scale.size == 1 and not size:
        call.ignore("axis")
        return x, (build.reshape(scale, ()), build.reshape(zero, ()))
    axis = call.axis(x.rank, 1)
    if not size:
        ones = (1,) * (x.rank - axis - 1)
        shape = (scale.size, *ones)
        zero = build.broadcast_to(zero, scale.shape)
        return x, (build.reshape(scale, shape), build.reshape(zero, shape))
    count = scale.shape[axis] if scale.rank == x.rank else 0
    if count * size != x.shape[axis]:
        raise call.refuse_attribute("block_size", "blocks that are all of one size")
    zero = build.broadcast_to(zero, scale.shape)
    shape = (*scale.shape[: axis + 1], 1, *scale.shape[axis + 1 :])
    blocks = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    return build.reshape(x, blocks), (
        build.reshape(scale, shape),
        build.reshape(zero, shape),
    )


def quantized(build: Builder, x: Value, scale: Value, zero: Value) -> Value:
    """Codes of *x*, of the type of *zero*; with broadcasting."""
    scale, zero = (build.broadcast_to(each, x.shape) for each in (scale, zero))
    return build(
        "ELEMENT_WISE_QUANTIZE_LINEAR", InputTensor=x, ScaleTensor=scale,
        ZeroPointTensor=zero, OutputTensor=Result(zero.dtype, x.shape),
    )  # fmt: skip


def dequantized(build: Builder, x: Value, scale: Value, zero: Value) -> Value:
    """What codes stand for, in the type of *scale*; with broadcasting."""
    scale, zero = (build.broadcast_to(each, x.shape) for each in (scale, zero))
    return build(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR", InputTensor=x, ScaleTensor=scale,
        ZeroPointTensor=zero, OutputTensor=Result(scale.dtype, x.shape),
    )  # fmt: skip


@lowers("DynamicQuantizeLinear")
def _dynamic_quantize_linear(call: Call) -> Sequence[Value | None]:
    return _dynamic(call.build, call.operand(0))


def _dynamic(build: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Codes of 8 bits without a sign, their scale and zero point, by ONNX's rule.

    The formula that ``DML_DYNAMIC_QUANTIZE_LINEAR_OPERATOR_DESC`` is documented with
    lets 0 be out of range, unlike ONNX's.
    """
    axes = range(x.rank)
    nothing = build.scalar(0, x.dtype)
    least = build.binary(
        "ELEMENT_WISE_MIN", reduced(build, "MIN", x, axes, keep=False), nothing
    )
    most = build.binary(
        "ELEMENT_WISE_MAX", reduced(build, "MAX", x, axes, keep=False), nothing
    )
    codes = float(np.iinfo(np.uint8).max)
    reach = build.binary("ELEMENT_WISE_SUBTRACT", most, least)
    scale = scaled(build, reach, 1 / codes)
    # where all elements are 0, they are so by any scale
    is_some = build.cast(reach, ep.DataType.BOOL)
    scale = build.select(is_some, scale, build.scalar(1, x.dtype))
    zero = quantized(
        build, build.unary("ELEMENT_WISE_NEGATE", least), scale,
        build.scalar(0, ep.DataType.UINT8),
    )  # fmt: skip
    return quantized(build, x, scale, zero), scale, zero


# ONNX Runtime's


@lowers("MatMulIntegerToFloat", domain=MICROSOFT)
def _mat_mul_integer_to_float(call: Call) -> Value:
    zeros = call.optional(4), call.optional(5)
    return _to_float(
        call, call.operand(0), call.operand(1), call.operand(2), call.operand(3), zeros,
        call.optional(6),
    )  # fmt: skip


@lowers("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_quantize_mat_mul(call: Call) -> Value:
    codes, scale, zero = _dynamic(call.build, call.operand(0))
    zeros = zero, call.optional(3)
    return _to_float(
        call, codes, call.operand(1), scale, call.operand(2), zeros, call.optional(4)
    )


def _to_float(
    call: Call,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    zeros: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    """A product of codes in floats."""
    build = call.build
    if a_scale.size != 1 or b_scale.rank > 1:
        raise Refused(
            ep.RefusalCode.OTHER, "takes one scale of A, and one or a row of them of B"
        )
    total = build.cast(matmul_integer(call, a, b, *zeros), a_scale.dtype)
    scale = build.binary("ELEMENT_WISE_MULTIPLY", build.reshape(a_scale, ()), b_scale)
    made = build.binary("ELEMENT_WISE_MULTIPLY", total, scale)
    return made if bias is None else build.binary("ELEMENT_WISE_ADD", made, bias)


@lowers("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _q_linear_binary(call: Call) -> Value:
    build = call.build
    a, b = _numbers(call, 0), _numbers(call, 3)
    kind = "ADD" if call.op_type == "QLinearAdd" else "MULTIPLY"
    made = build.binary(f"ELEMENT_WISE_{kind}", a, b)
    return _codes(call, made, 6)


@lowers(
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", domain=MICROSOFT
)
def _q_linear_unary(call: Call) -> Value:
    build = call.build
    rules: dict[str, Callable[[Value], Value]] = {
        "QLinearSigmoid": lambda x: activated(build, "SIGMOID", x),
        "QLinearLeakyRelu": lambda x: activated(
            build, "LEAKY_RELU", x, Alpha=call.attribute("alpha", 0.01)
        ),
        "QLinearGlobalAveragePool": lambda x: _global_average(call, x),
    }
    return _codes(call, rules[call.op_type](_numbers(call, 0)), 3)


def _global_average(call: Call, x: Value) -> Value:
    last = call.attribute("channels_last", 0)
    axes = range(1, x.rank - 1) if last else range(2, x.rank)
    return reduced(call.build, "AVERAGE", x, axes, keep=True)


def _numbers(call: Call, position: int) -> Value:
    """What the codes at *position* stand for; scale and zero point follow them."""
    build, x, scale = call.build, call.operand(position), call.operand(position + 1)
    zero = call.optional(position + 2) or build.scalar(0, x.dtype)
    return dequantized(build, x, _one(build, scale), _one(build, zero))


def _codes(call: Call, x: Value, position: int) -> Value:
    """Codes of *x* by the scale at *position* and the zero point after it."""
    build = call.build
    zero = call.optional(position + 1) or build.scalar(0, call.output_dtype())
    return quantized(build, x, _one(build, call.operand(position)), _one(build, zero))


def _one(build: Builder, x: Value) -> Value:
    if x.size != 1:
        raise Refused(
            ep.RefusalCode.OTHER, f"scales of {list(x.shape)}; takes one for all"
        )
    return build.reshape(x, ())
