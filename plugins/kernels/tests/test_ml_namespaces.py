"""Classical models on several array libraries, beside numpy's results.

What is right is tested on numpy, against ONNX Runtime and scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels import find_kernel

from .libraries import assert_close
from .node_oracles import ML
from .test_ml_svm import KERNELS, TRANSFORMS, machine
from .test_ml_tree import MODES, Planted, membership, rows

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
X[1] = 0
NAN = float("nan")


def compare(
    library: Any, xp: Any, op_type: str, x: Any, version: int = 3, **attributes: Any
) -> tuple[Any, ...]:
    """The results, after they were compared with numpy's."""
    kernel = find_kernel(ML, op_type, version)
    assert kernel is not None and not kernel.host_only
    with np.errstate(all="ignore"):
        expected = kernel.bind(np, attributes, output_count=2)(x)
        results = kernel.bind(library, attributes, output_count=2)(xp.from_numpy(x))
    if not isinstance(expected, tuple):
        expected, results = (expected,), (results,)
    kind = type(xp.from_numpy(np.zeros(1)))
    for found, right in zip(results, expected, strict=True):
        if right.dtype == object:  # which is on the host
            assert found.tolist() == right.tolist()
        else:
            assert isinstance(found, kind)
            assert_close(xp.to_numpy(found), right, 1e-5, 1e-6)
    return tuple(results)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Binarizer", {"threshold": 0.2}),
        ("Imputer", {"imputed_value_floats": (0.5, 2.0, -1.0)}),
        ("Normalizer", {"norm": "L2"}),
        ("Normalizer", {"norm": "MAX"}),
        ("Scaler", {"offset": (0.5,), "scale": (2.0, 1.0, -3.0)}),
        ("FeatureVectorizer", {"inputdimensions": (5,)}),
        ("OneHotEncoder", {"cats_int64s": (1, 0, -1)}),
        (
            "LinearRegressor",
            {
                "coefficients": tuple(np.linspace(-1, 1, 6)),
                "intercepts": (0.5, -0.5),
                "targets": 2,
                "post_transform": "SOFTMAX_ZERO",
            },
        ),
    ],
)
def test_features(
    library: Any, xp: Any, op_type: str, attributes: dict[str, Any]
) -> None:
    compare(library, xp, op_type, X, **attributes)


def test_columns_count_from_the_back(library: Any, xp: Any) -> None:
    kernel = find_kernel(ML, "ArrayFeatureExtractor", 1)
    assert kernel is not None and not kernel.host_only
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    bound = kernel.bind(library, {}, output_count=1)
    found = bound(xp.from_numpy(x), xp.from_numpy(np.array([[-1, 0]])))
    np.testing.assert_array_equal(xp.to_numpy(found), x[:, [-1, 0]])
    with pytest.raises(IndexError):
        bound(xp.from_numpy(x), xp.from_numpy(np.array([4])))


@pytest.mark.parametrize(
    "keys",
    [
        {"keys_int64s": (5, -1, 5, 0)},
        {"keys_floats": (5.0, -1.0, NAN, 0.0)},
        {"keys_floats": (NAN, NAN, NAN, NAN)},
        {"keys_tensor": np.array([5, -1, 0, 7], np.int32)},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "values",
    [
        {"values_int64s": (1, 2, 3, 4), "default_int64": 9},
        {"values_floats": (1.0, 2.0, 3.0, 4.0)},
        {"values_strings": ("a", "b", "c", "d")},
        {
            "values_tensor": np.array([1, 2, 3, 4], np.int16),
            "default_tensor": np.array([7], np.int16),
        },
    ],
    ids=str,
)
def test_labels(library: Any, xp: Any, keys: Any, values: Any) -> None:
    (name,) = keys
    dtype = {"keys_int64s": "q", "keys_floats": "f", "keys_tensor": "i"}[name]
    x = np.array([[5, -1, 0], [1, 8, 5]], dtype)
    if dtype == "f":
        x[1, 1] = NAN
    for each in (x, x[0, 0].reshape(()), x[:, :0]):
        compare(library, xp, "LabelEncoder", each, **keys, **values)


@pytest.mark.parametrize(
    "labels", [{"classlabels_ints": (5, -1, 7)[:n]} for n in (2, 3)]
)
@pytest.mark.parametrize("post_transform", TRANSFORMS)
def test_linear_classifiers(
    library: Any, xp: Any, labels: dict[str, Any], post_transform: str
) -> None:
    # of two classes one score
    count = 3 if len(labels["classlabels_ints"]) == 3 else 1
    attributes = {
        "coefficients": tuple(np.linspace(-1, 1, 3 * count).tolist()),
        "intercepts": (0.1, -0.2, 0.3)[:count],
        "post_transform": post_transform,
    }
    x = X.astype(np.float64)  # in which roundings do not grow
    compare(library, xp, "LinearClassifier", x, **labels, **attributes)
    texts = {"classlabels_strings": ("a", "b", "c")[: len(labels["classlabels_ints"])]}
    compare(library, xp, "LinearClassifier", x, **texts, **attributes)


@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 4])
def test_support_vectors(
    library: Any, xp: Any, classes: int, kernel: str, probability: bool
) -> None:
    attributes = machine(classes, kernel, probability)
    for x in (X, X[:0]):
        compare(library, xp, "SVMClassifier", x, **attributes)
    regression = {
        "coefficients": (0.5, -1.0),
        "support_vectors": (1.0, 2.0, 3.0, -1.0, 0.0, 1.0),
        "n_supports": 2,
        "rho": (0.1,),
        "kernel_type": kernel,
        "kernel_params": (0.5, 0.25, 3.0),
    }
    for one_class in (0, 1):
        compare(library, xp, "SVMRegressor", X, one_class=one_class, **regression)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [("BRANCH_LEQ",), tuple(MODES)], ids=["one", "all"])
def test_trees(library: Any, xp: Any, modes: tuple[str, ...], aggregate: str) -> None:
    planted = Planted(1, modes=modes, targets=4, votes=1, missing=True)
    attributes = planted.attributes("target") | {
        "n_targets": 4,
        "aggregate_function": aggregate,
        "base_values": (1.0, 2.0, 3.0, 4.0),
    }
    for x in (rows(missing=True), rows()[:0]):
        compare(library, xp, "TreeEnsembleRegressor", x, **attributes)


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": (3, 5)}, {"classlabels_strings": ("a", "b")}]
)
@pytest.mark.parametrize("targets", [1, 2])
def test_classes_of_trees(
    library: Any, xp: Any, labels: dict[str, Any], targets: int
) -> None:
    planted = Planted(2, targets=targets, votes=targets)
    attributes = planted.attributes("class") | labels
    for base in ({}, {"base_values": (0.5,)}, {"base_values": (0.5, -0.5)}):
        compare(
            library, xp, "TreeEnsembleClassifier", rows(), **attributes | base,
            post_transform="LOGISTIC",
        )  # fmt: skip


def test_sets_that_trees_ask_for(library: Any, xp: Any) -> None:
    x = np.array([[1, 2], [4, 1], [4, NAN], [2, 2], [NAN, 2], [1.5, 1]], np.float32)
    (scores,) = compare(library, xp, "TreeEnsemble", x, version=5, **membership())
    assert xp.to_numpy(scores).ravel().tolist() == [10, 20, 10, 40, 40, 40]
