"""Grouping: convex, in order, and as large as it can be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.frontend.fusion import Group, fuse
from onnxplug_compiler.ir.target import ChainLimits

F32 = np.dtype(np.float32)


def call(op_type: str, inputs: str, output: str) -> Call:
    return Call(op_type, "", 17, tuple(inputs.split()), (output,), {}, (), (F32,))


def grouped(
    calls: list[Call], shapes: dict[str, tuple[int, ...]] | None = None
) -> list[Group]:
    names = {name for c in calls for name in (*c.inputs, *c.outputs)}
    sizes = shapes or {}
    known = {name: Abstract(F32, sizes.get(name or "", (4, 8))) for name in names}
    forms = {
        c: StepForm(c.op_type, c.inputs, "f32", ())
        for c in calls
        if c.op_type in ("Add", "Mul", "Erf", "QuantizeLinear", "DequantizeLinear")
    }
    return fuse(
        calls,
        forms,  # type: ignore[arg-type]
        lambda one, other: known[one].shape == known[other].shape,
        ChainLimits(steps=48, operands=12, inputs=32),
    )


def described(groups: list[Group]) -> list[str]:
    return [" ".join(c.outputs[0] or "" for c in group.all_calls) for group in groups]


def test_a_chain_is_one_group() -> None:
    calls = [call("Mul", "x c", "a"), call("Erf", "a", "b"), call("Add", "b x", "y")]
    assert described(grouped(calls)) == ["a b y"]


def test_a_chain_takes_the_product_before_it() -> None:
    calls = [
        call("MatMul", "x w", "m"),
        call("Add", "m bias", "a"),
        call("Add", "a x", "y"),
    ]
    assert described(grouped(calls)) == ["m a y"]


def test_of_two_products_the_later_one_is_taken() -> None:
    calls = [
        call("MatMul", "x w", "m"),
        call("MatMul", "x u", "n"),
        call("Erf", "m", "a"),
        call("Mul", "a n", "y"),
    ]
    assert described(grouped(calls)) == ["m", "n a y"]


def test_no_path_leads_out_of_a_group_and_back() -> None:
    calls = [
        call("Mul", "x c", "a"),
        call("Softmax", "a", "s"),
        call("Add", "a s", "y"),
    ]
    assert described(grouped(calls)) == ["a", "s", "y"]


def test_a_product_that_a_softmax_reads_too_is_not_taken() -> None:
    calls = [
        call("MatMul", "x w", "m"),
        call("Softmax", "m", "s"),
        call("Add", "m s", "y"),
    ]
    assert described(grouped(calls)) == ["m", "s", "y"]


def test_shapes_that_differ_are_apart() -> None:
    calls = [call("Mul", "x c", "a"), call("Add", "a x", "y")]
    assert described(grouped(calls, {"a": (1, 8), "c": (1, 8)})) == ["a", "y"]


@pytest.mark.parametrize("seed", range(60))
def test_any_graph_is_grouped_into_an_order_that_computes_it(seed: int) -> None:
    generator = random.Random(seed)
    names = ["x"]
    calls = []
    for index in range(60):
        op_type = generator.choice(["Add", "Mul", "Erf", "MatMul", "Softmax"])
        count = 1 if op_type in ("Erf", "Softmax") else 2
        recent = names[-generator.randrange(2, 12) :]
        inputs = " ".join(generator.choice(recent) for _ in range(count))
        calls.append(call(op_type, inputs, f"v{index}"))
        names.append(f"v{index}")
    groups = grouped(calls)
    done = {"x"}
    for group in groups:
        for member in group.all_calls:
            assert done.issuperset(member.inputs), (seed, described(groups))
            done.update(name for name in member.outputs if name)
        for member in group.calls:
            assert (member.op_type in ("Add", "Mul", "Erf")) == bool(group.forms)
    assert done == set(names)
    assert len(groups) < len(calls)


def test_two_chains_that_meet_become_one() -> None:
    calls = [
        call("Mul", "x h", "a"),
        call("MatMul", "x w", "m"),
        call("Erf", "x", "b"),
        call("Add", "b m", "c"),
        call("Mul", "a c", "y"),
    ]
    assert described(grouped(calls)) == ["m a b c y"]


def test_chains_with_something_between_them_stay_apart() -> None:
    calls = [
        call("Mul", "x h", "a"),
        call("Softmax", "a", "s"),
        call("Add", "s x", "b"),
        call("Mul", "a b", "y"),
    ]
    assert described(grouped(calls)) == ["a", "s", "b y"]


def test_a_chain_takes_a_product_through_a_reshape() -> None:
    calls = [
        call("Gemm", "x w", "m"),
        call("Reshape", "m", "r"),
        call("Mul", "r r", "a"),
        call("Add", "a r", "y"),
    ]
    shapes = dict.fromkeys("ray", (1, 4, 8))
    assert described(grouped(calls, shapes)) == ["m r a y"]


def test_a_chain_does_not_take_a_product_that_is_broadcast() -> None:
    calls = [
        call("MatMul", "x w", "m"),
        call("Squeeze", "m", "r"),
        call("Add", "r b", "y"),
    ]
    shapes = {"m": (33, 1, 1), "r": (33, 1), "b": (2, 33, 4), "y": (2, 33, 4)}
    assert described(grouped(calls, shapes)) == ["m", "r", "y"]


def test_chains_are_parted_at_codes_and_one_of_those_before_joined() -> None:
    calls = [
        call("Conv", "x w", "m"),
        call("QuantizeLinear", "m s", "a"),
        call("Conv", "x v", "n"),
        call("QuantizeLinear", "n t", "b"),
        call("DequantizeLinear", "a s", "c"),
        call("DequantizeLinear", "b t", "d"),
        call("Add", "c d", "e"),
        call("QuantizeLinear", "e s", "y"),
    ]
    assert described(grouped(calls)) == ["m a", "n b c d e y"]


def test_codes_that_an_anchor_reads_are_made_before_it() -> None:
    calls = [
        call("QuantizeLinear", "x s", "q"),
        call("Conv", "q w", "m"),
        call("QuantizeLinear", "m s", "a"),
        call("DequantizeLinear", "q s", "c"),
        call("DequantizeLinear", "a s", "d"),
        call("Add", "c d", "y"),
    ]
    assert described(grouped(calls)) == ["q", "m a c d y"]
