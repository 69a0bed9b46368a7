"""Pipelines of mixed columns, maps of probabilities, opsets, and no rows at all."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")
pytest.importorskip("pandas", reason="make test-exporters installs it")

import pandas
from skl2onnx import to_onnx
from skl2onnx.common.data_types import (
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import SVC, SVR

import onnxplug

from .cases import Case
from .comparison import FLOAT32, assert_close, assert_predicts
from .datasets import (
    BINARY,
    CLASSES,
    FEATURES,
    NAMES,
    TARGET,
    TRAINING,
    Array,
    with_gaps,
)

APART: Final = {"zipmap": False}
"""Asks for probabilities as an array, and not as maps by label."""


def frame() -> Any:
    """A table of text, whole numbers and floats that has gaps."""
    random = np.random.default_rng(5)
    rows = len(FEATURES)
    towns = random.choice(["Oslo", "Rome", "Zürich"], rows).astype(object)
    towns[TRAINING::6] = "Atlantis"
    return pandas.DataFrame(
        {
            "town": towns,
            "door": random.integers(0, 4, rows),
            "size": FEATURES[:, 0],
            "age": with_gaps(FEATURES)[:, 1],
        }
    )


TYPES: Final = [
    ("town", StringTensorType([None, 1])),
    ("door", Int64TensorType([None, 1])),
    ("size", FloatTensorType([None, 1])),
    ("age", FloatTensorType([None, 1])),
]


@pytest.mark.parametrize(
    "target", [BINARY, CLASSES, NAMES], ids=["binary", "3", "names"]
)
@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), RandomForestClassifier(9, max_depth=4, random_state=0)],
    ids=["linear", "forest"],
)
def test_mixed_columns(model: Any, target: Array) -> None:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [
            ("towns", OneHotEncoder(handle_unknown="ignore"), ["town"]),
            ("doors", OrdinalEncoder(), ["door"]),
            ("numbers", numbers, ["size", "age"]),
        ]
    )
    table = frame()
    fitted = make_pipeline(columns, clone(model))
    fitted.fit(table[:TRAINING], target[:TRAINING])
    converted = to_onnx(fitted, initial_types=TYPES, options={id(fitted): APART})
    rows = table[TRAINING:]
    feeds = {name: rows[[name]].to_numpy() for name in rows}
    feeds |= {name: feeds[name].astype(np.float32) for name in ("size", "age")}
    expected = [fitted.predict(rows), fitted.predict_proba(rows)]
    assert_predicts(converted, feeds, expected)


def test_columns_of_one_array() -> None:
    columns = ColumnTransformer(
        [
            ("scaled", StandardScaler(), [0, 3]),
            ("bins", KBinsDiscretizer(3, encode="ordinal", strategy="uniform"), [1]),
            ("both", FeatureUnion([("pca", PCA(2)), ("norm", Normalizer())]), [2, 4]),
        ],
        remainder="passthrough",
    )
    fitted = make_pipeline(columns, SVR()).fit(FEATURES[:TRAINING], TARGET[:TRAINING])
    x = FEATURES[TRAINING:]
    assert_predicts(to_onnx(fitted, x[:1]), {"X": x}, [fitted.predict(x)])


@pytest.mark.parametrize(
    "labels", [BINARY, CLASSES, NAMES], ids=["binary", "3", "names"]
)
@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), RandomForestClassifier(9, random_state=0), GaussianNB()],
    ids=["linear", "forest", "bayes"],
)
def test_maps_of_probabilities(model: Any, labels: Array) -> None:
    fitted = clone(model).fit(FEATURES, labels)
    x = FEATURES[:7]
    converted = to_onnx(fitted, x[:1])
    assert "ZipMap" in [node.op_type for node in converted.graph.node]
    session = onnxplug.InferenceSession(converted.SerializeToString())
    for rows in (x, x[:1], x[:0]):
        found, maps = session.run(None, {"X": rows})
        assert len(found) == len(maps) == len(rows)
        if not len(rows):
            continue
        assert found.tolist() == fitted.predict(rows).tolist()
        assert all(list(each) == fitted.classes_.tolist() for each in maps)
        values = np.array([list(each.values()) for each in maps])
        assert_close(values, fitted.predict_proba(rows), FLOAT32)


@pytest.mark.parametrize("labels", [CLASSES, NAMES], ids=["3", "names"])
def test_probabilities_as_columns(labels: Array) -> None:
    fitted = RandomForestClassifier(9, random_state=0).fit(FEATURES, labels)
    options = {id(fitted): {"zipmap": "columns"}}
    converted = to_onnx(fitted, FEATURES[:1], options=options)
    expected = [fitted.predict(FEATURES), *fitted.predict_proba(FEATURES).T]
    assert_predicts(converted, {"X": FEATURES}, expected)


def classes(estimator: Any) -> Case:
    return Case(estimator, ("predict", "predict_proba"), CLASSES, options=APART)


FAMILIES: Final = {
    "linear": classes(make_pipeline(StandardScaler(), LogisticRegression())),
    "forest": classes(RandomForestClassifier(7, random_state=0)),
    "boosting": classes(GradientBoostingClassifier(n_estimators=7, random_state=0)),
    "machine": Case(SVC(), ("predict", "decision_function"), CLASSES, options=APART),
    "bayes": classes(GaussianNB()),
    "neighbours": classes(KNeighborsClassifier()),
    "layers": classes(MLPClassifier((6,), solver="lbfgs", max_iter=30, random_state=0)),
    "regression": Case(
        make_pipeline(Normalizer(), LinearRegression()), ("predict",), TARGET
    ),
    "regression-forest": Case(
        RandomForestRegressor(7, random_state=0), ("predict",), TARGET
    ),
    "means": Case(KMeans(3, n_init=1, random_state=0), ("predict", "transform")),
}


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:UserWarning")
@pytest.mark.parametrize("version", [10, 12, 13, 15, 18, 21])
@pytest.mark.parametrize("family", FAMILIES)
def test_opset(family: str, version: int) -> None:
    ml = 1 if version < 13 else 2 if version < 15 else 3
    case = FAMILIES[family]
    model = case.check("float32", {"": version, "ai.onnx.ml": ml})
    for each in model.opset_import:
        assert each.version <= (ml if each.domain == "ai.onnx.ml" else version)


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_rows(family: str) -> None:
    model = FAMILIES[family].converted()
    session = onnxplug.InferenceSession(model.SerializeToString())
    some = session.run(None, {"X": FEATURES[:3]})
    none = session.run(None, {"X": FEATURES[:0]})
    for found, like in zip(none, some, strict=True):
        assert found.dtype == like.dtype
        assert found.shape == (0, *like.shape[1:])
