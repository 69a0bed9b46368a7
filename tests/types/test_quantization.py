"""QuantizeLinear and its inverse in all types, to the bit, against exact numbers.

Products and quotients of two numbers of at most 24 bits are first computed in float64,
which has more than twice as many: rounding what it gives once more is as exact as
rounding once (Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

from onnxplug.ep import DataType

from .agreement import assert_same
from .formats import FLOATS, INTEGERS, POWERS, Array, decode, to_float
from .onnx_models import model, run, session, tensor
from .patterns import patterns

TIERS = (True, False)


def types_of(operator: str, variable: str) -> list[str]:
    """The element types that the newest version of an operator takes there."""
    (constraint,) = (
        each
        for each in defs.get_schema(operator).type_constraints
        if each.type_param_str == variable
    )
    texts = [text[7:-1].upper() for text in constraint.allowed_type_strs]
    return [str(DataType.from_onnx(TensorProto.DataType.Value(text))) for text in texts]


class Node(NamedTuple):
    """One call: its scale, its zero point, the type it gives, and its attributes."""

    scale: Array
    zero_point: Array | None
    target: str
    attributes: dict[str, Any]


def scale_of(name: str) -> Array:
    """A scale that no quotient by is exact, in the types that have such."""
    value = {POWERS: 0.125, "int32": 3}.get(name, 0.0123)
    return np.array(value, DataType(name).numpy)


def results_of(operator: str, x: Array, nodes: Sequence[Node]) -> list[list[Array]]:
    """What each of *nodes* gives, compiled as far as can be, and on arrays."""
    made, outputs, weights = [], [], []
    for place, node in enumerate(nodes):
        inputs = ["x", f"scale_{place}"]
        weights.append(numpy_helper.from_array(node.scale, inputs[1]))
        if node.zero_point is not None:
            inputs.append(f"zero_{place}")
            weights.append(numpy_helper.from_array(node.zero_point, inputs[2]))
        name = f"y_{place}"
        made.append(helper.make_node(operator, inputs, [name], **node.attributes))
        outputs.append(tensor(name, node.target))
    given = tensor("x", DataType.from_numpy(x.dtype))
    whole = model(made, [given], outputs, weights=weights)
    tiers = [run(whole, {"x": x}, compiled=tier) for tier in TIERS]
    return [[tier[each.name] for tier in tiers] for each in outputs]


# QuantizeLinear


def quantizations(scale: str) -> list[Node]:
    """All results that a scale of a type may give, with and without zero points."""
    found = []
    for target in types_of("QuantizeLinear", "T3"):
        number, dtype = DataType(target).onnx, DataType(target).numpy
        variants: list[dict[str, Any]] = [{}]
        if FLOATS.get(target, FLOATS["float64"]).bits == 8:
            variants.append({"saturate": 0})
        for attributes in variants:
            plain = {"output_dtype": number, **attributes}
            found.append(Node(scale_of(scale), None, target, plain))
            # of integers an odd one, which would turn ties around were it added first
            zero = np.array(1 if target in INTEGERS else 0, dtype)
            found.append(Node(scale_of(scale), zero, target, attributes))
    for precision in ("float32", "float16", "bfloat16"):
        attributes = {"precision": DataType(precision).onnx}
        zero = np.array(-7, np.int8)
        found.append(Node(scale_of(scale), zero, "int8", attributes))
    return found


def quotient(x: Array, scale: Array, precision: str) -> Array:
    """x / scale in the precision of a type; of integers alone, in none."""
    numbers, divisor = decode(x), decode(scale)
    with np.errstate(all="ignore"):
        if precision == "int32":
            return numbers / divisor
        exact = to_float(numbers, precision) / to_float(divisor, precision)
        return to_float(exact, precision)


def quantized(quotient: Array, node: Node) -> tuple[Array, Array]:
    """What the specification says, and of which elements: NaN is no integer."""
    zero = None if node.zero_point is None else float(decode(node.zero_point))
    if node.target not in INTEGERS:
        total = quotient if zero is None else quotient + zero
        saturate = bool(node.attributes.get("saturate", 1))
        result = to_float(total, node.target, saturate=saturate)
        return result, np.ones(result.shape, bool)
    low, high = INTEGERS[node.target].limits
    whole = np.clip(np.rint(quotient) + (zero or 0), low, high) + 0.0
    return np.where(np.isnan(whole), 0, whole), ~np.isnan(whole)


@pytest.mark.parametrize("scale", types_of("QuantizeLinear", "T2"))
@pytest.mark.parametrize("source", types_of("QuantizeLinear", "T1"))
def test_quantize(source: str, scale: str) -> None:
    x, nodes = patterns(source), quantizations(scale)
    quotients: dict[str, Array] = {}
    found = results_of("QuantizeLinear", x, nodes)
    for node, results in zip(nodes, found, strict=True):
        # powers of two have no precision to divide in: float32 has it
        precision = "float32" if scale == POWERS else scale
        if "precision" in node.attributes:
            precision = str(DataType.from_onnx(node.attributes["precision"]))
        if precision not in quotients:
            quotients[precision] = quotient(x, node.scale, precision)
        assert {result.dtype for result in results} == {DataType(node.target).numpy}
        assert_same(results, *quantized(quotients[precision], node), x)


# DequantizeLinear


def dequantizations(source: str) -> list[Node]:
    """All scales and results there may be, with and without zero points."""
    found = []
    for scale in types_of("DequantizeLinear", "T2"):
        targets = types_of("DequantizeLinear", "T3")
        for target in targets:
            attributes = {"output_dtype": DataType(target).onnx}
            if scale == target:
                attributes = {}
            zeros = [None]
            if source != "int32":
                zero = 1 if source in INTEGERS else 0
                zeros.append(np.array(zero, DataType(source).numpy))
            for zero_point in zeros:
                found.append(Node(scale_of(scale), zero_point, target, attributes))
    return found


def dequantized(x: Array, node: Node) -> Array:
    """The difference times the scale, computed in float32, in the type of the result.

    That is what "the output type determines the precision" comes to where both factors
    fit that type; where they do not, ONNX's reference and ONNX Runtime do so, too.
    """
    zero = 0.0 if node.zero_point is None else decode(node.zero_point)
    steps = to_float(decode(x) - zero, "float32")
    product = to_float(steps * decode(node.scale), "float32")
    return to_float(product, node.target)


@pytest.mark.parametrize("source", types_of("DequantizeLinear", "T1"))
def test_dequantize(source: str) -> None:
    x, nodes = patterns(source), dequantizations(source)
    found = results_of("DequantizeLinear", x, nodes)
    everywhere = np.ones(x.shape, bool)
    for node, results in zip(nodes, found, strict=True):
        assert {result.dtype for result in results} == {DataType(node.target).numpy}
        assert_same(results, dequantized(x, node), everywhere, x)


# DynamicQuantizeLinear


def single(number: Any) -> Array:
    return to_float(np.asarray(number, np.float64), "float32")


@pytest.mark.parametrize("compiled", TIERS, ids=["compiled", "arrays"])
def test_quantize_dynamically(compiled: bool) -> None:
    outputs = [
        tensor("y", "uint8"),
        tensor("scale", "float32", ()),
        tensor("zero_point", "uint8", ()),
    ]
    node = helper.make_node("DynamicQuantizeLinear", ["x"], [o.name for o in outputs])
    opened = session(
        model([node], [tensor("x", "float32")], outputs), compiled=compiled
    )
    random = np.random.default_rng(0)
    arrays = [random.normal(3 * n, 1 + abs(n), 200) for n in range(-4, 5)]
    # 255 steps of 1/2, so that quotients are ties; and all on one side of zero
    arrays += [np.arange(-40, 215) / 2 + 0.25, np.arange(256) / 2, -np.arange(256) / 2]
    arrays += [np.array([1e-40, -3e-40]), np.array([3e38, -1.0]), np.array([0.5])]
    for array in arrays:
        x = array.astype(np.float32)
        y, scale, zero_point = opened.run(None, {"x": x})
        numbers = decode(x)
        low, high = min(numbers.min(), 0.0), max(numbers.max(), 0.0)
        step = single(single(high - low) / 255)
        zero = np.rint(np.clip(single(0 - single(low / step)), 0, 255))
        steps = np.clip(np.rint(single(numbers / step)) + zero, 0, 255)
        assert (scale.dtype, zero_point.dtype) == (np.float32, np.uint8)
        assert (float(scale), float(zero_point)) == (float(step), float(zero))
        assert_same([y], steps, np.ones(x.shape, bool), x)
