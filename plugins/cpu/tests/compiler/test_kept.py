"""Operators that say themselves how much they keep, compiled, and what follows them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_cpu.compiler import partition
from onnxplug_cpu.compiler.segment import Segment

from .differential import session
from .lowered import graph

Array = np.ndarray[Any, Any]


def both(text: str, *runs: dict[str, Array]) -> onnxplug.InferenceSession:
    """A compiled session that gives in each run what the array tier gives."""
    model = onnx.parser.parse_model(text)
    compiled = session(model, compiled=True)
    assert {node.tier for node in compiled.explain().nodes} == {"compiled"}
    arrays = session(model, compiled=False)
    for feeds in runs:
        pairs = zip(compiled.run(None, feeds), arrays.run(None, feeds), strict=True)
        for found, expected in pairs:
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)
    return compiled


def detections(
    images: int, classes: int, count: int, seed: int = 0
) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 40, (images, count, 2))
    sizes = rng.uniform(-5, 20, (images, count, 2))
    boxes = np.concatenate([corners, corners + sizes], -1).astype(np.float32)
    scores = rng.uniform(0, 1, (images, classes, count)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.2] = 0.75  # ties
    if count > 9:
        boxes[0, :3, 1] = np.nan, np.inf, 0
        scores[0, 0, 3:6] = np.nan, np.inf, -np.inf
    return {"b": boxes, "s": scores}


BOXES = "float[I,N,4] b, float[I,C,N] s"
LIMITS = "int64 m = {7}, float[1] o = {0.4}, float l = {0.2}"


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_that_remain(center: int) -> None:
    runs = [detections(*s) for s in [(2, 3, 90), (1, 1, 5), (1, 2, 0), (3, 1, 200)]]
    attribute = f"<center_point_box = {center}>"
    for inputs in ("b, s, m, o, l", "b, s, m", "b, s", "b, s, m, , l"):
        body = f"y = NonMaxSuppression {attribute} ({inputs})"
        both(graph(BOXES, "int64[M,3] y", body, LIMITS), *runs)


def test_limits_that_are_fed() -> None:
    inputs = f"{BOXES}, int64[1] m, float[1] o, float[1] l"
    body = "y = NonMaxSuppression (b, s, m, o, l)"
    text, boxes = graph(inputs, "int64[M,3] y", body), detections(1, 4, 70)

    def limits(count: int, overlap: float, least: float) -> dict[str, Array]:
        numbers = np.array([overlap], np.float32), np.array([least], np.float32)
        return {**boxes, "m": np.array([count]), "o": numbers[0], "l": numbers[1]}

    given = [(3, 0.5, 0.1), (1 << 40, 1.0, -1.0), (-1, 0.5, 0.0), (50, 0.0, 0.9)]
    compiled = both(text, *(limits(*each) for each in given))
    for wrong in (-0.5, 1.5, float("nan")):
        with pytest.raises(
            onnxplug.errors.NodeError, match=f"iou_threshold is {wrong}"
        ):
            compiled.run(None, limits(3, wrong, 0.5))


@pytest.mark.parametrize("dtype", ["bool", "float", "bfloat16", "int64"])
def test_places_of_what_is_not_zero(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = {"float": "float32", "bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    inputs, body = f"{dtype}[A,B,C] x", "t = Transpose (x) y = NonZero (t)"
    shapes = [(2, 3, 100), (70, 1, 2), (0, 3, 2), (1, 1, 1)]
    arrays = [(rng.random(shape) < 0.3).astype(kind) for shape in shapes]
    both(graph(inputs, "int64[3,N] y", body), *({"x": x} for x in arrays))


@pytest.mark.parametrize("attribute", ["", "<axis = 0>", "<axis = -1>"])
def test_parts_that_a_condition_keeps(attribute: str) -> None:
    rng = np.random.default_rng(0)
    inputs = "float[A,B] x, bool[N] c"
    body = f"t = Transpose (x) y = Compress {attribute} (t, c)"
    runs = [
        {"x": rng.random(shape, np.float32), "c": rng.random(count) < 0.5}
        for shape, count in [((5, 9), 5), ((30, 40), 20), ((7, 7), 0)]
    ]
    both(graph(inputs, f"float[{'N' if not attribute else 'P,Q'}] y", body), *runs)


@pytest.mark.parametrize(
    ("dtype", "outputs"),
    [
        ("float", "y, i, v, c"),
        ("bool", "y"),
        ("int64", "y, i, v, c"),
        ("int64", ", , v"),
    ],
)
def test_distinct_elements(dtype: str, outputs: str) -> None:
    rng = np.random.default_rng(0)
    kind = {"float": np.float32}.get(dtype, dtype)
    arrays = [rng.integers(-3, 3, shape) for shape in [(9, 2), (0, 3), (40, 30)]]
    runs = [{"x": array.astype(kind)} for array in arrays]
    if dtype == "float":
        runs[2]["x"][::7] = np.nan
    given = {"y": f"{dtype}[M] y", "i": "int64[M] i", "v": "int64[V] v"}
    given["c"] = "int64[M] c"
    made = ", ".join(given[n.strip()] for n in outputs.split(",") if n.strip())
    both(
        graph(f"{dtype}[A,B] x", made, f"t = Transpose (x) {outputs} = Unique (t)"),
        *runs,
    )


FOLLOWING = (
    "n = NonMaxSuppression (b, s, m, o, l) i = Gather <axis = 1> (n, two) "
    "q = Squeeze (b, zero) p = Gather (q, i) r = Cast <to = 1> (n) "
    "c = Concat <axis = 1> (p, r) "
)


def following(body: str, output: str) -> str:
    constants = f"{LIMITS}, int64 two = {{2}}, int64[1] zero = {{0}}"
    boxes = "float[1,N,4] b, float[1,C,N] s"
    return graph(boxes, output, FOLLOWING + body, constants)


def plans(compiled: onnxplug.InferenceSession) -> int:
    (only,) = compiled.explain().partitions
    return only.counts["plans"]


def test_what_follows_has_plans_for_powers_of_two() -> None:
    runs = [detections(1, classes, 60, classes) for classes in range(1, 16)]
    compiled = both(following("y = Identity (c)", "float[M,7] y"), *runs, *runs)
    counts = {len(compiled.run(None, feeds)[0]) for feeds in runs}
    assert len(counts) > 10
    # others are of the boxes, as the number of classes differs
    assert 0 < plans(compiled) - len(runs) <= 4


def test_sizes_that_settle_have_a_plan_of_their_own() -> None:
    runs = [detections(1, classes, 60, classes) for classes in (3, 5)]
    compiled = both(following("y = Identity (c)", "float[M,7] y"), *runs)
    expected = compiled.run(None, runs[0])[0]
    before = plans(compiled)
    for _ in range(80):
        np.testing.assert_array_equal(compiled.run(None, runs[0])[0], expected)
    assert len(expected) not in (16, 32) and before < plans(compiled) <= before + 2
    for _ in range(80):
        compiled.run(None, runs[0])
    assert plans(compiled) <= before + 2


def test_what_is_kept_of_what_is_kept() -> None:
    body = (
        "g = Greater (s, o) w = NonZero (g) r = Transpose (w) "
        "t = Gather <axis = 1> (r, zero) j = Squeeze (t, one) p = Gather (b, j) "
        "q = GatherND (s, r) u = Unsqueeze (p, zero) v = Unsqueeze (q, both) "
        "n = NonMaxSuppression (u, v, m, o) k = Gather <axis = 1> (n, two) "
        "y = Gather (p, k) h = Less (q, l) c = Compress <axis = 0> (p, h)"
    )
    constants = f"{LIMITS}, int64 two = {{2}}, int64[1] zero = {{0}}, "
    constants += "int64[1] one = {1}, int64[2] both = {0, 1}"
    inputs, outputs = "float[N,4] b, float[N] s", "float[M,4] y, float[K,4] c"
    given = [detections(1, 1, 200, seed) for seed in range(12)]
    runs = [
        {"b": feeds["b"][0], "s": feeds["s"][0, 0] ** (1 + number)}
        for number, feeds in enumerate(given)
    ]
    compiled = both(graph(inputs, outputs, body, constants), *runs, *runs)
    # one for the first part, and a few for each of four others, of twelve sizes each
    assert plans(compiled) <= 1 + 4 * 5


def test_what_follows_as_a_whole_has_a_plan_when_sizes_come_often() -> None:
    text = following("y = ReduceMax (c, zero)", "float[1,7] y")
    runs = [detections(1, classes, 60, classes) for classes in range(1, 5)]
    compiled = both(text, *runs)
    assert plans(compiled) == len(runs)
    for _ in range(9):
        compiled.run(None, runs[-1])
    assert plans(compiled) == len(runs) + 1


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        ("y = Mul (x, x)", 0),
        ("r = Transpose (x) y = Mul (x, x) z = Add (r, r)", 0),
        ("y = Transpose (x)", 1),
        ("i = Cast <to = 7> (x) y = Gather (t, i)", 0),
        ("i = Cast <to = 7> (x) y = Gather <axis = 1> (t, i)", 1),
        ("y = Gather <axis = 1> (x, one)", 0),
        ("y = Gather (x, one)", None),
        ("i = Cast <to = 7> (x) y = GatherND (w, i)", 0),
        ("y = Concat <axis = 1> (x, x)", 0),
        ("y = Concat <axis = 0> (x, x)", None),
        ("y = Reshape (x, shape)", 0),
        ("y = Slice (x, one, four, one)", 0),
        ("y = Slice (x, last, first, zero, last)", None),
        ("y, z = Split <axis = 1, num_outputs = 2> (x)", 0),
        ("y = ReduceMax (x, one)", 0),
        ("y = ReduceMax (x, zero)", None),
        (
            "s = Shape (x) c = Cast <to = 1> (s) n = Gather (c, zero) y = Mul (x, n)",
            None,
        ),
        ("y = CumSum (x, zero)", None),
        ("r = Transpose (x) y = MatMul (x, r)", None),
    ],
)
def test_where_each_place_is_computed_by_itself(body: str, axis: int | None) -> None:
    constants = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}"
    constants += ", int64[1] last = {-1}, int64[1] first = {-99}"
    constants += ", int64[3] shape = {-1, 2, 2}"
    inputs = "float[N,4] x, float[8,5] t, float[2,2,2,2] w"
    text = graph(inputs, "float y", body, constants)
    made: list[Segment] = []

    def noted(*given: Any, **more: Any) -> Segment:
        made.append(Segment(*given, **more))
        return made[-1]

    with mock.patch.object(partition, "Segment", noted):
        session(onnx.parser.parse_model(text), compiled=True)
    (segment,) = made
    shapes = {"x": (16, 4), "t": (8, 5), "w": (2, 2, 2, 2)}
    few, many = (
        tuple({**shapes, "x": (rows, 4)}[name] for name in segment.inputs)
        for rows in (16, 32)
    )
    found = segment.row_axes(few, many, {"x": 0})
    assert (None if found is None else found.get("y")) == axis


def test_results_may_be_bound() -> None:
    model = onnx.parser.parse_model(
        graph("float[N] x", "int64[1,M] y", "a = Relu (x) y = NonZero (a)")
    )
    compiled = session(model, compiled=True)
    x, y = np.array([1, -1, 0, 3], np.float32), np.zeros((1, 2), np.int64)
    binding = compiled.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.int64, y.shape, y.ctypes.data)
    compiled.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, [[0, 3]])
