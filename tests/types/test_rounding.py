"""Cast and CastLike between all types, to the bit, against exact numbers.

Sources of up to 16 bits are converted whole, wider ones where rounding is hardest; all
by sessions, once compiled as far as can be, and once by the kernels on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

from onnxplug.ep import DataType

from .agreement import assert_same
from .formats import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    POWERS,
    Array,
    decode,
    to_bool,
    to_float,
    to_integer,
    to_power,
)
from .onnx_models import model, run, session, tensor
from .patterns import patterns

FLOAT8 = [name for name, kind in FLOATS.items() if kind.bits == 8]
MODES = [
    (saturate, round_mode)
    for saturate in (1, 0)
    for round_mode in ("up", "down", "nearest")
]
LIKE = {
    DataType.from_onnx(TensorProto.DataType.Value(text[7:-1].upper()))
    for text in defs.get_schema("CastLike").type_constraints[1].allowed_type_strs
}


def variants(target: str) -> list[dict[str, Any]]:
    """The attributes with which a cast to *target* is tried."""
    if target in FLOAT8:
        return [{}, {"saturate": 0}]
    if target == POWERS:
        return [{}, *({"saturate": s, "round_mode": mode} for s, mode in MODES)]
    return [{}]


CASES = [(target, each) for target in NUMBERS for each in variants(target)]
"""The casts of each source: targets and attributes."""


def model_of(source: str, cases: Sequence[tuple[str, dict[str, Any]]] = CASES) -> Any:
    """One model of casts of *source*, each with Cast and, where it may be, CastLike."""
    nodes, outputs, likes = [], [], []
    for place, (target, attributes) in enumerate(cases):
        number = DataType(target).onnx
        names = [f"cast_{place}"]
        nodes.append(helper.make_node("Cast", ["x"], names, to=number, **attributes))
        if target in LIKE:
            names.append(f"like_{place}")
            inputs = ["x", f"zero_{place}"]
            nodes.append(helper.make_node("CastLike", inputs, names[1:], **attributes))
            zero = "" if target == "string" else 0
            like = np.full(1, zero).astype(DataType(target).numpy)
            likes.append(numpy_helper.from_array(like, inputs[1]))
        for name in names:
            outputs.append(tensor(name, target))
    x = tensor("x", source)
    return model(nodes, [x], outputs, weights=likes)


def expected(x: Array, target: str, attributes: dict[str, Any]) -> tuple[Any, Any]:
    """What the specification says of the elements of *x*, and of which of them.

    A cast to the source's own type converts nothing: not even an infinity of
    float8_e5m2, which one from another type would saturate.
    """
    numbers = decode(x)
    if x.dtype == DataType(target).numpy:
        return numbers, np.ones(x.shape, bool)
    saturate = bool(attributes.get("saturate", 1))
    if target in FLOATS:
        result = to_float(numbers, target, saturate=saturate)
        return result, np.ones(x.shape, bool)
    if target == POWERS:
        return to_power(
            numbers, saturate=saturate, round_mode=attributes.get("round_mode", "up")
        )
    if target in INTEGERS:
        source = x.dtype.name
        is_float = source in FLOATS or source == POWERS
        return to_integer(numbers, target, from_float=is_float)
    return to_bool(numbers), np.ones(x.shape, bool)


@pytest.mark.parametrize("source", NUMBERS)
def test_casts(source: str) -> None:
    x = patterns(source)
    made = model_of(source)
    tiers = [run(made, {"x": x}, compiled=compiled) for compiled in (True, False)]
    for place, (target, attributes) in enumerate(CASES):
        numbers, defined = expected(x, target, attributes)
        results = [
            tier[name]
            for tier in tiers
            for name in (f"cast_{place}", f"like_{place}")
            if name in tier
        ]
        assert {result.dtype for result in results} == {DataType(target).numpy}
        assert_same(results, numbers, defined, x)


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_each_of_several_casts_rounds(source: str) -> None:
    """Compiled as one loop, they pass no number on with more bits than its type has."""
    names = ["bfloat16", "float32", "float16", "float64", "float32", "bfloat16"]
    nodes, last = [], "x"
    for place, name in enumerate(names):
        number = DataType(name).onnx
        nodes.append(helper.make_node("Cast", [last], [f"y{place}"], to=number))
        last = f"y{place}"
    made = model(nodes, [tensor("x", source)], [tensor(last, names[-1])])
    x = patterns(source)
    numbers = decode(x)
    for name in names:
        numbers = to_float(numbers, name)
    results = [run(made, {"x": x}, compiled=tier)[last] for tier in (True, False)]
    assert_same(results, numbers, np.ones(x.shape, bool), x)


def test_casts_among_numpys_types_are_compiled() -> None:
    """Otherwise nothing above would be of compiled code."""
    names = ["float64", "float32", "float16", "bfloat16", "int8", "uint64", "bool"]
    for source in names:
        others = [(name, {}) for name in names if name != source]
        explanation = session(model_of(source, others)).explain()
        assert {node.tier for node in explanation.nodes} == {"compiled"}


# strings


def texts_of(x: Array) -> Array:
    """The exact decimals of each number, and ONNX's words for the special ones."""
    words = {"Infinity": "+INF", "-Infinity": "-inf", "NaN": "NaN", "-NaN": "nan"}
    texts = [str(Decimal(number)) for number in x.tolist()]
    return np.array([words.get(text, text) for text in texts], object)


@pytest.mark.parametrize("target", [*FLOATS, POWERS])
def test_decimals_are_rounded_as_their_numbers_are(target: str) -> None:
    x = patterns("float64")[::5]
    cases = [(target, attributes) for attributes in variants(target)]
    found = run(model_of("string", cases), {"x": texts_of(x)})
    for place, (_, attributes) in enumerate(cases):
        names = [f"cast_{place}", f"like_{place}"]
        results = [found[name] for name in names if name in found]
        assert_same(results, *expected(x, target, attributes), x)


@pytest.mark.parametrize("target", FLOATS)
def test_decimals_that_are_no_float64_are_rounded_once(target: str) -> None:
    """The shortest ones that are read as the hard numbers, but are beside them."""
    x = patterns("float64")[::7]
    x = x[(abs(x) > 0) & (abs(x) < 1e300)]
    texts = np.array([repr(number) for number in x.tolist()], object)
    exact = np.array([Fraction(text) for text in texts], object)
    found = run(model_of("string", [(target, {})]), {"x": texts})
    assert_same(found.values(), to_float(exact, target), np.ones(x.shape, bool), x)


def integers(x: Array) -> list[int]:
    return [int(number) for number in decode(x)]


@pytest.mark.parametrize("target", INTEGERS)
def test_decimals_of_whole_numbers_are_exact(target: str) -> None:
    x = patterns(target)
    texts = np.array([str(number) for number in integers(x)], object)
    found = run(model_of("string", [(target, {})]), {"x": texts})
    assert_same(found.values(), decode(x), np.ones(x.shape, bool), x)


@pytest.mark.parametrize("source", NUMBERS)
def test_numbers_are_spelled_so_that_they_can_be_read_back(source: str) -> None:
    x = patterns(source)
    found = run(model_of(source, [("string", {})]), {"x": x})
    words = {"INF": "inf", "-INF": "-inf", "NaN": "nan"}
    for texts in found.values():
        assert texts.dtype == object and {type(text) for text in texts} == {str}
        if source in INTEGERS or source == "bool":
            assert texts.tolist() == [str(number) for number in integers(x)]
            continue
        assert not {text for text in texts if text.lower() in words} - {*words}
        read = np.array([float(words.get(text, text)) for text in texts])
        written = source if source in FLOATS else "float32"  # as which powers are
        back = to_float(read, written, saturate=False)
        numbers = decode(x)
        same = (back == numbers) & (np.signbit(back) == np.signbit(numbers))
        assert (same | (np.isnan(back) & np.isnan(numbers))).all()
