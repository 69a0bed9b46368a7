"""Plans for shapes that are like others: word for word what planning gives."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_compiler.ir import trace
from onnxplug_compiler.ir.trace import Trace
from onnxplug_compiler.ir.traced import NotTraced, either, larger, smaller
from onnxplug_cpu.compiler import parametric_plans
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.words import code_of
from onnxplug_cpu.compiler.parametric_plans import ParametricPlans
from onnxplug_testing.grouped_attention import Grouped

from .lowered import graph
from .parametric import compared_with_fresh_programs
from .random_sizes import network
from .test_caches import as_exported, check, feeds_of

Array = np.ndarray[Any, Any]


def session_of(model: onnx.ModelProto, threads: int = 1) -> Any:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxplug.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def pictures(seed: int, count: int) -> list[Array]:
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    shapes = [
        (choose.choice([1, 1, 1, 2]), 3, choose.choice([24, 25]), choose.randint(9, 99))
        for _ in range(count)
    ]
    return [numbers.standard_normal(shape, np.float32) for shape in shapes]


def check_network(seed: int, count: int) -> tuple[int, int]:
    model, fed = network(seed), pictures(seed, count)
    with compared_with_fresh_programs() as compared:
        session = session_of(model, 1 + seed % 3)
        given = [session.run(None, {"x": x})[0] for x in fed]
    with mock.patch.object(parametric_plans, "FEWEST", 1 << 30):
        planned = session_of(model, 1 + seed % 3)
        for x, found in zip(fed, given, strict=True):
            (expected,) = planned.run(None, {"x": x})
            assert found.tobytes() == expected.tobytes()
    (exact,) = ReferenceEvaluator(model).run(None, {"x": fed[-1]})
    np.testing.assert_allclose(given[-1], exact, rtol=1e-3, atol=1e-4)
    return compared.traced, compared.given


@pytest.fixture(autouse=True)
def plans_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "0")


def test_plans_of_random_sizes_are_as_fresh_ones() -> None:
    traced, given = check_network(10, 9)
    assert traced and given >= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(40))
def test_plans_of_more_random_sizes_are_as_fresh_ones(seed: int) -> None:
    check_network(seed, 24)


def test_the_fourth_width_needs_no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(network(10))
    numbers = np.random.default_rng(0)

    def run(width: int) -> None:
        x = numbers.standard_normal((1, 3, 24, width), np.float32)
        session.run(None, {"x": x})

    for width in (40, 60, 80):
        run(width)

    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("a plan was made")

    from onnxplug_compiler.schedule.plan import Plans

    monkeypatch.setattr(Plans, "make", refuse)
    for width in (100, 64, 120):
        run(width)


CHOSEN = graph(
    "int64[N] ids",
    "float[N, 8] y",
    "rows = Gather <axis = 0> (table, ids) y = Relu (rows)",
    "float[4, 8] table = {" + ", ".join(map(str, range(32))) + "}",
)


def test_one_plan_serves_all_lengths_of_a_decoder() -> None:
    """Also where the length is computed from the shape of a mask."""
    case = Grouped([9], 1, 24)
    model = as_exported(case)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    with compared_with_fresh_programs() as compared:
        session = session_of(model)
        for length in range(3, 25):
            case.lengths = [length]
            lengths = np.array([length - 1], np.int32)
            mask = np.ones((1, length), np.int64)
            feeds = {**feeds_of(case), "lengths": lengths, "mask": mask}
            check(case, session.run(None, feeds), 4e-6)
    assert (compared.traced, compared.given) == (1, 20)


def test_an_error_is_told_as_the_plan_of_its_sizes_tells_it() -> None:
    session = session_of(onnx.parser.parse_model(CHOSEN))
    for count in (3, 5, 7, 9):
        session.run(None, {"ids": np.arange(count) % 4})
    with pytest.raises(onnxplug.errors.OnnxplugError, match="index 4") as found:
        session.run(None, {"ids": np.full(11, 4)})
    with pytest.raises(onnxplug.errors.OnnxplugError) as other:
        session_of(onnx.parser.parse_model(CHOSEN)).run(None, {"ids": np.full(11, 4)})
    assert str(found.value) == str(other.value)
    (y,) = session.run(None, {"ids": np.full(11, 3)})
    np.testing.assert_array_equal(y, np.tile(np.arange(24, 32, dtype="f"), (11, 1)))


def test_a_profile_tells_the_commands_of_any_sizes(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxplug.InferenceSession(
        network(7).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for width in (40, 60, 80, 100):
        session.run(None, {"x": np.zeros((1, 3, 24, width), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    of_runs = Counter(
        event["name"].split(" ")[0]
        for event in events
        if event["cat"] == "Node" and event["args"]["tier"] == "compiled"
    )
    assert of_runs and all(count % 4 == 0 for count in of_runs.values())


def test_who_cancels_ends_tracing_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    note = ParametricPlans.note
    ended: list[tuple[int, ...]] = []

    def look() -> None:
        raise onnxplug.errors.RunCancelled("of the test")

    def noted(plans: ParametricPlans, shapes: Any, program: Any, given: Any) -> None:
        with pytest.raises(onnxplug.errors.RunCancelled, match="of the test"):
            note(plans, shapes, program, look)
        ended.append(shapes)

    session = session_of(network(1))
    session.run(None, {"x": np.zeros((1, 3, 24, 40), np.float32)})
    monkeypatch.setattr(parametric_plans, "FEWEST", 2)
    monkeypatch.setattr(ParametricPlans, "note", noted)
    session.run(None, {"x": np.zeros((1, 3, 24, 50), np.float32)})
    assert ended


SQUARE = graph(
    "float[N, 16] x",
    "float[N, N] y",
    "t = Transpose <perm = [1, 0]> (x) y = MatMul (x, t)",
)


def test_tiles_are_chosen_by_rows_and_columns() -> None:
    numbers = np.random.default_rng(0)
    with compared_with_fresh_programs() as compared:
        session = session_of(onnx.parser.parse_model(SQUARE))
        for size in (133, 171, 205, 90, 153, 250):
            x = numbers.standard_normal((size, 16), np.float32)
            (y,) = session.run(None, {"x": x})
            exact = x.astype(np.float64) @ x.T.astype(np.float64)
            np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)
    assert compared.given >= 3


def test_a_kernel_is_chosen_by_no_size_that_is_not_given() -> None:
    (rows,) = Trace([9]).sizes

    def kernel(least: int) -> Kernel:
        raise AssertionError(f"it is not asked for {rows} and {least}")

    with pytest.raises(NotTraced, match="other sizes"):
        code_of(kernel, rows + 1)
    with pytest.raises(NotTraced, match="other sizes"):
        code_of((3, (rows,)).index, rows)


# traced numbers


def computed(choose: random.Random, sizes: list[Any], steps: int) -> list[Any]:
    """Numbers that are made of *sizes*, by steps that depend on nothing else."""
    numbers: list[Any] = [*sizes, 3, 7, 16]
    for _ in range(steps):
        one, other, third = (choose.choice(numbers) for _ in range(3))
        match choose.randrange(12):
            case 0 | 1:
                made = one + other
            case 2:
                made = one - other
            case 3:
                made = one * choose.randint(-4, 9)
            case 4:
                made = -(-one // choose.choice([2, 3, 14, 16]))
            case 5:
                made = one % choose.choice([2, 8, 64])
            case 6:
                made = larger(one, other)
            case 7:
                made = smaller(one, other)
            case 8:
                made = either(one, other, third, one)
            case 9:
                made = one if one < other else third
            case 10:
                made = round(one / 3.7)
            case _:
                made = 0 if one == other else third // 5
        numbers.append(made)
    return numbers


def test_traced_numbers_are_what_is_computed_of_others() -> None:
    alike = 0
    for seed in range(60):
        choose = random.Random(seed)
        sizes = [choose.randint(1, 300) for _ in range(2)]
        of_sizes = Trace(sizes)
        traced = computed(random.Random(seed), list(of_sizes.sizes), 24)
        evaluate = of_sizes.finished(traced)
        assert evaluate(*sizes) == computed(random.Random(seed), list(sizes), 24)
        for _ in range(20):
            others = [choose.randint(1, 300) for _ in range(2)]
            found = evaluate(*others)
            if found is not None:
                alike += 1
                assert found == computed(random.Random(seed), others, 24)
    assert alike > 100


def test_what_takes_numbers_gets_them_and_others_are_not_alike() -> None:
    for use in (
        lambda size: [0] * size,
        lambda size: {size: 1},
        lambda size: range(size)[0],
        lambda size: np.zeros(size),
        lambda size: int(size),
        lambda size: repr(size),
        lambda size: float(size),
        lambda size: np.array([size], np.int64),
        lambda size: "abcdefghijkl"[size],
        lambda size: size == 10 and size < math.inf,
        lambda size: float(size * np.float64(0.5)),
    ):
        traced = Trace([9])
        use(traced.sizes[0] + 1)
        evaluate = traced.finished([traced.sizes[0]])
        assert evaluate(9) == [9]
        assert evaluate(10) is None


def test_a_size_that_has_to_be_a_number_is_not_traced() -> None:
    (size,) = Trace([640]).sizes
    with pytest.raises(NotTraced, match="640"):
        np.zeros(size)


def test_a_trace_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_STEPS", 1 << 12)
    (size,) = Trace([1 << 20]).sizes
    with pytest.raises(NotTraced):
        assert size in range(1 << 40, 1 << 60)
