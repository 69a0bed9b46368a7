"""XGBoost's models, converted by onnxmltools, against their own predictions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("onnxmltools", reason="make test-exporters installs it")
pytest.importorskip("xgboost", reason="make test-exporters installs it")

import xgboost
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import DoubleTensorType, FloatTensorType
from onnxmltools.convert.xgboost.operator_converters.XGBoost import (
    convert_xgboost as write_xgboost,
)
from skl2onnx import to_onnx, update_registered_converter
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes,
)
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from .comparison import assert_predicts
from .datasets import (
    BINARY,
    FEATURES,
    MIXED,
    MIXED_TARGET,
    ORDINALS,
    TARGET,
    Array,
    with_gaps,
)

GAPS: Final = with_gaps(FEATURES)
OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
POSITIVE: Final = np.exp(TARGET / 4)
BRIEF: Final = {"n_estimators": 7, "n_jobs": 1, "random_state": 0}
HINGE: Final = {"objective": "binary:hinge"}


def converted(model: Any, features: Array = FEATURES) -> Any:
    kind = FloatTensorType if features.dtype == np.float32 else DoubleTensorType
    types = [("x", kind([None, features.shape[1]]))]
    return convert_xgboost(model, initial_types=types, target_opset=15)


def classifier(**settings: Any) -> Any:
    return xgboost.XGBClassifier(**BRIEF | settings)


def regressor(**settings: Any) -> Any:
    return xgboost.XGBRegressor(**BRIEF | settings)


@pytest.mark.filterwarnings(
    # onnxmltools declares one probability, for hinge loss
    "ignore:output 'probabilities' has shape:onnxplug.errors.ModelWarning"
)
@pytest.mark.parametrize(
    ("estimator", "features", "target"),
    [
        pytest.param(classifier(), FEATURES, BINARY, id="binary"),
        pytest.param(classifier(), FEATURES, ORDINALS, id="3"),
        pytest.param(classifier(), GAPS, BINARY, id="binary-gaps"),
        pytest.param(classifier(), GAPS, ORDINALS, id="3-gaps"),
        pytest.param(classifier(**HINGE), GAPS, BINARY, id="hinge"),
        pytest.param(xgboost.XGBRFClassifier(**BRIEF), FEATURES, BINARY, id="forest"),
    ],
)
def test_classifier(estimator: Any, features: Array, target: Array) -> None:
    fitted = clone(estimator).fit(features, target)
    expected = [fitted.predict(features), fitted.predict_proba(features)]
    assert_predicts(converted(fitted), {"x": features}, expected)


# onnxmltools 1.16 converts some otherwise than they predict, also in ONNX Runtime:
# several targets, forests of three classes, and regression of logistic loss.
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("estimator", "features", "target"),
    [
        pytest.param(regressor(), FEATURES, TARGET, id="squares"),
        pytest.param(regressor(base_score=2.5), GAPS, TARGET, id="gaps"),
        pytest.param(
            regressor(grow_policy="lossguide", max_leaves=7), GAPS, TARGET, id="leaves"
        ),
        pytest.param(xgboost.XGBRFRegressor(**BRIEF), GAPS, TARGET, id="forest"),
        *(
            pytest.param(
                regressor(objective=objective), FEATURES, POSITIVE, id=objective
            )
            for objective in (
                "reg:absoluteerror",
                "reg:pseudohubererror",
                "reg:squaredlogerror",
                "count:poisson",
                "reg:gamma",
                "reg:tweedie",
            )
        ),
    ],
)
def test_regressor(estimator: Any, features: Array, target: Array, dtype: Any) -> None:
    fitted = clone(estimator).fit(features, target)
    x = features.astype(dtype)
    assert_predicts(converted(fitted, x), {"x": x}, [fitted.predict(features)])


def test_categories() -> None:
    types = ["c", "q", "q"]
    fitted = regressor(
        enable_categorical=True, feature_types=types, max_cat_to_onehot=1
    )
    fitted.fit(MIXED, MIXED_TARGET)
    assert_predicts(converted(fitted, MIXED), {"x": MIXED}, [fitted.predict(MIXED)])


def test_booster() -> None:
    data = xgboost.DMatrix(FEATURES, TARGET)
    settings = {"objective": "reg:squarederror", "nthread": 1, "seed": 0}
    booster = xgboost.train(settings, data, num_boost_round=9)
    assert_predicts(converted(booster), {"x": FEATURES}, [booster.predict(data)])


def test_early_stopping() -> None:
    estimator = regressor(n_estimators=60, early_stopping_rounds=2, learning_rate=1.0)
    known, held = slice(80), slice(80, None)
    fitted = estimator.fit(
        FEATURES[known],
        TARGET[known],
        eval_set=[(FEATURES[held], TARGET[held])],
        verbose=False,
    )
    assert fitted.best_iteration < 55
    assert_predicts(converted(fitted), {"x": FEATURES}, [fitted.predict(FEATURES)])


def test_pipeline() -> None:
    update_registered_converter(
        xgboost.XGBClassifier,
        "XGBoostXGBClassifier",
        calculate_linear_classifier_output_shapes,
        write_xgboost,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    fitted = make_pipeline(MinMaxScaler(), classifier()).fit(FEATURES, ORDINALS)
    options = {id(fitted): {"zipmap": False}}
    model = to_onnx(fitted, FEATURES[:1], options=options, target_opset=OPSETS)
    expected = [fitted.predict(FEATURES), fitted.predict_proba(FEATURES)]
    assert_predicts(model, {"X": FEATURES}, expected)
