"""Element-wise operators of the compiled tier against their formulas."""

from __future__ import annotations

import functools
import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from ....kernels.tests.properties.comparison import (
    assert_near,
    assert_same,
    objects,
    wide,
    wrapped,
)
from ....kernels.tests.properties.formulas import (
    ACTIVATIONS,
    ROUNDED,
    ROUNDING,
    TRANSCENDENTAL,
    quotient,
    remainder,
    without_undefined_quotients,
)
from ....kernels.tests.properties.strategies import (
    Draw,
    Dtype,
    dtypes_of,
    examples,
    is_float,
    shapes_within,
)
from .compiled import Compiled, Node, shapes

FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [FLOAT32, np.dtype(np.float16), BFLOAT16, np.dtype(np.float64)]
INTEGERS = [np.dtype(name) for name in ("int64", "int32", "uint8", "int8")]
FORMULAS = ROUNDING | TRANSCENDENTAL | ACTIVATIONS
# of what is computed in float32 and then rounded
FEW = "Abs Neg Relu Sigmoid Tanh Erf Gelu Round Sqrt Exp".split()
EXACT = "Abs Neg Relu Ceil Floor Round Reciprocal Sqrt Sign".split()


@functools.cache
def functions(dtype: Dtype) -> Compiled:
    known = [n for n in FORMULAS if dtype in dtypes_of(n)]
    if dtype != FLOAT32:
        wanted = EXACT if dtype == np.float64 else FEW
        known = [name for name in known if name in wanted]
    nodes = {name: Node(name, ("x",), dtype) for name in known}
    nodes["IsNaN"] = Node("IsNaN", ("x",), bool)
    if dtype == FLOAT32:
        nodes["IsInf"] = Node("IsInf", ("x",), bool)
    return Compiled(nodes, {"x": dtype})


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@examples(15)
def test_functions(dtype: Dtype, draw: Draw) -> None:
    x = draw.array(dtype, draw.one_of(shapes()))
    found = functions(dtype).run(x=x)
    assert_same(found.pop("IsNaN"), np.isnan(wide(x)))
    if "IsInf" in found:
        assert_same(found.pop("IsInf"), np.isinf(wide(x)))
    for name, result in found.items():
        FORMULAS[name].check(result, x)


FLOAT_ARITHMETIC: dict[str, Any] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Max": np.maximum,
    "Min": np.minimum,
}
COMPARISONS: dict[str, Any] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "LessOrEqual": operator.le,
}


@functools.cache
def of_two_floats(dtype: Dtype) -> Compiled:
    nodes = {name: Node(name, ("a", "b"), dtype) for name in FLOAT_ARITHMETIC}
    nodes |= {name: Node(name, ("a", "b"), bool) for name in COMPARISONS}
    if dtype != np.float64:
        nodes["Pow"] = Node("Pow", ("a", "b"), dtype)
    return Compiled(nodes, {"a": dtype, "b": dtype})


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@examples(15)
def test_two_floats(dtype: Dtype, draw: Draw) -> None:
    within = shapes_within(draw.one_of(shapes()))
    a, b = (draw.array(dtype, draw.one_of(within)) for _ in range(2))
    one, two = wide(a), wide(b)
    with np.errstate(all="ignore"):
        for name, result in of_two_floats(dtype).run(a=a, b=b).items():
            if name in COMPARISONS:
                assert_same(result, np.asarray(COMPARISONS[name](one, two)))
            elif name == "Pow":
                assert_near(result, np.asarray(one**two), dtype, 4)
            else:
                exact = np.asarray(FLOAT_ARITHMETIC[name](one, two))
                assert_near(result, exact, dtype, ROUNDED)


INTEGER_ARITHMETIC: dict[str, Any] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Max": np.maximum,
    "Min": np.minimum,
    "BitwiseAnd": operator.and_,
    "BitwiseXor": operator.xor,
}
# of divisors other than zero
DIVISIONS: dict[str, Any] = {
    "Div": quotient,
    "Mod": operator.mod,
    "fmod": remainder,
}


@functools.cache
def of_two_integers(dtype: Dtype) -> Compiled:
    nodes = {name: Node(name, ("a", "b"), dtype) for name in INTEGER_ARITHMETIC}
    nodes |= {name: Node(name, ("a", "b"), bool) for name in COMPARISONS}
    for name in DIVISIONS:
        op_type, given = ("Mod", {"fmod": 1}) if name == "fmod" else (name, {})
        nodes[name] = Node(op_type, ("dividend", "divisor"), dtype, given)
    if dtype.kind == "u":
        given = {"direction": "LEFT"}
        nodes["BitShift"] = Node("BitShift", ("a", "shift"), dtype, given)
    inputs = ["a", "b", "dividend", "divisor", "shift"]
    return Compiled(nodes, dict.fromkeys(inputs, dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@examples(12)
def test_two_integers(dtype: Dtype, draw: Draw) -> None:
    within = shapes_within(draw.one_of(shapes()))
    a, b = (draw.array(dtype, draw.one_of(within)) for _ in range(2))
    dividend, divisor = without_undefined_quotients(a, b)
    shift = np.clip(b, 0, 7)
    found = of_two_integers(dtype).run(
        a=a, b=b, dividend=dividend, divisor=divisor, shift=shift
    )
    for name, result in found.items():
        if name in COMPARISONS:
            exact = COMPARISONS[name](objects(a), objects(b))
            assert_same(result, np.asarray(exact, bool))
        elif name in DIVISIONS:
            exact = DIVISIONS[name](objects(dividend), objects(divisor))
            assert_same(result, wrapped(exact, dtype))
        elif name == "BitShift":
            exact = objects(a) * 2 ** objects(shift)
            assert_same(result, wrapped(exact, dtype))
        else:
            exact = INTEGER_ARITHMETIC[name](objects(a), objects(b))
            assert_same(result, wrapped(exact, dtype))


TRUTHS: dict[str, Any] = {
    "And": operator.and_,
    "Or": operator.or_,
    "Xor": operator.xor,
    "Equal": operator.eq,
}


@functools.cache
def of_two_truths() -> Compiled:
    nodes = {name: Node(name, ("a", "b"), bool) for name in TRUTHS}
    nodes["Not"] = Node("Not", ("a",), bool)
    return Compiled(nodes, {"a": bool, "b": bool})


@examples(12)
def test_two_truths(draw: Draw) -> None:
    within = shapes_within(draw.one_of(shapes()))
    a, b = (draw.array(bool, draw.one_of(within)) for _ in range(2))
    found = of_two_truths().run(a=a, b=b)
    assert_same(found.pop("Not"), np.asarray(a != np.True_))
    for name, result in found.items():
        one, two = objects(a), objects(b)
        assert_same(result, np.asarray(TRUTHS[name](one, two), bool))


@functools.cache
def with_attributes() -> Compiled:
    nodes = {"Clip": Node("Clip", ("x", "low", "high"), FLOAT32)}
    for name, formula in ACTIVATIONS.items():
        if formula.attributes:
            given = dict.fromkeys(formula.attributes, 1.5)
            nodes[name] = Node(name, ("x",), FLOAT32, given)
    nodes["Gelu"] = Node("Gelu", ("x",), FLOAT32, {"approximate": "tanh"})
    return Compiled(nodes, dict.fromkeys(("x", "low", "high"), FLOAT32))


@examples(12)
def test_attributes(draw: Draw) -> None:
    x = draw.array(FLOAT32, draw.one_of(shapes()))
    low, high = (draw.array(FLOAT32, (), "finite") for _ in range(2))
    found = with_attributes().run(x=x, low=low, high=high)
    exact = np.minimum(np.maximum(wide(x), wide(low)), wide(high))
    assert_near(found.pop("Clip"), np.asarray(exact), FLOAT32, 0)
    for name, result in found.items():
        ACTIVATIONS[name].check(result, x, **with_attributes().nodes[name].attributes)


@functools.cache
def choices(dtype: Dtype) -> Compiled:
    nodes = {"Where": Node("Where", ("condition", "a", "b"), dtype)}
    return Compiled(nodes, {"condition": bool, "a": dtype, "b": dtype})


@pytest.mark.parametrize("dtype", [FLOAT32, np.dtype(np.int64)], ids=str)
@examples(18)
def test_where(dtype: Dtype, draw: Draw) -> None:
    within = shapes_within(draw.one_of(shapes()))
    condition = draw.array(bool, draw.one_of(within))
    a, b = (draw.array(dtype, draw.one_of(within)) for _ in range(2))
    (result,) = choices(dtype).run(condition=condition, a=a, b=b).values()
    one, two, three = np.broadcast_arrays(condition, a, b)
    expected = [
        x if c else y for c, x, y in zip(one.flat, two.flat, three.flat, strict=True)
    ]
    assert_same(result, np.array(expected, dtype).reshape(one.shape))


@functools.cache
def casts(source: Dtype) -> Compiled:
    nodes = {
        str(target): Node(
            "Cast", ("x",), target, {"to": helper.np_dtype_to_tensor_dtype(target)}
        )
        for target in [*FLOATS, *INTEGERS]
        if target != source
    }
    return Compiled(nodes, {"x": source})


@pytest.mark.parametrize("source", [FLOAT32, BFLOAT16, *INTEGERS[:2]], ids=str)
@examples(15)
def test_casts(source: Dtype, draw: Draw) -> None:
    """Floats to integers that hold them: the rest is undefined."""
    x = draw.array(source, draw.one_of(shapes()))
    model = casts(source)
    small = x
    if is_float(source):
        small = np.where(np.abs(wide(x)) < 100, x, np.ones((), source))
        small = np.abs(small)  # not all are signed
    integers = model.run(x=small)
    for name, result in model.run(x=x).items():
        dtype = model.nodes[name].dtype
        if is_float(dtype):
            assert_near(result, wide(x), dtype, ROUNDED)
        elif is_float(source):
            assert_same(integers[name], wrapped(np.trunc(wide(small)), dtype))
        else:
            assert_same(result, wrapped(objects(x), dtype))
