"""Plans: views instead of copies, outputs written in place, products of all shapes."""

from __future__ import annotations

import itertools
import random as choice
import tracemalloc
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug_compiler.schedule import inference

from ..lowered import graph, lowered, random
from ..rarely import crossed

X34, X234 = random((3, 4), (2, 3, 4))


def of(shape: tuple[int, ...]) -> str:
    """The type of a float32 tensor, as a model's text has it."""
    sizes = ", ".join(map(str, shape))
    return f"float[{sizes}]" if shape else "float"


def labels(
    inputs: str, body: str, constants: str = "", outputs: str = "y"
) -> list[str]:
    outputs = ", ".join(f"float[] {name}" for name in outputs.split())
    return lowered(graph(inputs, outputs, body, constants)).labels()


# views


def test_heads_are_split_and_joined_without_copies() -> None:
    body = """
        h = MatMul (x, w) q, k, v = Split <axis = 2, num_outputs = 3> (h)
        q1 = Reshape (q, heads) q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
        k1 = Reshape (k, heads) k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
        v1 = Reshape (v, heads) v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
        s = MatMul (q2, k2) p = Softmax (s) o = MatMul (p, v2)
        o1 = Transpose <perm = [0, 2, 1, 3]> (o) o2 = Reshape (o1, whole)
        y = MatMul (o2, u)
    """
    found = lowered(
        graph(
            "float[2, 5, 16] x, float[16, 48] w, float[16, 16] u",
            "float[] y",
            body,
            "int64[4] heads = {0, 0, 4, 4}, int64[3] whole = {0, 0, 16}",
        )
    )
    assert sorted(set(found.labels())) == ["Attention", "MatMul"]
    found.check(*random((2, 5, 16), (16, 48), (16, 16)), tolerance=1e-4)


@pytest.mark.parametrize(
    "view",
    [
        "v = Transpose <perm = [2, 0, 1]> (x)",
        "v = Slice (x, one, two, one)",
        "v, rest = Split <axis = 1> (x, parts)",
        "v = Unsqueeze (x, one)",
        "v = Flatten (x)",
        "v = Expand (x, wide)",
        "v = Gather <axis = 1> (x, index)",
        "t = Transpose (x) v = Reshape (t, split)",
        "v = Slice (x, last, first, two, back)",
    ],
)
def test_views_are_read_where_they_are(view: str) -> None:
    constants = (
        "int64[1] one = {1}, int64[1] two = {2}, int64[2] parts = {1, 2}, "
        "int64[4] wide = {3, 1, 1, 1}, int64 index = {2}, "
        "int64[4] split = {2, 2, 3, 2}, int64[1] last = {-1}, "
        "int64[1] first = {-100}, int64[1] back = {-1}"
    )
    found = lowered(
        graph("float[2, 3, 4] x", "float[] y", f"{view} y = Exp (v)", constants)
    )
    assert found.labels() == ["Exp"]
    found.check(X234)


@pytest.mark.parametrize(
    "view",
    [
        "y = Reshape (e, flat)",
        "y = Flatten (e)",
        "y = Unsqueeze (e, one)",
        "f = Flatten (e) y = Unsqueeze (f, one)",
        "y = Transpose <perm = [1, 0, 2]> (e)",
        "t = Transpose <perm = [1, 0, 2]> (e) y = Reshape (t, flat)",
        "u = Unsqueeze (e, one) t = Transpose <perm = [2, 1, 0, 3]> (u) "
        "y = Reshape (t, flat)",
    ],
)
def test_an_output_is_written_in_place_of_its_last_view(view: str) -> None:
    constants = "int64[1] one = {1}, int64[2] flat = {6, -1}"
    for operator, label in (("Exp", "Exp"), ("Softmax", "Softmax")):
        body = f"e = {operator} (x) {view}"
        found = lowered(graph("float[2, 3, 4] x", "float[] y", body, constants))
        assert found.labels() == [label]
        found.check(X234)


def test_a_product_is_written_in_place_of_its_last_view() -> None:
    body = "h = MatMul (x, w) a = Add (h, b) t = Transpose <perm = [1, 0, 2]> (a) "
    found = lowered(
        graph(
            "float[2, 3, 4] x, float[4, 5] w, float[5] b",
            "float[] y",
            body + "y = Reshape (t, flat)",
            "int64[2] flat = {6, 5}",
        )
    )
    assert found.labels() == ["MatMul + Add"]
    found.check(*random((2, 3, 4), (4, 5), (5,)))


@pytest.mark.parametrize("outputs", ["y e", "e y", "y e z", "z e y", "z y"])
def test_views_of_outputs_are_copied(outputs: str) -> None:
    body = "e = Exp (x) y = Flatten (e) z = Transpose (e)"
    given = ", ".join(f"float[] {name}" for name in outputs.split())
    found = lowered(graph("float[2, 3, 4] x", given, body))
    results = found.check(X234)
    for one, other in itertools.combinations(results, 2):
        assert not np.shares_memory(one, other)


def test_a_transposed_last_axis_is_a_copy() -> None:
    body = "e = Softmax (x) y = Transpose <perm = [0, 2, 1]> (e)"
    found = labels("float[2, 3, 4] x", body)
    assert len(found) == 2
    assert found[0] == "Softmax"


# what is returned


def test_inputs_and_constants_as_outputs() -> None:
    text = graph(
        "float[2, 3] x, float[2, 3] z",
        "float[2, 3] y, float[2, 3] x, float[2] c, float[3, 2] t",
        "y = Exp (x) t = Transpose (x)",
        "float[2] c = {1, 2}",
    )
    found = lowered(text)
    x, z = random((2, 3), (2, 3))
    _, same, constant, _ = found.check(x, z)
    assert not np.shares_memory(same, x)
    constant[:] = 7
    found.check(x, z)


def test_one_value_as_two_outputs() -> None:
    body = "y = Exp (x) z = Identity (y) w = Identity (x)"
    text = graph("float[2, 3] x", "float[2, 3] y, float[2, 3] z, float[2, 3] w", body)
    y, z, w = lowered(text).check(random((2, 3))[0])
    assert not np.shares_memory(y, z)
    y[:] = 0
    assert (z != 0).all()
    assert w.shape == (2, 3)


def test_sizes_as_outputs() -> None:
    body = (
        "y = Exp (x) s = Shape (y) n = Size (x) f = Cast <to = 1> (s) r = Sqrt (f) "
        "g = Gather (r, one) d = Mul (y, g)"
    )
    outputs = "float[] y, int64[2] s, int64 n, float[] d"
    text = graph("float[A, 3] x", outputs, body, "int64 one = {1}")
    found = lowered(text)
    for rows in (2, 5, 2, 0):
        found.check(random((rows, 3))[0])


def test_values_of_which_only_the_shape_is_read_are_not_computed() -> None:
    body = (
        "e = Exp (x) t = Transpose (e) s = Shape (t) m = MatMul (x, t) r = Shape (m) "
        "a = Reshape (z, s) b = Expand (c, r) y = Add (a, c)"
    )
    text = graph(
        "float[3, 4] x, float[12] z", "float[] y, float[] b", body, "float[1] c = {1}"
    )
    found = lowered(text)
    assert not {"Exp", "MatMul"}.intersection(found.labels())
    found.check(*random((3, 4), (12,)))


def test_nothing_to_compute() -> None:
    text = graph("float[A, 3] x", "int64[2] s", "e = Exp (x) s = Shape (e)")
    lowered(text).check(random((5, 3))[0])


@pytest.mark.parametrize(
    "made",
    [
        "k = Mul (s, many) e = Expand (c, k)",
        "k = Mul (s, many) d = Unsqueeze (c, first) e = Tile (d, k)",
    ],
)
def test_nothing_is_computed_early_that_is_large(made: str) -> None:
    text = graph(
        "float[A, 1] x",
        "float[] y",
        f"s = Shape (x) {made} y = Add (e, x)",
        "int64[2] many = {1, 2000}, float[1] c = {2}, int64[1] first = {0}",
    )
    found = lowered(text)
    x = random((1000, 1))[0]
    tracemalloc.start()
    try:
        found.session.run(None, {"x": x})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 << 20  # of the plan; what is expanded has 8 MB
    found.check(x)


@pytest.mark.parametrize(
    "made",
    [
        "f = Cast <to = 1> (n) r = Range (zero, f, one)",
        "o = ConstantOfShape <value = float[1] {1}> (s) z = NonZero (o) "
        "t = Slice (z, first, last, first) r = Cast <to = 1> (t)",
        "p = Concat <axis = 0> (s, s) c = Equal (p, s) "
        "q = Compress (p, c) r = Cast <to = 1> (q)",
    ],
)
def test_sizes_that_elements_tell_are_planned(made: str) -> None:
    text = graph(
        "float[A] x",
        "float[] y",
        f"s = Shape (x) n = Squeeze (s) {made} e = Exp (x) y = Add (e, r)",
        """float zero = {0}, float one = {1}, int64[1] first = {0},
        int64[1] last = {1}""",
    )
    found = lowered(text)
    found.check(*random((5,) if "Compress" not in made else (2,)))
    assert set(found.session.explain().partitions[0].tiers) == {"compiled"}


# products


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm(trans_a: int, trans_b: int) -> None:
    addends = ["", "7", "5, 1", "1, 7", "5, 7", "1"]
    for addend, (alpha, beta) in zip(
        addends, [(1, 1), (0.5, 2), (1, 0.25), (2, 1), (1, 0), (0.5, 1)], strict=True
    ):
        a = (9, 5) if trans_a else (5, 9)
        b = (7, 9) if trans_b else (9, 7)
        shape = tuple(int(n) for n in addend.split(",") if n)
        attributes = (
            f"<alpha = {float(alpha)}, beta = {float(beta)}, transA = {trans_a}, "
            f"transB = {trans_b}>"
        )
        text = graph(
            f"{of(a)} a, {of(b)} b, {of(shape)} c",
            "float[] y, float[] z, float[] v",
            f"y = Gemm {attributes} (a, b, c) z = Gemm {attributes} (a, b) "
            "u = Relu (y) v = Mul (u, c)",
        )
        lowered(text).check(*random(a, b, shape))


RANKS = [
    *itertools.product(
        [(4,), (3, 4), (2, 3, 4), (5, 1, 3, 4), (2, 1, 5, 3, 4)],
        [(4,), (4, 6), (2, 4, 6), (5, 2, 4, 6), (1, 3, 1, 4, 6)],
    )
]


@pytest.mark.parametrize(("a", "b"), RANKS)
def test_products_of_all_ranks(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = random(a, b)
    try:
        shape = np.matmul(x, y).shape
    except ValueError:
        return
    bias = random(shape[-1:], seed=1)[0]
    body = "m = MatMul (a, b) n = Add (m, c) y = Tanh (n)"
    inputs = f"{of(a)} a, {of(b)} b, {of(bias.shape)} c"
    found = lowered(graph(inputs, "float[] y, float[] m", body))
    found.check(x, y, bias)
    assert "Tanh" not in found.labels()  # it is done on the product's tiles


def test_products_of_views() -> None:
    generator = choice.Random(1)
    for seed in range(12):
        a, b = generator.choice([(2, 3, 4, 5), (3, 4, 5)]), (2, 3, 5, 6)
        perm = generator.sample(range(len(a)), len(a))
        if perm[-1] != len(a) - 1 and perm[-2] != len(a) - 1:
            continue
        body = f"t = Transpose <perm = {[perm.index(i) for i in range(len(a))]}> (a) "
        stored = tuple(a[axis] for axis in perm)
        body += "f = Slice (t, zero, big, axis, step) y = MatMul (f, b)"
        text = graph(
            f"{of(stored)} a, {of(b)} b",
            "float[] y",
            body,
            "int64[1] zero = {-1}, int64[1] big = {-100}, int64[1] axis = {-2}, "
            "int64[1] step = {-1}",
        )
        lowered(text).check(*random(stored, b, seed=seed))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, 4), (4, 3)),
        ((3, 0), (0, 5)),
        ((3, 4), (4, 0)),
        ((0, 3, 4), (4, 5)),
        ((0,), (0,)),
    ],
)
def test_products_without_elements(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    text = graph(
        f"{of(a)} a, {of(b)} b, float c",
        "float[] y, float[] z",
        "y = MatMul (a, b) m = Add (y, c) z = Relu (m)",
    )
    lowered(text).check(*random(a, b, ()))


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        # rows of 4 KiB evict each other: they are written with gaps
        ("e = Exp (x) y = MatMul (e, w)", 0),
        ("p = MatMul (x, u) r = Relu (p) y = MatMul (r, w) z = MatMul (r, w)", 0),
        ("p = MatMul (x, u) m = Reshape (p, matrix) y = Gemm (m, w)", 0),
        ("n = LayerNormalization (x, g) y = MatMul (n, w)", 0),
        # what others read too has none
        ("e = Exp (x) y = MatMul (e, w) z = Softmax (e)", 1),
        ("e = Exp (x) y = MatMul (e, w) z = Identity (e)", 1),
        ("e = Exp (x) m = Reshape (e, matrix) y = Gemm <transA = 1> (m, v)", 1),
        ("n = LayerNormalization <axis = 1> (x, h) y = MatMul (n, w)", 1),
        ("y = MatMul (x, w)", 1),
    ],
)
def test_rows_that_would_evict_each_other(body: str, copies: int) -> None:
    (x, w, u, g, h, v) = random(
        (2, 5, 1024), (1024, 40), (1024, 1024), (1024,), (5, 1024), (10, 48)
    )
    outputs = "float[] y" + (", float[] z" if " z = " in body else "")
    found = lowered(
        graph(
            "float[2, 5, 1024] x, float[1024, 40] w, float[1024, 1024] u, "
            "float[1024] g, float[5, 1024] h, float[10, 48] v",
            outputs,
            body,
            "int64[2] matrix = {10, 1024}",
        )
    )
    found.check(x, w, u / 32, g, h, v, tolerance=1e-4)
    commands = found.commands()
    x_copies = "p = MatMul (x" in body  # an input is as it is
    packed = sum(label.endswith("pack A") for label in commands)
    assert packed == copies + x_copies, commands


def test_nothing_at_all_and_scalars() -> None:
    body = (
        "e = Exp (x) s = Softmax (e) t = Transpose (s) "
        "r = ReduceSum <keepdims = 0> (e) "
        "y = Mul (t, k) z = Add (r, k) c = Concat <axis = 0> (e, e) u = Sqrt (k)"
    )
    text = graph(
        "float[A, B] x, float k",
        "float[] y, float[] z, float[] c, float u",
        body,
    )
    found = lowered(text)
    for shape in ((0, 3), (3, 0), (0, 0), (2, 3), (1, 1)):
        found.check(random(shape)[0], np.float32(4))


# what older opsets say otherwise


@pytest.mark.parametrize(
    ("opset", "body"),
    [
        (11, "y = Softmax <axis = 1> (x)"),
        (11, "y = LogSoftmax <axis = 0> (x)"),
        (11, "y = Softmax (x)"),
        (
            11,
            "s = Squeeze <axes = [0]> (z) u = Unsqueeze <axes = [0, -1]> (s) "
            "y = Exp (u)",
        ),
        (
            9,
            "s = Slice <starts = [1, -2], ends = [9, 9], axes = [0, 2]> (x) "
            "y = Exp (s)",
        ),
        (9, "s = Slice <starts = [0, 1], ends = [1, 9]> (x) y = Exp (s)"),
        (10, "y = Clip <min = -0.5, max = 0.5> (x)"),
        (10, "y = Clip <max = 0.5> (x)"),
        (11, "a, b = Split <axis = 2, split = [1, 3]> (x) e = Exp (a) y = Add (e, b)"),
        (11, "a, b = Split <axis = 2> (x) e = Exp (a) y = Add (e, b)"),
        (18, "a, b, c = Split <axis = 2, num_outputs = 3> (x) y = Exp (c)"),
        (11, "y = ReduceMean <axes = [0, -1], keepdims = 0> (x)"),
        (11, "y = ReduceSum (x)"),
        (12, "y = ReduceMax <axes = [1]> (x)"),
        (14, "r = Reshape <allowzero = 1> (x, shape) y = Exp (r)"),
        (6, "y = Clip <min = -0.5, max = 0.5> (x)"),
        (6, "m = Mul <broadcast = 1, axis = 1> (x, k) y = Exp (m)"),
        (9, "y = Gemm (w, v, k)"),
        (6, "y = Gemm <broadcast = 1> (w, v, k)"),
    ],
)
def test_older_opsets(opset: int, body: str) -> None:
    text = graph(
        "float[2, 3, 4] x, float[1, 4] z, float[3] k, float[2, 3] w, float[3, 3] v",
        "float[] y",
        body,
        "int64[2] shape = {4, 6}",
        opset,
    )
    x, *rest = random((2, 3, 4), (1, 4), (3,), (2, 3), (3, 3))
    lowered(text).check(x, *rest)


def test_slices_backwards_from_before_the_start() -> None:
    body = "s = Slice (x, start, end, axes, steps) y = Exp (s)"
    text = graph(
        "float[2, 3, 4] x, float[1] unused",
        "float[] y",
        body,
        "int64[2] start = {-9, 9}, int64[2] end = {-9, -9}, int64[2] axes = {1, 2}, "
        "int64[2] steps = {-1, -2}",
    )
    lowered(text).check(X234, np.zeros(1, np.float32))


def test_rows_of_repeated_elements() -> None:
    body = (
        "e = Expand (x, wide) a = Softmax (e) b = LogSoftmax (e) "
        "c = ReduceSum <keepdims = 0> (e, axis) d = LayerNormalization (e, w) "
        "f = MatMul (e, m) g = MatMul (k, e) h = ReduceLogSumExp (e, axis)"
    )
    names = "abcdfgh"
    text = graph(
        "float[5, 1] x, float[21] w, float[21, 3] m, float[4, 5] k",
        ", ".join(f"float[] {name}" for name in names),
        body,
        "int64[2] wide = {5, 21}, int64[1] axis = {-1}",
    )
    arrays = random((5, 1), (21,), (21, 3), (4, 5))
    lowered(text).check(*arrays, tolerance=1e-4)


# factors and places that kernels do not take as they are


def test_products_whose_batch_axes_do_not_fold() -> None:
    body = "p = MatMul (a, b) r = Reshape (p, s) y = Add (r, c)"
    inputs = "float[3, 7, 4, 2, 4] a, float[3, 1, 4, 4, 5] b, float[5] c"
    constants = "int64[2] s = {-1, 5}"
    found = lowered(graph(inputs, "float[] y", body, constants))
    found.check(*random((3, 7, 4, 2, 4), (3, 1, 4, 4, 5), (5,)))
    assert set(found.tiers()) == {"compiled"}
    body = "p = MatMul (a, b) y = Transpose <perm = [1, 0, 3, 2, 4]> (p)"
    found = lowered(graph(inputs, "float[] y", body))
    found.check(*random((3, 7, 4, 2, 4), (3, 1, 4, 4, 5), (5,)))
    assert set(found.tiers()) == {"compiled"}


def test_a_last_axis_of_one_is_no_row() -> None:
    body = (
        "p = MatMul (a, b) r = Reshape (p, s) t = Transpose <perm = [0, 2, 1, 3]> (r) "
        "y = Reshape (t, z)"
    )
    constants = "int64[4] s = {0, 0, 2, 1}, int64[3] z = {7, 2, 3}"
    text = graph("float[7, 3, 5] a, float[5, 2] b", "float[] y", body, constants)
    found = lowered(text)
    found.check(*random((7, 3, 5), (5, 2)))
    assert set(found.tiers()) == {"compiled"}


@pytest.mark.parametrize(
    ("indices", "updates"), [((3, 5), (3, 5)), ((5, 2), (5, 2)), ((2, 3), (2, 2))]
)
def test_scattering_beyond_the_data_is_refused(indices: Any, updates: Any) -> None:
    text = graph(
        "float[A, B] x, int64[C, D] i, float[E, F] u",
        "float[] y",
        "e = Exp (x) y = ScatterElements <axis = 1> (e, i, u)",
    )
    found = lowered(text)
    x, small = random((4, 4), (3, 4))
    found.check(x, np.argsort(small, 1), small)
    wrong = {"x": x[:2], "i": np.zeros(indices, np.int64), "u": random(updates)[0]}
    for runner in (found.expected, found.session):
        with pytest.raises(onnxplug.errors.NodeError):
            runner.run(None, wrong)
    found.check(x, np.argsort(small, 1), small)


def test_a_reshaped_product_that_is_broadcast() -> None:
    body = "m = MatMul (a, b) r = Squeeze (m, two) y = Add (r, c)"
    inputs = "float[33, 1, 33] a, float[33, 33, 1] b, float[2, 4, 33, 2] c"
    found = lowered(graph(inputs, "float[] y", body, "int64[1] two = {2}"))
    found.check(*random((33, 1, 33), (33, 33, 1), (2, 4, 33, 2)))


# what is computed while planning


def test_what_is_computed_for_one_plan_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = "".join(
        f"e{i} = Add (n, c{i}) r{i} = Range (c{i}, e{i}, c1) "
        f"k{i} = Cast <to = 1> (r{i}) "
        for i in range(20)
    )
    summed = "".join(f"s{i + 1} = Add (s{i}, k{i}) " for i in range(20))
    body = f"m = Shape (s0) n = Squeeze (m) {counted} {summed}"
    weights = ", ".join(f"int64 c{i} = {{{i}}}" for i in range(20))
    text = graph("float[N] s0", "float[] s20", body, weights)
    monkeypatch.setattr(inference, "MAX_ALL_KNOWN", 10_000)
    found = lowered(text)
    (result,) = found.session.run(None, {"s0": np.zeros(1000, np.float32)})
    np.testing.assert_array_equal(result, 20 * np.arange(1000) + sum(range(20)))
    assert len(found.notes()) > 1
    (again,) = found.session.run(None, {"s0": np.zeros(10, np.float32)})
    np.testing.assert_array_equal(again, 20 * np.arange(10) + sum(range(20)))


@pytest.mark.parametrize(
    ("pair", "last"),
    crossed(
        [
            ("Reshape ({}, six)", "Reshape ({}, whole)"),
            ("Reshape ({}, other)", "Transpose <perm = [1, 0]> ({})"),
            ("Unsqueeze ({}, first)", "Squeeze ({}, first)"),
        ],
        ["y = Identity (v800)", "y = Exp (v800)"],
    ),
)
def test_views_in_a_long_row_are_planned(pair: tuple[str, str], last: str) -> None:
    one, other = pair
    views = " ".join(
        f"v{i + 1} = {(other if i % 2 else one).format(f'v{i}')}" for i in range(800)
    )
    found = lowered(
        graph(
            "float[2, 3] x",
            "float[] y",
            f"v0 = Relu (x) {views} {last}",
            "int64[1] six = {6}, int64[2] whole = {2, 3}, int64[2] other = {3, 2}, "
            "int64[1] first = {0}",
        )
    )
    (x,) = random((2, 3))
    (y,) = found.session.run(None, {"x": x})
    expected = np.maximum(x, 0)
    for _ in range(400 if "Transpose" in other else 0):
        expected = expected.reshape(3, 2).T
    if "Exp" in last:
        expected = np.exp(expected)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_what_all_operands_repeat_is_computed_once() -> None:
    text = (
        "float[3] x, float[3] z",
        "float[40000, 3] y",
        "v = Expand (x, wide) w = Expand (z, wide) y = Mul (v, w)",
        "int64[2] wide = {40000, 3}",
    )
    found = lowered(graph(*text))
    assert found.labels() == ["Mul", "Copy"]
    x, z = (np.arange(3, dtype=np.float32) + n for n in range(2))
    found.check(x, z)
