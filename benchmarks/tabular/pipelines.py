"""Pipelines of scikit-learn, LightGBM and XGBoost as ONNX, fitted to made-up tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx

from .libraries import Fitted, given

Array: TypeAlias = "np.ndarray[Any, Any]"
Feeds: TypeAlias = dict[str, Array]

ROWS: Final = 2000
"""To fit to."""

OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
TOWNS: Final = ("Bergen", "Kyoto", "Lima", "Oslo", "Perth", "Quito", "Rome", "Zürich")
JOBS: Final = ("baker", "clerk", "driver", "nurse", "pilot", "smith")
WORDS: Final = tuple(
    first + last
    for first in ("ba", "do", "fe", "gri", "lo", "mu", "pra", "ste", "ti", "wo")
    for last in ("ck", "ding", "k", "lan", "mer", "n", "per", "rt", "st", "ven")
)


class Pipeline(NamedTuple):
    """What is measured.

    Attributes:
        model: converted.
        rows: feeds of some number of rows, which the pipeline was not fitted to.
        fitted: what the model was converted from.
    """

    model: onnx.ModelProto
    rows: Callable[[int], Feeds]
    fitted: Fitted


def numbers(count: int, features: int, seed: int) -> Array:
    """Features of rows, float32."""
    return np.random.default_rng(seed).normal(size=(count, features)).astype("f4")


def target(features: Array) -> Array:
    """A number that follows from features, with noise."""
    noise = np.random.default_rng(5).normal(size=len(features))
    curved = np.sin(features[:, 0]) + features[:, 1] * features[:, 2]
    found: Array = 3 * curved + features[:, 3] + noise / 4
    return found


def classes(features: Array, count: int) -> Array:
    """Classes, about equally frequent, that follow from features."""
    found = target(features)
    limits = np.quantile(found, np.arange(1, count) / count)
    return np.searchsorted(limits, found)


def people(count: int, seed: int) -> Feeds:
    """A table of columns of several types: numbers with gaps, and texts."""
    random = np.random.default_rng(seed)
    age = random.normal(40, 12, (count, 1)).astype("f4")
    income = random.lognormal(3, 1, (count, 1)).astype("f4")
    income[random.random((count, 1)) < 0.1] = np.nan
    return {
        "age": age,
        "income": income,
        "children": random.integers(0, 5, (count, 1)),
        "town": random.choice(TOWNS, (count, 1)).astype(object),
        "job": random.choice(JOBS, (count, 1)).astype(object),
    }


def texts(count: int, seed: int) -> Array:
    """Texts of twelve to sixty words, [count, 1]."""
    random = np.random.default_rng(seed)
    popular = 1 / np.arange(1, len(WORDS) + 1)
    made = [
        " ".join(random.choice(WORDS, size, p=popular / popular.sum()))
        for size in random.integers(12, 60, count)
    ]
    return np.array(made, object)[:, None]


def _converted(
    fitted: Any, types: list[tuple[str, Any]], options: Mapping[str, Any] | None = None
) -> onnx.ModelProto:
    from skl2onnx import to_onnx

    chosen = {id(fitted): dict(options)} if options else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_onnx(fitted, initial_types=types, options=chosen, target_opset=OPSETS)


def _of_numbers(
    fitted: Any, features: int, classifies: bool, *, maps: bool = False
) -> Pipeline:
    """A fitted estimator of numbers; *maps*: its probabilities come as maps."""
    from skl2onnx.common.data_types import FloatTensorType

    options = {"zipmap": maps} if classifies else None
    model = _converted(fitted, [("x", FloatTensorType([None, features]))], options)

    return Pipeline(
        model,
        lambda count: {"x": numbers(count, features, 99)},
        Fitted(fitted, "x", classifies),
    )


def logistic() -> Pipeline:
    """Two classes by a linear model of scaled features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = numbers(ROWS, 30, 1)
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return _of_numbers(fitted.fit(x, classes(x, 2)), 30, classifies=True)


def named_classes() -> Pipeline:
    """Five classes with names, as skl2onnx converts by default: with maps."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    x = numbers(ROWS, 20, 2)
    labels = np.array(TOWNS)[classes(x, 5)]
    fitted = make_pipeline(MinMaxScaler(), LogisticRegression(max_iter=500))
    return _of_numbers(fitted.fit(x, labels), 20, classifies=True, maps=True)


def _columns() -> Any:
    """Texts become ones, numbers are filled in and scaled."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer(
        [
            ("numbers", scaled, ["age", "income"]),
            ("counts", StandardScaler(), ["children"]),
            ("texts", OneHotEncoder(handle_unknown="ignore"), ["town", "job"]),
        ]
    )


def _of_people(estimator: Any, classifies: bool) -> Pipeline:
    from skl2onnx.common.data_types import (
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )
    from sklearn.pipeline import make_pipeline

    table = people(ROWS, 3)
    known = np.nan_to_num(np.hstack([table["income"], table["age"]]))
    odd = (table["town"] < "M")[:, 0]
    score = np.log1p(known[:, 0]) + known[:, 1] / 40 + odd
    wanted = np.where(score > np.median(score), "yes", "no") if classifies else score
    fitted = make_pipeline(_columns(), estimator).fit(given("frame", table), wanted)
    kinds = {"f": FloatTensorType, "i": Int64TensorType, "O": StringTensorType}
    types = [(name, kinds[x.dtype.kind]([None, 1])) for name, x in table.items()]
    model = _converted(fitted, types, {"zipmap": False} if classifies else None)

    return Pipeline(
        model, lambda count: people(count, 99), Fitted(fitted, "frame", classifies)
    )


def columns_logistic() -> Pipeline:
    """Two named classes by a linear model of a table with texts."""
    from sklearn.linear_model import LogisticRegression

    return _of_people(LogisticRegression(max_iter=500), classifies=True)


def columns_boosting() -> Pipeline:
    """A number by boosted trees of a table with texts."""
    from sklearn.ensemble import GradientBoostingRegressor

    return _of_people(GradientBoostingRegressor(random_state=0), classifies=False)


def forest() -> Pipeline:
    """Three named classes by a random forest of 100 trees."""
    from sklearn.ensemble import RandomForestClassifier

    x = numbers(ROWS, 20, 4)
    labels = np.array(JOBS)[classes(x, 3)]
    fitted = RandomForestClassifier(100, max_depth=8, random_state=0).fit(x, labels)
    return _of_numbers(fitted, 20, classifies=True)


def ridge() -> Pipeline:
    """A number by a linear model of features multiplied with each other."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    x = numbers(ROWS, 8, 6)
    fitted = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())
    return _of_numbers(fitted.fit(x, target(x)), 8, classifies=False)


def perceptron() -> Pipeline:
    """Four classes by a small network of principal components."""
    from sklearn.decomposition import PCA
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    x = numbers(ROWS, 24, 7)
    network = MLPClassifier((64, 32), max_iter=60, random_state=0)
    fitted = make_pipeline(PCA(16), network).fit(x, classes(x, 4))
    return _of_numbers(fitted, 24, classifies=True)


def support_vectors() -> Pipeline:
    """Three classes with probabilities by support vectors."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    x = numbers(ROWS // 2, 12, 8)
    fitted = make_pipeline(StandardScaler(), SVC(probability=True, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(x, classes(x, 3))
    return _of_numbers(fitted, 12, classifies=True)


def support_regressor() -> Pipeline:
    """A number by support vectors."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    x = numbers(ROWS // 2, 12, 9)
    fitted = make_pipeline(StandardScaler(), SVR()).fit(x, target(x))
    return _of_numbers(fitted, 12, classifies=False)


def tf_idf() -> Pipeline:
    """Three classes of texts by their words and pairs of words."""
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = texts(ROWS // 4, 10)
    wanted = np.array([len(row[0]) % 3 for row in words])
    vectors = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=r"[a-zA-Z]+", max_features=1000
    )
    fitted = make_pipeline(vectors, LogisticRegression()).fit(words[:, 0], wanted)
    model = _converted(fitted, [("x", StringTensorType([None, 1]))], {"zipmap": False})

    for node in model.graph.node:
        if node.op_type == "StringNormalizer":  # few machines have the default
            node.attribute.append(onnx.helper.make_attribute("locale", "C"))

    return Pipeline(
        model,
        lambda count: {"x": texts(count, 99)},
        Fitted(fitted, "texts", classifies=True),
    )


def _of_boosting(
    fitted: Any, convert: Any, features: int, classifies: bool
) -> Pipeline:
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, features]))]
    options = {"zipmap": False} if classifies and "lightgbm" in str(convert) else {}
    model = convert(fitted, initial_types=types, target_opset=15, **options)

    return Pipeline(
        model,
        lambda count: {"x": numbers(count, features, 99)},
        Fitted(fitted, "x", classifies),
    )


def lightgbm_classifier() -> Pipeline:
    """Two classes by LightGBM."""
    from lightgbm import LGBMClassifier
    from onnxmltools import convert_lightgbm

    x = numbers(ROWS, 28, 11)
    fitted = LGBMClassifier(n_estimators=100, n_jobs=1, random_state=0, verbose=-1)
    fitted.fit(x, classes(x, 2))
    return _of_boosting(fitted, convert_lightgbm, 28, classifies=True)


def xgboost_classifier() -> Pipeline:
    """Three classes by XGBoost."""
    from onnxmltools import convert_xgboost
    from xgboost import XGBClassifier

    x = numbers(ROWS, 28, 13)
    fitted = XGBClassifier(n_estimators=50, n_jobs=1, random_state=0, max_depth=5)
    fitted.fit(x, classes(x, 3))
    return _of_boosting(fitted, convert_xgboost, 28, classifies=True)


def lightgbm_regressor() -> Pipeline:
    """A number by LightGBM."""
    from lightgbm import LGBMRegressor
    from onnxmltools import convert_lightgbm

    x = numbers(ROWS, 28, 12)
    fitted = LGBMRegressor(n_estimators=60, n_jobs=1, random_state=0, verbose=-1)
    return _of_boosting(
        fitted.fit(x, target(x)), convert_lightgbm, 28, classifies=False
    )


def xgboost_regressor() -> Pipeline:
    """A number by XGBoost."""
    from onnxmltools import convert_xgboost
    from xgboost import XGBRegressor

    x = numbers(ROWS, 28, 14)
    fitted = XGBRegressor(n_estimators=60, n_jobs=1, random_state=0, max_depth=6)
    return _of_boosting(fitted.fit(x, target(x)), convert_xgboost, 28, classifies=False)


PIPELINES: Final[Mapping[str, Callable[[], Pipeline]]] = {
    "logistic": logistic,
    "named-classes": named_classes,
    "columns-logistic": columns_logistic,
    "columns-boosting": columns_boosting,
    "forest": forest,
    "ridge": ridge,
    "perceptron": perceptron,
    "svc": support_vectors,
    "svr": support_regressor,
    "tf-idf": tf_idf,
    "lightgbm": lightgbm_classifier,
    "lightgbm-regressor": lightgbm_regressor,
    "xgboost": xgboost_classifier,
    "xgboost-regressor": xgboost_regressor,
}
"""What is measured, by name."""
