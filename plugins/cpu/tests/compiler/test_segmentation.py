"""Segments: as few as possible, their borders, and what is known while planning."""

from __future__ import annotations

import random

import numpy as np
import pytest

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.segmentation import Unit, analyse, split
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.isa import SSE

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
COMPILED, ARRAY = ("Add", "Erf", "MatMul", "Reshape"), "Det"


def call(op_type: str, inputs: str, outputs: str, dtype: np.dtype = F32) -> Call:
    """A call; ``-`` is an input that is left out."""
    names = tuple(None if name == "-" else name for name in inputs.split())
    made = tuple(outputs.split())
    return Call(
        op_type, "", 17, names, made, {}, (), tuple(dtype for _ in made), lambda *_: 0
    )


def units(
    calls: list[Call],
    inputs: str,
    outputs: str,
    constants: str = "",
    refused: dict[int, str] | None = None,
) -> list[Unit]:
    for index, member in enumerate(calls):
        member.nodes = (index,)
    dtypes = dict.fromkeys((*inputs.split(), *constants.split()), F32)
    for member in calls:
        dtypes.update(zip(member.outputs, member.dtypes, strict=True))
    analysis = analyse(
        calls, dtypes, constants.split(), refused or {}, CpuTarget(SSE, 1)
    )
    return split(analysis, outputs.split(), constants.split())


def described(parts: list[Unit]) -> list[str]:
    """``C in > made values > out`` for a segment, ``A …`` for an array call."""
    return [
        f"{'C' if part.compiled else 'A'} {' '.join(part.inputs)} > "
        f"{' '.join(name for c in part.calls for name in c.outputs if name)} > "
        f"{' '.join(part.outputs)}"
        for part in parts
    ]


def test_what_is_compiled_is_one_segment() -> None:
    calls = [call("Add", "x c", "a"), call("Erf", "a", "b"), call("MatMul", "b a", "y")]
    assert described(units(calls, "x", "y", "c")) == ["C x > a b y > y"]


def test_a_call_on_arrays_is_between_two_segments() -> None:
    calls = [call("Erf", "x", "a"), call(ARRAY, "a", "n"), call("Add", "n a", "y")]
    assert described(units(calls, "x", "y")) == [
        "C x > a > a",
        "A a > n > n",
        "C n a > y > y",
    ]


def test_what_does_not_wait_for_arrays_runs_before_them() -> None:
    calls = [
        call("Erf", "x", "a"),
        call(ARRAY, "a", "n"),
        call("Add", "a x", "b"),
        call("Add", "b n", "y"),
    ]
    assert described(units(calls, "x", "y")) == [
        "C x > a b > a b",
        "A a > n > n",
        "C b n > y > y",
    ]


def test_calls_on_arrays_that_wait_for_nothing_come_first() -> None:
    calls = [
        call("Erf", "x", "a"),
        call(ARRAY, "x", "n"),
        call(ARRAY, "n", "m"),
        call("Add", "a m", "y"),
    ]
    assert described(units(calls, "x", "y")) == [
        "A x > n > n",
        "A n > m > m",
        "C x m > a y > y",
    ]


def test_two_calls_on_arrays_share_the_segments_around_them() -> None:
    calls = []
    for name in "pq":
        calls += [
            call("Erf", "x", f"{name}1"),
            call(ARRAY, f"{name}1", f"{name}2"),
            call("Erf", f"{name}2", f"{name}3"),
        ]
    calls.append(call("Add", "p3 q3", "y"))
    assert described(units(calls, "x", "y")) == [
        "C x > p1 q1 > p1 q1",
        "A p1 > p2 > p2",
        "A q1 > q2 > q2",
        "C p2 q2 > p3 q3 y > y",
    ]


def test_values_that_follow_from_shapes_need_no_unit() -> None:
    calls = [
        call("Erf", "x", "a"),
        call("Shape", "a", "s", I64),
        call("Gather", "s zero", "n", I64),
        call("Concat", "n rest", "t", I64),
        call("Reshape", "a t", "y"),
    ]
    assert described(units(calls, "x", "y", "zero rest")) == ["C x > a s n t y > y"]


def test_every_segment_computes_the_known_values_that_it_needs() -> None:
    calls = [
        call("Shape", "x", "s", I64),
        call("Reshape", "x s", "a"),
        call(ARRAY, "a", "n"),
        call("Reshape", "n s", "y"),
    ]
    assert described(units(calls, "x", "y")) == [
        "C x > s a > a",
        "A a > n > n",
        "C n x > s y > y",
    ]


def test_known_values_that_are_wanted_before_any_segment_are_arrays() -> None:
    calls = [
        call("Shape", "x", "s", I64),
        call("Gather", "s zero", "t", I64),
        call(ARRAY, "t x", "n"),
        call("Reshape", "x s", "y"),
    ]
    assert described(units(calls, "x", "y n", "zero")) == [
        "A x > s > s",
        "A s > t > t",
        "A t x > n > n",
        "C x > s y > y",
    ]
    calls = [call("Shape", "x", "s", I64), call("Gather", "s zero", "y", I64)]
    assert described(units(calls, "x", "y", "zero")) == ["A x > s > s", "A s > y > y"]


def test_known_values_that_the_caller_wants_are_a_segments() -> None:
    calls = [call("Shape", "x", "s", I64), call("Reshape", "x s", "y")]
    assert described(units(calls, "x", "y s")) == ["C x > s y > s y"]
    calls = [
        call("Erf", "x", "a"),
        call("Shape", "a", "s", I64),
        call("Gather", "s zero", "t", I64),
    ]
    assert described(units(calls, "x", "t", "zero")) == ["C x > a s t > t"]


def test_known_values_that_arrays_want_are_those_of_a_segment_before() -> None:
    calls = [
        call("Shape", "x", "s", I64),
        call("Gather", "s zero", "t", I64),
        call("Erf", "x", "a"),
        call("Shape", "a", "u", I64),
        call(ARRAY, "a t u", "n"),
        call("Shape", "n", "w", I64),
        call(ARRAY, "w", "y"),
    ]
    assert described(units(calls, "x", "y", "zero")) == [
        "C x > s t a u > t a u",
        "A a t u > n > n",
        "A n > w > w",
        "A w > y > y",
    ]


def test_a_shape_that_arrays_give_is_known_once_they_have_run() -> None:
    calls = [
        call(ARRAY, "x", "n"),
        call("Shape", "n", "s", I64),
        call("Reshape", "x s", "y"),
    ]
    assert described(units(calls, "x", "y")) == ["A x > n > n", "C x n > s y > y"]


def test_a_reshape_to_what_is_fed_is_on_arrays() -> None:
    calls = [call("Reshape", "x t", "y")]
    assert described(units(calls, "x t", "y")) == ["A x t > y > y"]


def test_a_refused_node_is_on_arrays() -> None:
    calls = [call("Erf", "x", "a"), call("Erf", "a", "b"), call("Erf", "b", "y")]
    found = described(units(calls, "x", "y", refused={1: "it cannot"}))
    assert found == ["C x > a > a", "A a > b > b", "C b > y > y"]


def test_random_numbers_of_a_known_shape_are_not_known() -> None:
    calls = [
        call("Shape", "x", "s", I64),
        call("RandomNormalLike", "c", "r"),
        call("Add", "x r", "y"),
    ]
    assert described(units(calls, "x", "y", "c")) == ["A  > r > r", "C x r > y > y"]


def test_inputs_that_are_left_out_are_no_border() -> None:
    calls = [call("Clip", "x - c", "y")]
    assert described(units(calls, "x", "y", "c")) == ["C x > y > y"]


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_is_split_into_as_few_segments_as_there_can_be(seed: int) -> None:
    choose = random.Random(seed)
    names = ["x"]
    calls: list[Call] = []
    level = {"x": 0}
    """After how many segments a value exists."""
    on_arrays = {"x"}
    for index in range(40):
        op_type = choose.choice(["Add", "Erf", "Erf", ARRAY])
        inputs = [choose.choice(names[-8:]) for _ in range(1 + (op_type == "Add"))]
        name = f"v{index}"
        calls.append(call(op_type, " ".join(inputs), name))
        level[name] = max(level[i] for i in inputs)
        if op_type == ARRAY:
            on_arrays.add(name)
        else:  # a segment after those before which there are arrays
            waits = max((level[i] for i in inputs if i in on_arrays), default=-1)
            level[name] = max(waits + 1, level[name])
        names.append(name)
    outputs = choose.sample(names[1:], 3)
    parts = units(calls, "x", " ".join(outputs))
    assert sum(part.compiled for part in parts) == max(level.values())
    done = {"x"}
    ran: list[Call] = []
    for part in parts:
        assert done.issuperset(part.inputs)
        inside = set(part.inputs)
        for member in part.calls:
            assert inside.issuperset(member.inputs)
            inside.update(name for name in member.outputs if name)
            assert (member.op_type != ARRAY) == part.compiled
        ran += part.calls
        done.update(part.outputs)
    assert done.issuperset(outputs)
    assert sorted(map(id, ran)) == sorted(map(id, calls))


def test_an_operator_of_many_inputs_is_on_arrays() -> None:
    """LLVM takes minutes for a kernel of a thousand."""
    for count, kind in ((32, "C"), (33, "A")):
        names = " ".join(f"x{i}" for i in range(count))
        (part,) = units([call("Sum", names, "y")], names, "y")
        assert described([part])[0].startswith(kind)
