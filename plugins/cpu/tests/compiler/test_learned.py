"""Predictors and encoders of ``ai.onnx.ml`` compiled, against their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

import onnxplug
from onnxplug.errors import NodeError

Array = np.ndarray[Any, Any]

TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
DTYPES = ["float32", "float64", "int64", "int32"]
ROWS = (1, 5, 0, 40)


class Node:
    """A model of one node, in a session that compiles it."""

    def __init__(
        self,
        op_type: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        version: int = 3,
        domain: str = "ai.onnx.ml",
        notes: Sequence[str] = ("",),
        **attributes: Any,
    ) -> None:
        helper = onnx.helper
        node = helper.make_node(
            op_type,
            list(feeds),
            list("yz"[: len(outputs)]),
            domain=domain,
            **attributes,
        )
        types = [
            helper.make_tensor_value_info(
                name,
                onnx.TensorProto.STRING
                if each.dtype == object
                else helper.np_dtype_to_tensor_dtype(each.dtype),
                [None] * each.ndim,
            )
            for name, each in feeds.items()
        ]
        results = [
            helper.make_tensor_value_info(
                name, onnx.TensorProto.DataType.Value(kind), None
            )
            for name, kind in zip("yz", outputs, strict=False)
        ]
        imports = [
            helper.make_opsetid("", 21),
            helper.make_opsetid("ai.onnx.ml", version),
        ]
        graph = helper.make_graph([node], "learned", types, results)
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        self._session = onnxplug.InferenceSession(model.SerializeToString())
        self._notes = list(notes)

    def __call__(self, **feeds: Array) -> list[Any]:
        found = self._session.run(None, feeds)
        nodes = self._session.explain().nodes
        assert [(each.tier, each.note) for each in nodes] == [
            ("compiled", note) for note in self._notes
        ]
        return list(found)


def looked_up(op_type: str) -> tuple[str, ...]:
    return (f"texts of {op_type} are looked up on arrays",)


def rows(count: int, features: int, dtype: str = "float32") -> Array:
    random = np.random.default_rng(count + features)
    return (2 * random.standard_normal((count, features))).astype(dtype)


def transformed(scores: Array, transform: str) -> Array:
    """By the definitions, in float64."""
    match transform:
        case "LOGISTIC":
            return 1 / (1 + np.exp(-scores))
        case "SOFTMAX" | "SOFTMAX_ZERO":
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            if transform == "SOFTMAX_ZERO":
                powers = np.where(np.abs(scores) > 1e-7, powers, 0)
            total = powers.sum(axis=1, keepdims=True)
            return powers / np.where(total == 0, 1, total)
        case "PROBIT":
            with np.errstate(all="ignore"):
                log = np.log(1 - (2 * scores - 1) ** 2)
                half = 2 / (math.pi * 0.147) + log / 2
                root = np.sqrt(np.sqrt(half**2 - log / 0.147) - half)
                return np.sqrt(2) * np.sign(2 * scores - 1) * root
    return scores


def pair(score: Array, transform: str, *, complement: bool) -> Array:
    second = transformed(score, transform) if transform in TRANSFORMS[1::3] else score
    one = transform == "LOGISTIC" or (complement and transform != "PROBIT")
    return np.hstack([1 - second if one else -second, second])


def close(found: Array, expected: Array, tolerance: float = 2e-5) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# linear


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("named", [False, True])
def test_linear_classifiers(transform: str, named: bool) -> None:
    features = 3
    for classes, dtype in ((1, "float32"), (1, "int64"), (2, "int32"), (4, "float32")):
        weights = rows(classes, features).astype(np.float64)
        offsets = rows(1, classes)[0] / 4
        labels = [f"class {n}" for n in range(max(2, classes))]
        numbers = [7 * n - 3 for n in range(max(2, classes))]
        node = Node(
            "LinearClassifier",
            {"x": rows(1, features, dtype)},
            ["STRING" if named else "INT64", "FLOAT"],
            notes=looked_up("LinearClassifier") if named else [""],
            coefficients=weights.ravel().tolist(),
            intercepts=offsets.tolist(),
            post_transform=transform,
            **{"classlabels_strings": labels}
            if named
            else {"classlabels_ints": numbers},
        )
        for count in ROWS:
            x = rows(count, features, dtype)
            label, found = node(x=x)
            scores = x @ weights.T + offsets
            if classes == 1:
                place = (scores[:, 0] > 0).astype(int)
                expected = pair(scores, transform, complement=True)
            else:
                place = scores.argmax(axis=1)
                expected = transformed(scores, transform)
            assert label.tolist() == [(labels if named else numbers)[n] for n in place]
            close(found, expected, 1e-3 if transform == "PROBIT" else 2e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressors(transform: str) -> None:
    for targets, dtype in ((1, "float32"), (3, "float32"), (3, "float64")):
        weights, offsets = rows(targets, 4), rows(1, targets)[0]
        node = Node(
            "LinearRegressor",
            {"x": rows(1, 4, dtype)},
            ["FLOAT"],
            coefficients=weights.ravel().tolist(),
            intercepts=offsets.tolist(),
            targets=targets,
            post_transform=transform,
        )
        for count in ROWS:
            x = rows(count, 4, dtype)
            scores = x.astype(np.float64) @ weights.T.astype(np.float64) + offsets
            expected = transformed(scores, transform)
            close(node(x=x)[0], expected, 1e-3 if transform == "PROBIT" else 2e-5)


def test_large_numbers_that_differ_little() -> None:
    """Are told apart where the input has the digits for it."""
    for dtype in ("float64", "int64"):
        node = Node(
            "LinearClassifier",
            {"x": np.zeros((1, 1), dtype)},
            ["INT64", "FLOAT"],
            coefficients=[1.0],
            intercepts=[-1e9],
            classlabels_ints=[4, 9],
        )
        label, scores = node(x=np.array([[10**9 - 1], [10**9 + 1]], dtype))
        assert label.tolist() == [4, 9]
        assert scores.tolist() == [[2, -1], [0, 1]]


# support vectors


def similarity(x: Array, vectors: Array, kind: str, params: Sequence[float]) -> Array:
    gamma, coef0, degree = params
    products = x @ vectors.T
    match kind:
        case "RBF":
            apart = x[:, None, :] - vectors[None]
            return np.exp(-gamma * (apart**2).sum(axis=2))
        case "POLY":
            return (gamma * products + coef0) ** degree
        case "SIGMOID":
            return np.tanh(gamma * products + coef0)
    return products


def coupled(pairs: Array, classes: int) -> Array:
    """Of one row, by solving what pairwise coupling minimises: p Q p, sum(p) = 1."""
    r = np.zeros((classes, classes))
    r[np.triu_indices(classes, 1)] = pairs
    r += np.tril(1 - r.T, -1)
    q = -r * r.T
    np.fill_diagonal(q, (r * r).sum(axis=0))
    whole = np.ones((classes + 1, classes + 1))
    whole[:classes, :classes], whole[-1, -1] = q, 0
    return np.linalg.solve(whole, [0] * classes + [1])[:classes]


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("probable", [False, True])
@pytest.mark.parametrize("counts", [(9, 8), (20, 0, 3, 14)], ids=len)
def test_support_vector_classifiers(
    counts: tuple[int, ...], probable: bool, kind: str
) -> None:
    classes, total, features = len(counts), sum(counts), 5
    ends = np.cumsum((0, *counts))
    pairs = list(itertools.combinations(range(classes), 2))
    vectors, params = rows(total, features).astype(np.float64), (0.125, 0.5, 2.0)
    weights = rows(classes - 1, total).astype(np.float64)
    rho, slopes = rows(1, len(pairs))[0].astype(np.float64), -np.ones(len(pairs))
    for dtype in ("float32", "int64"):
        node = Node(
            "SVMClassifier",
            {"x": rows(1, features, dtype)},
            ["INT64", "FLOAT"],
            classlabels_ints=range(classes),
            coefficients=weights.ravel().tolist(),
            kernel_type=kind,
            kernel_params=params,
            support_vectors=vectors.ravel().tolist(),
            vectors_per_class=counts,
            rho=rho.tolist(),
            **{"prob_a": slopes.tolist(), "prob_b": rho.tolist()} if probable else {},
        )
        for count in ROWS:
            x = rows(count, features, dtype)
            k = similarity(x.astype(np.float64), vectors, kind, params)
            parts = [slice(ends[n], ends[n + 1]) for n in range(classes)]
            scores = np.zeros((count, len(pairs)))
            for number, (i, j) in enumerate(pairs):
                scores[:, number] = (
                    k[:, parts[i]] @ weights[j - 1, parts[i]]
                    + k[:, parts[j]] @ weights[i, parts[j]]
                    + rho[number]
                )
            votes = np.zeros((count, classes), int)
            for number, (i, j) in enumerate(pairs):
                votes[:, i] += scores[:, number] > 0
                votes[:, j] += scores[:, number] <= 0
            label, found = node(x=x)
            assert label.tolist() == votes.argmax(axis=1).tolist()
            if probable:
                platt = 1 / (1 + np.exp(np.minimum(scores * slopes + rho, 700)))
                expected = [coupled(np.clip(r, 1e-7, 1 - 1e-7), classes) for r in platt]
                # both stop when they are near enough
                close(found, np.array(expected).reshape(count, classes), 0.01)
            elif classes == 2:
                close(found, pair(scores, "NONE", complement=False), 1e-4)
            else:
                close(found, scores, 1e-4)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regressors(kind: str) -> None:
    vectors, weights = rows(21, 3).astype(np.float64), rows(1, 21).astype(np.float64)
    for dtype, one_class in (("float32", 0), ("float64", 0), ("float32", 1)):
        node = Node(
            "SVMRegressor",
            {"x": rows(1, 3, dtype)},
            ["FLOAT"],
            coefficients=weights[0].tolist(),
            kernel_type=kind,
            kernel_params=(0.25, -0.5, 3.0),
            n_supports=21,
            support_vectors=vectors.ravel().tolist(),
            rho=[0.5],
            one_class=one_class,
        )
        for count in ROWS:
            x = rows(count, 3, dtype).astype(np.float64)
            k = similarity(x, vectors, kind, (0.25, -0.5, 3.0))
            expected = k @ weights.T + 0.5
            if one_class:
                expected = np.where(expected > 0, 1.0, -1.0)
            close(node(x=x.astype(dtype))[0], expected, 2e-4)


def test_what_is_close_together_and_far_from_zero_has_a_distance() -> None:
    vectors = 1e4 + rows(18, 2)
    node = Node(
        "SVMRegressor",
        {"x": rows(1, 2)},
        ["FLOAT"],
        coefficients=[1.0] * 18,
        kernel_type="RBF",
        kernel_params=(0.5, 0.0, 0.0),
        n_supports=18,
        support_vectors=vectors.ravel().tolist(),
        rho=[0.0],
    )
    x = 1e4 + rows(9, 2)
    k = similarity(x.astype(np.float64), vectors.astype(np.float64), "RBF", (0.5, 0, 0))
    close(node(x=x)[0], k.sum(axis=1, keepdims=True), 1e-5)


# encoders


TEXTS = ["a", "b", "", "é", "B"]


@pytest.mark.parametrize("shape", [(6,), (3, 2), (0, 2), (2, 3, 4)], ids=str)
def test_one_hot_encoders(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(len(shape))
    for dtype in ("object", *DTYPES):
        x = random.integers(-1, 5, shape)
        categories: list[Any] = [3, 0, 4]
        attribute = "cats_int64s"
        if dtype == "object":
            x = np.array(TEXTS, object)[x]
            categories, attribute = ["é", "?", "a"], "cats_strings"
        given = x.astype(dtype)
        if dtype == "float32" and given.size:
            given.reshape(-1)[0] = np.nan
        notes = looked_up("OneHotEncoder") if dtype == "object" else [""]
        node = Node(
            "OneHotEncoder",
            {"x": given},
            ["FLOAT"],
            notes=notes,
            **{attribute: categories},
        )
        expected = [[float(each == c) for c in categories] for each in given.ravel()]
        close(node(x=given)[0], np.array(expected).reshape(*shape, 3), 0)


@pytest.mark.parametrize("dtype", ["object", *DTYPES])
def test_one_hot_encoders_without_zeros(dtype: str) -> None:
    """As scikit-learn's own encoders are converted unless they ignore others."""
    categories: list[Any] = [3, -2, 4]
    attribute, other, notes = "cats_int64s", 7, [""]
    if dtype == "object":
        categories, attribute, other = ["é", "?", "a"], "cats_strings", "b"
        notes = [*looked_up("OneHotEncoder")]
    x = np.array([categories, categories[::-1]], dtype)
    node = Node(
        "OneHotEncoder",
        {"x": x},
        ["FLOAT"],
        notes=notes,
        zeros=0,
        **{attribute: categories},
    )
    expected = [[float(each == c) for c in categories] for each in x.ravel()]
    close(node(x=x)[0], np.array(expected).reshape(2, 3, 3), 0)
    for unknown in (other, -9) if dtype != "object" else (other,):
        x[1, 2] = unknown
        told = f"OneHotEncoder: {x[1, 2].item() if dtype != 'object' else unknown!r}"
        with pytest.raises(NodeError, match=told.removesuffix(".0")):
            node(x=x)


@pytest.mark.parametrize("kind", ["int64s", "floats", "strings"])
@pytest.mark.parametrize("keys", ["int64s", "floats"])
def test_label_encoders(keys: str, kind: str) -> None:
    named = {
        "int64s": ([5, -2, 9, 5], 77),
        "floats": ([0.5, math.inf, -1.0, 2.0], 0.25),
        "strings": (["five", "é", "", "again"], "none"),
    }
    found = {"int64s": [4, -(2**62), 8, 4], "floats": [0.5, math.nan, -0.0, 0.5]}[keys]
    values, default = named[kind]
    dtype = "int64" if keys == "int64s" else "float32"
    x = np.array([*found, 0, 1, 0.25, -7, 8], dtype).reshape(3, 3)
    node = Node(
        "LabelEncoder",
        {"x": x},
        [{"int64s": "INT64", "floats": "FLOAT", "strings": "STRING"}[kind]],
        version=2,
        notes=looked_up("LabelEncoder") if kind == "strings" else [""],
        **{f"keys_{keys}": found, f"values_{kind}": values},
        **{f"default_{kind.removesuffix('s')}": default},
    )
    for given in (x, x[:, 1:], x[:0]):
        expected = [
            next(
                (
                    value
                    for key, value in reversed(list(zip(found, values, strict=True)))
                    if key == each or (key != key and each != each)
                ),
                default,
            )
            for each in given.ravel().tolist()
        ]
        (made,) = node(x=given)
        assert made.shape == given.shape
        assert made.ravel().tolist() == expected


@pytest.mark.parametrize(
    ("op_type", "version", "attributes", "expected"),
    [
        ("LabelEncoder", 1, {"classes_strings": TEXTS[:3]}, [2, 0, -1, 1]),
        (
            "LabelEncoder",
            2,
            {"keys_strings": TEXTS[:3], "values_floats": [0.5, 2.5, -1.0]},
            [-1.0, 0.5, 9.0, 2.5],
        ),
        (
            "LabelEncoder",
            4,
            {"keys_strings": [*TEXTS[:3], TEXTS[0]], "values_int64s": [4, -8, 7, 1]},
            [7, 1, -1, -8],
        ),
        (
            "CategoryMapper",
            1,
            {"cats_strings": TEXTS[:3], "cats_int64s": [40, 80, -10]},
            [-10, 40, -1, 80],
        ),
    ],
)
def test_encoders_of_texts(
    op_type: str, version: int, attributes: dict[str, Any], expected: list[float]
) -> None:
    default = {"default_float": 9.0} if "values_floats" in attributes else {}
    node = Node(
        op_type,
        {"x": np.zeros(1, object)},
        ["FLOAT" if default else "INT64"],
        version=version,
        notes=looked_up(op_type),
        **attributes,
        **default,
    )
    x = np.array([TEXTS[2], TEXTS[0], "other", TEXTS[1]], object)
    assert node(x=x)[0].tolist() == expected
    assert node(x=x[:0])[0].shape == (0,)


def test_category_mappers() -> None:
    node = Node(
        "CategoryMapper",
        {"x": np.zeros(1, np.int64)},
        ["STRING"],
        version=1,
        notes=looked_up("CategoryMapper"),
        cats_int64s=[4, 8, -1],
        cats_strings=["four", "eight", "minus"],
        default_string="?",
    )
    (found,) = node(x=np.array([8, -1, 0, 4]))
    assert found.tolist() == ["eight", "minus", "?", "four"]


@pytest.mark.parametrize("widths", [None, (2, 2, 1)])
def test_feature_vectorizers(widths: tuple[int, ...] | None) -> None:
    for count in (1, 3, 0):
        feeds = {
            "a": rows(count, 2, "float64"),
            "b": rows(count, 1, "int64"),
            "c": rows(count, 2, "float32").reshape(count, 2, 1),
        }
        given = {} if widths is None else {"inputdimensions": widths}
        (found,) = Node("FeatureVectorizer", feeds, ["FLOAT"], **given)(**feeds)
        parts = [
            each.reshape(count, math.prod(each.shape[1:])).astype(np.float32)
            for each in feeds.values()
        ]
        if widths is not None:
            parts[1] = np.hstack([parts[1], np.zeros((count, 1), np.float32)])
            parts[2] = parts[2][:, :1]
        close(found, np.hstack(parts), 0)


# sequences of tokens


def counted(row: Sequence[Any], pool: Sequence[Sequence[Any]], skips: int) -> list[int]:
    """How often each sequence of *pool* is in *row*, by looking everywhere."""
    found = []
    for wanted in pool:
        steps = range(1, (1 if len(wanted) == 1 else skips + 1) + 1)
        starts = itertools.product(range(len(row)), steps)
        seen = [list(row[at::step])[: len(wanted)] for at, step in starts]
        found.append(seen.count(list(wanted)))
    return found


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("skips", [0, 2])
def test_counts_of_sequences(mode: str, named: bool, skips: int) -> None:
    pool = [(0,), (3,), (1,), (0, 0), (2, 3), (1, 2), (3, 3, 3), (0, 1, 0)]
    tokens = [f"token {n}" for n in range(4)] if named else [2**40, -5, 7, 0]
    columns = [7, 0, 3, 1, 2, 6, 5, 8]
    weights = [0.5, 2.0, 1.0, -1.0, 3.0, 0.25, 1.5, 4.0]
    random = np.random.default_rng(skips)
    known = np.array([*tokens, "none" if named else 99], object)
    flat = [tokens[n] for sequence in pool for n in sequence]
    for shape in ((4, 9), (1, 30), (2, 1), (0, 3), (3, 0), (7,)):
        x = known[random.integers(0, 5, shape)].astype(object if named else np.int64)
        node = Node(
            "TfIdfVectorizer",
            {"x": x},
            ["FLOAT"],
            domain="",
            notes=looked_up("TfIdfVectorizer") if named else [""],
            mode=mode,
            min_gram_length=1,
            max_gram_length=3,
            max_skip_count=skips,
            ngram_counts=[0, 3, 9],
            ngram_indexes=columns,
            weights=weights,
            **{"pool_strings" if named else "pool_int64s": flat},
        )
        sequences = [[tokens[n] for n in sequence] for sequence in pool]
        expected = np.zeros((math.prod(shape[:-1]), 9))
        for target, row in zip(expected, np.atleast_2d(x), strict=True):
            counts = np.array(counted(row, sequences, skips))
            counts = (counts > 0).astype(int) if mode == "IDF" else counts
            target[columns] = counts * ([1] * 8 if mode == "TF" else weights)
        close(node(x=x)[0], expected.reshape(*shape[:-1], 9), 1e-6)
