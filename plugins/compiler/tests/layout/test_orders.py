"""Values around convolutions lie channels last where that saves conversions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.frontend.facts import Facts
from onnxplug_compiler.layout.orders import Order, orders

F32 = np.dtype(np.float32)
IMAGE = (2, 8, 5, 7)
LAST: Order = (0, 2, 3, 1)


def call(op_type: str, inputs: str, outputs: str, **attributes: object) -> Call:
    names = tuple(outputs.split())
    return Call(
        op_type, "", 20, tuple(inputs.split()), names, attributes, (), (F32,) * 9
    )


def chosen(
    calls: list[Call],
    wanted: tuple[str, ...] = (),
    **shapes: tuple[int, ...],
) -> dict[str, Order]:
    """The orders, where values are images unless *shapes* say otherwise."""
    names = {name for c in calls for name in (*c.inputs, *c.outputs)}
    known = {str(name): Abstract(F32, shapes.get(str(name), IMAGE)) for name in names}
    forms = {
        c: StepForm(c.op_type, c.inputs, "f32", ())
        for c in calls
        if c.op_type in ("Add", "Mul", "Relu")
    }
    return orders(calls, forms, Facts(known.__getitem__), wanted)


def conv(x: str, y: str) -> Call:
    return call("Conv", f"{x} w", y)


def test_networks_without_convolutions_have_no_orders() -> None:
    calls = [call("Relu", "x", "a"), call("Transpose", "a", "b"), call("Exp", "b", "y")]
    assert chosen(calls) == {}


def test_all_between_convolutions_is_channels_last() -> None:
    calls = [
        conv("x", "a"),
        call("Relu", "a", "b"),
        conv("b", "c"),
        call("Add", "c b", "d"),
        call("Concat", "d b", "e"),
        call("MaxPool", "e", "f"),
        conv("f", "g"),
        call("Relu", "g", "y"),
    ]
    names = "abcdefgy"
    assert chosen(calls, ("y",)) == dict.fromkeys(names, LAST)


def test_what_is_fed_stays_as_it_is() -> None:
    assert "x" not in chosen([conv("x", "y")])


def test_codes_of_few_channels_stay_as_they_are() -> None:
    """They are copied in any case, to be pixels, and fastest from planes."""
    codes = {"image": (2, 3, 5, 7), "a": (2, 3, 5, 7)}
    for operator, expected in (("ConvInteger", {"y": LAST}), ("Conv", None)):
        calls = [call("Relu", "image", "a"), call(operator, "a w", "y")]
        assert chosen(calls, **codes) == (expected or {"a": LAST, "y": LAST})


def test_what_other_operators_make_stays_as_it_is() -> None:
    calls = [
        call("Softmax", "x", "s"),
        call("Relu", "s", "t"),
        conv("t", "y"),
    ]
    found = chosen(calls)
    assert "s" not in found
    assert found["y"] == LAST


def test_what_others_want_more_often_than_convolutions_stays_as_it_is() -> None:
    calls = [
        call("Softmax", "x", "s"),
        call("Relu", "s", "a"),
        *(call("Softmax", "a", f"p{number}") for number in range(3)),
        conv("a", "y"),
    ]
    assert "a" not in chosen(calls)


def test_a_transposition_to_channels_last_is_their_own_order() -> None:
    calls = [
        conv("x", "a"),
        call("Transpose", "a", "t", perm=[0, 2, 3, 1]),
        call("LayerNormalization", "t g", "n"),
        call("Mul", "n gamma", "m"),
        call("Transpose", "m", "u", perm=[0, 3, 1, 2]),
        call("Add", "a u", "b"),
        conv("b", "y"),
    ]
    last = (2, 5, 7, 8)
    found = chosen(calls, t=last, n=last, m=last, g=(8,), gamma=(8,))
    assert found == dict.fromkeys("auby", LAST)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_pixels_in_a_row_are_the_same_order(rank: int) -> None:
    shape = (2, 8, 5, 7, 3)[:rank]
    flat = (2, 8, math.prod(shape[2:]))
    calls = [
        conv("x", "a"),
        call("Reshape", "a to", "r"),
        call("Transpose", "r", "t", perm=[0, 2, 1]),
        call("LayerNormalization", "t g", "y"),
    ]
    tokens = flat[0], flat[2], flat[1]
    found = chosen(calls, x=shape, a=shape, r=flat, t=tokens, y=tokens, g=(8,))
    assert found == {"a": (0, *range(2, rank), 1), "r": (0, 2, 1)}


def test_other_reshapes_begin_anew() -> None:
    shuffled = (2, 2, 4, 5, 7)
    calls = [
        conv("x", "a"),
        call("Relu", "a", "b"),
        call("Reshape", "b to", "r"),
        call("Transpose", "r", "t", perm=[0, 2, 1, 3, 4]),
        call("Reshape", "t to", "c"),
        conv("c", "y"),
    ]
    found = chosen(calls, r=shuffled, t=(2, 4, 2, 5, 7))
    assert found == dict.fromkeys("aby", LAST)


def test_broadcast_operands_do_not_matter() -> None:
    calls = [
        conv("x", "a"),
        call("ReduceMean", "a axes", "m"),
        conv("m", "s"),
        call("Mul", "a s", "b"),
        conv("b", "y"),
    ]
    one = (2, 8, 1, 1)
    found = chosen(calls, m=one, s=one)
    assert {found["a"], found["b"], found["y"]} == {LAST}


def test_parts_lie_as_the_whole() -> None:
    calls = [
        conv("x", "a"),
        call("Split", "a sizes", "b c"),
        call("Softmax", "b", "s"),
        conv("c", "y"),
    ]
    half = (2, 4, 5, 7)
    found = chosen(calls, b=half, c=half, s=half)
    assert found == dict.fromkeys("abcy", LAST)
