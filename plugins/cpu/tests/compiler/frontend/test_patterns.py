"""What exporters write as several nodes is found; what looks like it is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ..lowered import Lowered, graph, lowered, random

SCALARS = "float eps = {1e-5}, float two = {2}, float one = {1}, float four = {4}"
OPSET = 17
"""The last opset in which reductions have their axes as an attribute."""


def norm(body: str, *, outputs: str = "float[] y", inputs: str = "") -> Lowered:
    constants = SCALARS + ", float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}"
    constants += ", float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}"
    given = "float[3, 4, 8] x" + (f", {inputs}" if inputs else "")
    return lowered(graph(given, outputs, body, constants, OPSET))


def only(found: Lowered, label: str) -> bool:
    return found.labels() == [label]


X = random((3, 4, 8))[0]
MEAN = "ReduceMean <axes = [-1]>"

CENTRED = f"m = {MEAN} (x) d = Sub (x, m) "
POW = f"s = Pow (d, two) v = {MEAN} (s) "
MUL = f"s = Mul (d, d) v = {MEAN} (s) "
LAST = "s = Pow (d, two) v = ReduceMean <axes = [2]> (s) "
ROOT = "e = Add (v, eps) r = Sqrt (e) "
ROOT_LEFT = "e = Add (eps, v) r = Sqrt (e) "
DIVIDED = "n = Div (d, r) "
RECIPROCAL = "i = Reciprocal (r) n = Mul (d, i) "
ONE_BY = "i = Div (one, r) n = Mul (i, d) "
SCALED = "p = Mul (n, w) y = Add (p, b)"
SCALED_LEFT = "p = Mul (w, n) y = Add (b, p)"


@pytest.mark.parametrize("square", [POW, MUL, LAST])
@pytest.mark.parametrize("root", [ROOT, ROOT_LEFT])
@pytest.mark.parametrize("quotient", [DIVIDED, RECIPROCAL, ONE_BY])
def test_layer_norms_in_parts(square: str, root: str, quotient: str) -> None:
    for end in (SCALED, SCALED_LEFT):
        found = norm(CENTRED + square + root + quotient + end)
        assert only(found, "LayerNormalization")
        found.check(X)


@pytest.mark.parametrize(
    "end", ["y = Mul (n, w)", "y = Identity (n)", "y = Add (n, b)"]
)
def test_layer_norms_without_a_scale_or_a_bias(end: str) -> None:
    found = norm(CENTRED + POW + ROOT + DIVIDED + end)
    assert found.labels()[0] == "LayerNormalization"
    assert len(found.labels()) <= 2
    found.check(X)


@pytest.mark.parametrize("quotient", [DIVIDED, RECIPROCAL, ONE_BY])
@pytest.mark.parametrize("end", ["y = Mul (n, w)", "y = Mul (w, n)"])
def test_root_mean_square_norms_in_parts(quotient: str, end: str) -> None:
    body = f"s = Pow (x, two) v = {MEAN} (s) " + ROOT + quotient + end
    found = norm(body.replace("(d,", "(x,").replace(", d)", ", x)"))
    assert only(found, "RMSNormalization")
    found.check(X)


def test_a_bias_after_a_root_mean_square_norm_is_added_apart() -> None:
    body = f"s = Mul (x, x) v = {MEAN} (s) " + ROOT + "n = Div (x, r) " + SCALED
    found = norm(body)
    assert found.labels() == ["RMSNormalization", "Add"]
    found.check(X)


def test_a_second_bias_is_added_apart() -> None:
    body = CENTRED + POW + ROOT + DIVIDED + SCALED.replace("y", "o") + " y = Add (o, w)"
    found = norm(body)
    assert found.labels() == ["LayerNormalization", "Add"]
    found.check(X)


def test_a_norm_of_the_model_is_left_as_it_is() -> None:
    found = norm("n = LayerNormalization (x, w) y = Add (n, b)")
    assert found.labels() == ["LayerNormalization", "Add"]
    found.check(X)


def test_a_scale_that_is_fed_is_taken_in() -> None:
    body = CENTRED + POW + ROOT + DIVIDED + SCALED.replace("w", "u")
    found = norm(body, inputs="float[8] u")
    assert only(found, "LayerNormalization")
    found.check(X, random((8,), seed=1)[0])


def test_a_scale_that_is_computed_is_multiplied_apart() -> None:
    body = CENTRED + POW + ROOT + DIVIDED + "k = Exp (u) p = Mul (n, k) y = Add (p, b)"
    found = norm(body, inputs="float[8] u")
    assert "LayerNormalization" in found.labels()
    assert len(found.labels()) > 1
    found.check(X, random((8,), seed=1)[0])


@pytest.mark.parametrize(
    "body",
    [
        # the variance over another axis
        CENTRED + POW.replace("[-1]", "[1]") + ROOT + DIVIDED + SCALED,
        # another exponent
        CENTRED + POW.replace("two", "four") + ROOT + DIVIDED + SCALED,
        # a product of two values
        CENTRED + MUL.replace("(d, d)", "(d, x)") + ROOT + DIVIDED + SCALED,
        # an epsilon that is computed
        CENTRED + POW + "k = Exp (u) e = Add (v, k) r = Sqrt (e) " + DIVIDED + SCALED,
        # an epsilon for each row
        CENTRED + POW + "e = Add (v, u) r = Sqrt (e) " + DIVIDED + SCALED,
        # the other way round
        CENTRED + POW + ROOT + "n = Div (r, d) " + SCALED,
        # another numerator than 1
        CENTRED + POW + ROOT + ONE_BY.replace("one", "two") + SCALED,
        # of other values
        CENTRED + POW + ROOT + "n = Div (w, r) " + SCALED,
    ],
)
def test_what_is_no_norm(body: str) -> None:
    found = norm(body, inputs="float[3, 4, 1] u")
    assert not [name for name in found.labels() if "Normalization" in name]
    found.check(X, np.abs(random((3, 4, 1), seed=1)[0]) + 1)


@pytest.mark.parametrize("mean", [f"{MEAN} (u)", f"{MEAN} (x)".replace("-1", "1")])
def test_another_mean_leaves_a_root_mean_square_norm(mean: str) -> None:
    body = f"m = {mean} d = Sub (x, m) " + POW + ROOT + DIVIDED + SCALED
    found = norm(body, inputs="float[3, 4, 1] u")
    assert "LayerNormalization" not in found.labels()
    assert "RMSNormalization" in found.labels()
    found.check(X, random((3, 4, 1), seed=1)[0])


@pytest.mark.parametrize("name", ["s", "v", "e", "r"])
def test_a_norm_of_which_an_inner_value_is_wanted(name: str) -> None:
    for extra, end in (
        (f", float[] {name}", SCALED),
        (", float[] z", SCALED + f" z = Exp ({name})"),
    ):
        body = CENTRED + POW + ROOT + DIVIDED + end
        found = norm(body, outputs="float[] y" + extra)
        assert not [label for label in found.labels() if "Normalization" in label]
        found.check(X, tolerance=1e-4)


@pytest.mark.parametrize("name", ["m", "d"])
def test_a_norm_of_which_the_mean_is_wanted_normalises_the_difference(
    name: str,
) -> None:
    body = CENTRED + POW + ROOT + DIVIDED + SCALED
    found = norm(body, outputs=f"float[] y, float[] {name}")
    assert "LayerNormalization" not in found.labels()
    assert "RMSNormalization" in found.labels()
    found.check(X)


@pytest.mark.parametrize("name", ["n", "p"])
def test_a_normalised_value_that_is_wanted_ends_the_pattern(name: str) -> None:
    body = CENTRED + POW + ROOT + DIVIDED + SCALED
    found = norm(body, outputs=f"float[] y, float[] {name}")
    assert found.labels()[0] == "LayerNormalization"
    assert len(found.labels()) == 2
    found.check(X)


def test_norms_of_one_column_and_of_none() -> None:
    body = CENTRED + POW + ROOT + DIVIDED + "y = Mul (n, w)"
    text = graph("float[A, B] x", "float[] y", body, SCALARS + ", float[1] w = {2}", 17)
    found = lowered(text)
    found.check(random((3, 1))[0])
    found.check(np.zeros((0, 1), np.float32))
    text = graph(
        "float[4] x", "float[4] y", CENTRED + POW + ROOT + "y = Div (d, r)", SCALARS, 17
    )
    found = lowered(text)
    assert only(found, "LayerNormalization")
    found.check(random((4,))[0])


# attention

Q, K, V, MASK = random((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (2, 1, 5, 7))
TURNED = "t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) "


def attention(body: str, outputs: str = "float[] y", opset: int = 20) -> Lowered:
    inputs = (
        "float[2, 3, 5, 8] q, float[2, 3, 7, 8] k, float[2, 3, 7, 4] v, "
        "float[2, 1, 5, 7] mask"
    )
    constants = "float c = {0.3}, float[5, 1] cs = {1, 2, 3, 4, 5}, float zero = {0}"
    return lowered(graph(inputs, outputs, body, constants, opset))


def is_attention(found: Lowered) -> bool:
    labels = set(found.labels())
    assert labels == {"Attention"} or "Attention" not in labels
    return labels == {"Attention"}


@pytest.mark.parametrize(
    "scores",
    [
        "z = Mul (s, c) a = Add (z, mask)",
        "z = Mul (c, s) a = Add (mask, z)",
        "z = Div (s, c) a = Add (z, mask)",
        "a = Add (s, mask)",
        "z = Mul (s, c) a = Identity (z)",
        "z = Div (s, c) a = Identity (z)",
        "a = Identity (s)",
    ],
)
@pytest.mark.parametrize("axis", [-1, 3])
def test_attention_in_parts(scores: str, axis: int) -> None:
    found = attention(
        f"{TURNED}{scores} w = Softmax <axis = {axis}> (a) y = MatMul (w, v)"
    )
    assert is_attention(found)
    found.check(Q, K, V, MASK)


def test_keys_that_are_transposed_as_one_batch_are_not_copied() -> None:
    """As PyTorch writes it."""
    found = attention(
        "flat = Constant <value_ints = [6, 7, 8]> () "
        "back = Constant <value_ints = [2, 3, 8, 7]> () p = Transpose "
        "<perm = [0, 2, 1, 3]> (k) k1 = Transpose <perm = [0, 2, 1, 3]> (p) "
        "f = Reshape (k1, flat) t = Transpose <perm = [0, 2, 1]> (f) "
        "u = Reshape (t, back) s = MatMul (q, u) a = Add (s, mask) "
        "w = Softmax (a) y = MatMul (w, v)"
    )
    assert is_attention(found)
    found.check(Q, K, V, MASK)


def test_attention_with_scaled_queries_and_keys() -> None:
    found = attention(
        "p = Mul (q, c) t = Transpose <perm = [0, 1, 3, 2]> (k) u = Mul (t, c) "
        "s = MatMul (p, u) a = Add (s, mask) w = Softmax (a) y = MatMul (w, v)"
    )
    assert is_attention(found)
    found.check(Q, K, V, MASK)


GUARDED = "w = Softmax (a) n = IsNaN (w) o = Where (n, zero, w) y = MatMul (o, v)"


def test_attention_that_gives_zero_where_all_is_masked() -> None:
    found = attention(f"{TURNED}a = Add (s, mask) {GUARDED}")
    assert is_attention(found)
    mask = MASK.copy()
    mask[0, 0, 2] = -np.inf
    (y,) = found.check(Q, K, V, mask)
    assert (y[0, :, 2] == 0).all()
    q = Q.copy()
    q[1, 1, 3, 0] = np.nan
    (y,) = found.check(q, K, V, mask)
    assert (y[1, 1, 3] == 0).all()


@pytest.mark.parametrize(
    "guard",
    [
        "n = IsNaN (w) o = Where (n, c, w) y = MatMul (o, v)",
        "n = IsNaN (w) o = Where (n, w, zero) y = MatMul (o, v)",
        "n = IsNaN (w) b = Not (n) o = Where (b, w, zero) y = MatMul (o, v)",
    ],
)
def test_weights_that_are_chosen_otherwise(guard: str) -> None:
    found = attention(f"{TURNED}a = Add (s, mask) w = Softmax (a) {guard}")
    assert not is_attention(found)
    found.check(Q, K, V, MASK)


@pytest.mark.parametrize(
    ("choice", "whole"),
    [
        ("Where (hidden, c, s)", True),
        ("Where (hidden, s, c)", True),
        ("Where (hidden, cs, s)", False),
        ("Where (hidden, c, zero)", False),
    ],
)
def test_attention_with_a_mask_that_chooses(choice: str, whole: bool) -> None:
    found = attention(
        f"hidden = Greater (mask, zero) {TURNED}a = {choice} "
        "w = Softmax (a) y = MatMul (w, v)"
    )
    labels = set(found.labels())
    assert ("Attention" in labels) == whole
    found.check(Q, K, V, MASK)


def test_attention_of_rank_3() -> None:
    text = graph(
        "float[2, 5, 8] q, float[2, 7, 8] k, float[2, 7, 4] v",
        "float[] y",
        "t = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, t) "
        "w = Softmax (s) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert is_attention(found)
    found.check(Q[:, 0], K[:, 0], V[:, 0])


def test_keys_that_are_not_transposed_are_still_attention() -> None:
    text = graph(
        "float[2, 3, 5, 8] q, float[2, 3, 8, 7] t, float[2, 3, 7, 4] v",
        "float[] y",
        "s = MatMul (q, t) w = Softmax (s) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert "Attention" in found.labels()
    found.check(Q, np.ascontiguousarray(K.swapaxes(2, 3)), V)


def test_one_key_head_for_all_heads_of_queries() -> None:
    text = graph(
        "float[2, 3, 5, 8] q, float[2, 1, 7, 8] k, float[2, 1, 7, 4] v",
        "float[] y",
        f"{TURNED} w = Softmax (s) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert is_attention(found)
    found.check(Q, K[:, :1], V[:, :1])


REPEATED = "y5 = Unsqueeze (x, two) z5 = Expand (y5, five) r = Reshape (z5, four) "


def shared(parts: str, keys: str, batch: int = 2, times: int = 3) -> Lowered:
    """Attention of six heads to two; *parts* of keys and values have ``x`` in them."""
    both = "".join(
        re.sub(r"\bx\b", value, re.sub(r"\b(\w\d|r)\b", rf"{value}\1", parts))
        for value in "kv"
    )
    rest = "s = MatMul (q, t) b = Mul (s, c) a = Add (b, mask) w = Softmax (a) "
    rest = f"{keys} {rest} y = MatMul (w, vr)"
    if not keys:
        rest = "y = Attention <scale = 0.3> (q, kr, vr, mask)"
    text = graph(
        f"float[{batch}, 6, 5, 8] q, float[{batch}, 2, 7, 8] k, "
        f"float[{batch}, 2, 7, 8] v, float[1, 1, 5, 7] mask",
        "float[] y",
        both + rest,
        f"float c = {{0.3}}, int64[1] two = {{2}}, int64[5] five = "
        f"{{{batch}, 2, {times}, 7, 8}}, int64[4] four = {{{batch}, 6, 7, 8}}, "
        "int64[3] three = {-1, 7, 8}, int64[4] back = "
        f"{{{batch}, 6, 8, 7}}, int64[5] other = {{{batch}, {times}, 2, 7, 8}}, "
        "int64[1] one = {1}",
        20 if keys else 24,
    )  # fmt: skip
    return lowered(text)


LAST_TWO = "t = Transpose <perm = [0, 1, 3, 2]> (kr)"


@pytest.mark.parametrize(
    "keys",
    [
        "",
        LAST_TWO,
        "k3 = Reshape (kr, three) k4 = Transpose <perm = [0, 2, 1]> (k3) "
        "t = Reshape (k4, back)",
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_heads_that_are_repeated_are_shared(keys: str, batch: int) -> None:
    found = shared(REPEATED, keys, batch)
    assert is_attention(found)
    q, k, v, mask = random(*[(batch, n, m, 8) for n, m in ((6, 5), (2, 7), (2, 7))],
                           (1, 1, 5, 7))  # fmt: skip
    found.check(q, k, v, mask)


@pytest.mark.parametrize(
    ("parts", "keys"),
    [
        # heads in turn, not each for its neighbours
        ("y5 = Unsqueeze (x, one) z5 = Expand (y5, other) r = Reshape (z5, four) ",
         LAST_TWO),
        # rows and elements change places by a reshape
        (REPEATED, "t = Reshape (kr, back)"),
    ],
)  # fmt: skip
def test_heads_that_are_repeated_otherwise_are_not(parts: str, keys: str) -> None:
    found = shared(parts, keys)
    q, k, v, mask = random((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (1, 1, 5, 7))
    assert any(label.startswith("Copy") for label in found.labels())
    found.check(q, k, v, mask)


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ("2, 1, 5, 8", "2, 3, 7, 8", "2, 3, 7, 4"),
        ("1, 3, 5, 8", "2, 3, 7, 8", "2, 3, 7, 4"),
        ("2, 3, 5, 8", "1, 3, 7, 8", "1, 3, 7, 4"),
        ("2, 3, 5, 8", "2, 3, 7, 8", "1, 3, 7, 4"),
        ("2, 3, 5, 8", "2, 1, 7, 8", "2, 3, 7, 4"),
        ("5, 8", "2, 3, 7, 8", "2, 3, 7, 4"),
    ],
)
def test_batches_that_broadcast_otherwise_are_products(q: str, k: str, v: str) -> None:
    text = graph(
        f"float[{q}] q, float[{k}] k, float[{v}] v",
        "float[] y",
        f"{TURNED} w = Softmax (s) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert not is_attention(found)
    shapes = [tuple(map(int, text.split(","))) for text in (q, k, v)]
    found.check(*random(*shapes))


@pytest.mark.parametrize(
    "body",
    [
        # a softmax over another axis
        TURNED + "w = Softmax <axis = 2> (s) y = MatMul (w, v)",
        # the mask after the softmax
        TURNED + "n = Softmax (s) w = Add (n, mask) y = MatMul (w, v)",
        # the mask before the factor
        TURNED + "a = Add (s, mask) z = Mul (a, c) w = Softmax (z) y = MatMul (w, v)",
        # a factor for each row
        TURNED + "z = Mul (s, cs) w = Softmax (z) y = MatMul (w, v)",
        # a factor divided by the scores
        TURNED + "z = Div (c, s) w = Softmax (z) y = MatMul (w, v)",
        # scores that are divided by zero
        TURNED + "z = Div (s, zero) w = Softmax (z) y = MatMul (w, v)",
        # the weights on the right
        TURNED + "w = Softmax (s) u = Transpose <perm = [0, 1, 3, 2]> (v) "
        "m = Transpose <perm = [0, 1, 3, 2]> (w) y = MatMul (u, m)",
        # a mask that is made of the scores, and would not be computed any more
        TURNED + "a = Add (s, s) w = Softmax (a) y = MatMul (w, v)",
        TURNED + "z = Mul (s, c) a = Add (z, s) w = Softmax (a) y = MatMul (w, v)",
        # no product of scores
        TURNED + "z = Exp (s) w = Softmax (z) y = MatMul (w, v)",
    ],
)
def test_what_is_no_attention(body: str) -> None:
    found = attention(body)
    assert not is_attention(found)
    found.check(Q, K, V, MASK)


@pytest.mark.parametrize("name", ["s", "z", "a", "w"])
def test_attention_of_which_an_inner_value_is_wanted(name: str) -> None:
    body = TURNED + "z = Mul (s, c) a = Add (z, mask) w = Softmax (a) y = MatMul (w, v)"
    found = attention(body, outputs=f"float[] y, float[] {name}")
    assert not is_attention(found)
    found.check(Q, K, V, MASK)
    found = attention(body + f" o = Exp ({name})", outputs="float[] y, float[] o")
    assert not is_attention(found)
    found.check(Q, K, V, MASK, tolerance=1e-4)


def test_a_mask_that_widens_the_scores_is_not_taken_in() -> None:
    text = graph(
        "float[1, 3, 5, 8] q, float[1, 3, 7, 8] k, float[1, 3, 7, 4] v, "
        "float[2, 1, 5, 7] mask",
        "float[] y",
        TURNED + "a = Add (s, mask) w = Softmax (a) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert not is_attention(found)
    found.check(Q[:1], K[:1], V[:1], MASK)


def test_a_mask_that_is_computed_late() -> None:
    body = (
        TURNED + "g = Exp (mask) l = Softmax (g) a = Add (s, l) w = Softmax (a) "
        "y = MatMul (w, v)"
    )
    found = attention(body)
    assert "Attention" in found.labels()
    found.check(Q, K, V, MASK)


def test_a_mask_that_is_made_like_scores() -> None:
    text = graph(
        "float[2, 3, 5, 8] q, float[2, 3, 7, 8] k, float[2, 3, 7, 4] v, "
        "float[2, 3, 5, 7] m",
        "float[] y",
        TURNED + "p = Mul (m, m) a = Add (p, s) w = Softmax (a) y = MatMul (w, v)",
    )
    found = lowered(text)
    assert "Attention" in found.labels()
    found.check(Q, K, V, random((2, 3, 5, 7), seed=1)[0])


def test_two_attentions_one_after_the_other() -> None:
    text = graph(
        "float[2, 3, 5, 8] q, float[2, 3, 7, 8] k, float[2, 3, 7, 8] v",
        "float[] y",
        TURNED + "w = Softmax (s) o = MatMul (w, v) s2 = MatMul (o, t) "
        "w2 = Softmax (s2) y = MatMul (w2, v)",
    )
    found = lowered(text)
    assert is_attention(found)
    found.check(Q, K, K)


def test_rows_that_see_nothing_are_nan() -> None:
    mask = MASK.copy()
    mask[0, 0, 2] = -np.inf
    found = attention(TURNED + "a = Add (s, mask) w = Softmax (a) y = MatMul (w, v)")
    (y,) = found.check(Q, K, V, mask)
    assert np.isnan(y[0, :, 2]).all()
    assert np.isfinite(y[1]).all()


# convolutions

STATISTICS = (
    "float[2, 3, 1, 1] w = {1, -2, 3, 0.5, 2, 1}, float[2] b = {0.5, -1}, "
    "float[2] scale = {2, -0.5}, float[2] shift = {1, 3}, "
    "float[2] mean = {0.25, -1.5}, float[2] variance = {0.01, 4}"
)


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_statistics_are_part_of_the_convolution(operator: str, bias: str) -> None:
    weights = "w" if operator == "Conv" else "wt"
    body = (
        f"wt = Transpose <perm = [1, 0, 2, 3]> (w) c = {operator} (x, {weights}{bias}) "
        "n = BatchNormalization <epsilon = 0.001> (c, scale, shift, mean, variance) "
        "y = Relu (n)"
    )
    found = lowered(graph("float[2, 3, 4, 5] x", "float[] y", body, STATISTICS))
    labels = [name for name in found.labels() if name not in ("Pad", "Copy")]
    assert labels == [f"{operator} + Relu"]
    found.check(*random((2, 3, 4, 5)), tolerance=1e-5)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("c = Conv (x, w) y = BatchNormalization (c, s, shift, mean, variance)", "y"),
        (
            "c = Conv (x, w) y = BatchNormalization (c, shift, scale, mean, scale)",
            "c y",
        ),
        (
            "c = Conv (x, w, s) y = BatchNormalization (c, scale, b, mean, variance)",
            "y",
        ),
    ],
)
def test_other_statistics_are_not(body: str, outputs: str) -> None:
    given = ", ".join(f"float[] {name}" for name in outputs.split())
    inputs = "float[2, 3, 4, 5] x, float[2] s"
    found = lowered(graph(inputs, given, body, STATISTICS))
    found.check(*random((2, 3, 4, 5), (2,)), tolerance=1e-4)
    nodes = [name for name in found.labels() if "Norm" in name]
    assert nodes or len(found.labels()) > 2


def test_statistics_are_folded_in_float64() -> None:
    """Of a mean that float32 would lose beside what it is taken from."""
    constants = (
        "float[1, 1, 1, 1] w = {1}, float[1] b = {16777216}, float[1] scale = {1}, "
        "float[1] shift = {0}, float[1] mean = {16777214}, float[1] variance = {1}"
    )
    body = "c = Conv (x, w, b) y = BatchNormalization <epsilon = 0.0> "
    body += "(c, scale, shift, mean, variance)"
    found = lowered(graph("float[1, 1, 2, 2] x", "float[] y", body, constants))
    x = np.array([[[[0.5, -1.25], [3.0, 1e-3]]]], np.float32)
    (y,) = found.session.run(None, {"x": x})
    np.testing.assert_allclose(y, x.astype(np.float64) + 2, 1e-6)
