"""Operators of ai.onnx.ml, row by row."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest

from . import comparison
from .comparison import assert_near, assert_same, wide
from .strategies import Array, Draw, Dtype, examples

ML: Final = "ai.onnx.ml"
SOME: Final = [0.0, 0.5, -1.5, 2.0, -0.25, 3.0]


def result_of(op_type: str, *inputs: Any, version: int = 5, **options: Any) -> Any:
    return comparison.result_of(op_type, *inputs, domain=ML, version=version, **options)


def dtype_of(draw: Draw, op_type: str, parameter: str = "T") -> Dtype:
    return draw.dtype(op_type, parameter, domain=ML)


def rows(draw: Draw, dtype: Dtype, values: Any = "ordinary") -> Array:
    return draw.array(dtype, (draw.integer(0, 4), draw.integer(1, 4)), values)


@examples(30)
def test_binarizer(draw: Draw) -> None:
    dtype = dtype_of(draw, "Binarizer")
    x, threshold = draw.array(dtype, draw.shape()), draw.one_of(SOME)
    expected = np.zeros(x.shape, dtype)
    for place in np.ndindex(x.shape):
        expected[place] = x[place] > threshold
    assert_same(result_of("Binarizer", x, threshold=threshold), expected)


@examples(30)
def test_scaler(draw: Draw) -> None:
    dtype = dtype_of(draw, "Scaler")
    x = rows(draw, dtype)
    offset, scale = (
        [draw.one_of(SOME) for _ in range(draw.one_of([1, x.shape[1]]))]
        for _ in range(2)
    )
    exact = (wide(x) - offset) * scale
    found = result_of("Scaler", x, offset=tuple(offset), scale=tuple(scale))
    assert_near(found, exact, np.float32, 2, 16)


@examples(35)
def test_normalizer(draw: Draw) -> None:
    """Of positive numbers: for others the text's formulas are not what is meant."""
    dtype = dtype_of(draw, "Normalizer")
    x = rows(draw, dtype, "positive")
    norm = draw.one_of(["MAX", "L1", "L2"])
    if draw.flag():
        x = x * dtype.type(0)  # whose norm is zero
    number = wide(x)
    size = {
        "MAX": number.max(axis=1, initial=0),
        "L1": number.sum(axis=1),
        "L2": np.sqrt((number * number).sum(axis=1)),
    }[norm]
    exact = number / np.where(size == 0, 1, size)[:, None]
    assert_near(result_of("Normalizer", x, norm=norm), exact, np.float32, 4)


@examples(35)
def test_imputer(draw: Draw) -> None:
    dtype = dtype_of(draw, "Imputer")
    x = rows(draw, dtype, "special")
    count = draw.one_of([1, x.shape[1]])
    kind = "float" if dtype.kind == "f" else "int64"
    if kind == "float":
        replaced: Any = draw.one_of([math.nan, 0.0, 1.0])
        values: tuple[Any, ...] = tuple(draw.one_of(SOME) for _ in range(count))
    else:
        replaced = draw.integer(-1, 1)
        values = tuple(draw.integer(-9, 9) for _ in range(count))
    expected = x.copy()
    for row, column in np.ndindex(x.shape):
        number = x[row, column]
        if number == replaced or (number != number and replaced != replaced):
            expected[row, column] = values[column % count]
    given = {f"replaced_value_{kind}": replaced, f"imputed_value_{kind}s": values}
    assert_same(result_of("Imputer", x, **given), expected)


@examples(30)
def test_array_feature_extractor(draw: Draw) -> None:
    x = rows(draw, dtype_of(draw, "ArrayFeatureExtractor"))
    indices = draw.integers(0, x.shape[1] - 1, (1, draw.integer(1, 4)))
    expected = np.empty((len(x), indices.size), x.dtype)
    for row, place in np.ndindex(expected.shape):
        expected[row, place] = x[row, int(indices[0, place])]
    assert_same(result_of("ArrayFeatureExtractor", x, indices), expected)


@examples(30)
def test_feature_vectorizer(draw: Draw) -> None:
    count = draw.integer(0, 3)
    widths = [draw.integer(1, 3) for _ in range(draw.integer(1, 3))]
    dtype = dtype_of(draw, "FeatureVectorizer", "T1")
    parts = [draw.array(dtype, (count, width), "whole") for width in widths]
    exact = np.concatenate([*map(wide, parts)], axis=1)
    found = result_of("FeatureVectorizer", *parts, inputdimensions=tuple(widths))
    assert_near(found, exact, np.float32, 0)


@examples(35)
def test_one_hot_encoder(draw: Draw) -> None:
    dtype = dtype_of(draw, "OneHotEncoder")
    if dtype.kind == "O":
        x = draw.array(dtype, draw.shape(0, 2))
        categories: tuple[Any, ...] = ("a", "ß", "")
        given = {"cats_strings": categories}
    else:
        x = draw.array(dtype, draw.shape(0, 2), "whole")
        categories = (1, -2, 0)
        given = {"cats_int64s": categories}
    expected = np.zeros((*x.shape, 3), np.float32)
    for place in np.ndindex(x.shape):
        if x[place] in categories:
            expected[(*place, categories.index(x[place]))] = 1
    assert_same(result_of("OneHotEncoder", x, **given), expected)


KINDS: Final = {
    "strings": (np.dtype(object), ["a", "ß", "", "b", "A"]),
    "int64s": (np.dtype(np.int64), [3, -1, 0, 2**40, 7]),
    "floats": (np.dtype(np.float32), [0.5, math.nan, -2.0, math.inf, 0.0]),
}


@examples(50)
def test_label_encoder(draw: Draw) -> None:
    source, target = draw.one_of([*KINDS]), draw.one_of([*KINDS])
    (kind, table), (other, results) = KINDS[source], KINDS[target]
    keys = [draw.one_of(table) for _ in range(draw.integer(1, 5))]
    values = [draw.one_of(results) for _ in keys]
    x = draw.of(np.array(table, kind), draw.shape(0, 2))
    default: Any = {"strings": "_Unused", "int64s": -1, "floats": -0.0}[target]
    given: dict[str, Any] = {f"keys_{source}": tuple(keys)}
    given[f"values_{target}"] = tuple(values)
    if draw.flag():
        default = results[0]
        given[f"default_{target[:-1]}"] = default
    expected = np.empty(x.shape, other)
    for place in np.ndindex(x.shape):
        expected[place] = default
        for key, value in zip(keys, values, strict=True):
            # of a repeated key the last counts, and all that are no numbers are one
            if x[place] == key or (x[place] != x[place] and key != key):
                expected[place] = value
    assert_same(result_of("LabelEncoder", x, **given), expected)


@examples(30)
def test_category_mapper(draw: Draw) -> None:
    strings, numbers = ("a", "ß", "b"), (5, -1, 7)
    known = {**dict(zip(strings, numbers, strict=True))}
    if draw.flag():
        x = draw.array(np.dtype(object), draw.shape(0, 2))
        expected = np.array([known.get(t, -9) for t in x.flat], np.int64)
    else:
        x = draw.of(np.array([5, -1, 7, 8]), draw.shape(0, 2))
        words = {number: text for text, number in known.items()}
        expected = np.array([words.get(int(n), "?") for n in x.flat], object)
    found = result_of(
        "CategoryMapper",
        x,
        cats_strings=strings,
        cats_int64s=numbers,
        default_int64=-9,
        default_string="?",
    )
    assert_same(found, expected.reshape(x.shape))


def after(scores: Array, transform: str) -> Array:
    if transform == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if transform == "SOFTMAX":
        shares = np.exp(scores)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))
    return scores


@pytest.mark.parametrize("op_type", ["LinearRegressor", "LinearClassifier"])
@examples(35)
def test_linear_models(op_type: str, draw: Draw) -> None:
    parameter = "T" if op_type == "LinearRegressor" else "T1"
    x = rows(draw, dtype_of(draw, op_type, parameter))
    # two classes may share one score, in ways of their own
    count = draw.integer(1 if op_type == "LinearRegressor" else 3, 4)
    weights = [draw.one_of(SOME) for _ in range(count * x.shape[1])]
    shifts = [draw.one_of(SOME) for _ in range(count)]
    transform = draw.one_of(["NONE", "LOGISTIC", "SOFTMAX"])
    scores = wide(x) @ np.array(weights).reshape(count, -1).T.astype(np.longdouble)
    scores = scores + shifts
    exact = after(scores, transform)
    given: dict[str, Any] = {
        "coefficients": tuple(weights),
        "intercepts": tuple(shifts),
        "post_transform": transform,
    }
    if op_type == "LinearRegressor":
        found = result_of(op_type, x, targets=count, **given)
    else:
        names = tuple("abcd"[:count])
        label, found = result_of(
            op_type, x, classlabels_strings=names, output_count=2, **given
        )
        # sums that are nearly equal may be rounded to be
        ranked = np.sort(scores, axis=1)
        clear = ranked[:, -1] - ranked[:, -2] > 1e-3
        best = [names[row.argmax()] for row in scores]
        for chosen, wanted, sure in zip(label.tolist(), best, clear, strict=True):
            assert chosen == wanted or not sure
        assert label.dtype == object
    assert_near(found, exact, np.float32, 64, 8)


class Tree:
    """A node, or a leaf when it has no children."""

    def __init__(self, draw: Draw, depth: int, features: int, targets: int) -> None:
        self.children: list[Tree] = []
        self.target, self.weight = draw.integer(0, targets - 1), draw.one_of(SOME)
        if depth:
            self.feature = draw.integer(0, features - 1)
            self.mode, self.split = draw.integer(0, 5), draw.one_of(SOME)
            self.missing = draw.integer(0, 1)
            self.children = [
                Tree(draw, draw.integer(0, depth - 1), features, targets)
                for _ in range(2)
            ]

    def leaf(self, row: Array) -> Tree:
        if not self.children:
            return self
        number, split = float(row[self.feature]), self.split
        holds = [
            number <= split,
            number < split,
            number >= split,
            number > split,
            number == split,
            number != split,
        ][self.mode]
        if math.isnan(number):
            holds = holds or bool(self.missing)
        return self.children[0 if holds else 1].leaf(row)


@examples(60)
def test_tree_ensemble(draw: Draw) -> None:
    dtype = dtype_of(draw, "TreeEnsemble")
    x = rows(draw, dtype, "special")
    targets = draw.integer(1, 3)
    trees = [
        Tree(draw, draw.integer(1, 3), x.shape[1], targets)
        for _ in range(draw.integer(1, 3))
    ]
    nodes: list[Tree] = []
    leaves: list[Tree] = []

    def numbered(tree: Tree) -> None:
        (nodes if tree.children else leaves).append(tree)
        for child in tree.children:
            numbered(child)

    for tree in trees:
        numbered(tree)
    places = [
        [(nodes if child.children else leaves).index(child) for child in node.children]
        for node in nodes
    ]
    is_leaf = [[int(not child.children) for child in node.children] for node in nodes]
    # 0: average, 1: sum, 2: smallest, 3: largest
    function = draw.integer(0, 3)
    found = result_of(
        "TreeEnsemble",
        x,
        aggregate_function=function,
        n_targets=targets,
        tree_roots=tuple(nodes.index(tree) for tree in trees),
        nodes_featureids=tuple(node.feature for node in nodes),
        nodes_modes=np.array([node.mode for node in nodes], np.uint8),
        nodes_splits=np.array([node.split for node in nodes], dtype),
        nodes_missing_value_tracks_true=tuple(node.missing for node in nodes),
        nodes_truenodeids=tuple(pair[0] for pair in places),
        nodes_falsenodeids=tuple(pair[1] for pair in places),
        nodes_trueleafs=tuple(pair[0] for pair in is_leaf),
        nodes_falseleafs=tuple(pair[1] for pair in is_leaf),
        leaf_targetids=tuple(leaf.target for leaf in leaves),
        leaf_weights=np.array([leaf.weight for leaf in leaves], dtype),
    )
    exact = np.zeros((len(x), targets), np.longdouble)
    for number, row in enumerate(x):
        for target in range(targets):
            ends = [tree.leaf(row) for tree in trees]
            weights = [leaf.weight for leaf in ends if leaf.target == target]
            if not weights:
                continue
            exact[number, target] = {
                0: lambda w: math.fsum(w) / np.longdouble(len(trees)),
                1: math.fsum,
                2: min,
                3: max,
            }[function](weights)
    assert_near(found, exact, dtype, 2)
