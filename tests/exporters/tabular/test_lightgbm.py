"""LightGBM's models, converted by onnxmltools, against their own predictions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("onnxmltools", reason="make test-exporters installs it")
pytest.importorskip("lightgbm", reason="make test-exporters installs it")

import lightgbm
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import DoubleTensorType, FloatTensorType
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import (
    convert_lightgbm as write_lightgbm,
)
from skl2onnx import to_onnx, update_registered_converter
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes,
)
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .comparison import assert_predicts
from .datasets import (
    BINARY,
    CLASSES,
    FEATURES,
    MIXED,
    MIXED_TARGET,
    NAMES,
    ORDINALS,
    TARGET,
    Array,
    with_gaps,
)

GAPS: Final = with_gaps(FEATURES)
OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
POSITIVE: Final = np.exp(TARGET / 4)
BRIEF: Final = {
    "n_estimators": 7,
    "min_child_samples": 4,
    "n_jobs": 1,
    "random_state": 0,
    "verbose": -1,
}


def classifier(**settings: Any) -> Any:
    return lightgbm.LGBMClassifier(**BRIEF | settings)


def regressor(**settings: Any) -> Any:
    return lightgbm.LGBMRegressor(**BRIEF | settings)


def converted(model: Any, features: Array = FEATURES, **conversion: Any) -> Any:
    kind = FloatTensorType if features.dtype == np.float32 else DoubleTensorType
    types = [("x", kind([None, features.shape[1]]))]
    return convert_lightgbm(model, initial_types=types, target_opset=15, **conversion)


@pytest.mark.filterwarnings(
    # onnxmltools declares one label
    "ignore:output 'label' has shape:onnxplug.errors.ModelWarning"
)
@pytest.mark.parametrize(
    ("target", "features"),
    [
        (BINARY, FEATURES),
        (CLASSES, FEATURES),
        (NAMES, FEATURES),
        (BINARY, GAPS),
        (CLASSES, GAPS),
    ],
    ids=["binary", "3", "names", "binary-gaps", "3-gaps"],
)
def test_classifier(target: Array, features: Array) -> None:
    fitted = classifier().fit(features, target)
    expected = [fitted.predict(features), fitted.predict_proba(features)]
    assert_predicts(converted(fitted, zipmap=False), {"x": features}, expected)


# onnxmltools 1.16 converts some otherwise than they predict, also in ONNX Runtime:
# random forests, linear trees, zeros for missing values, and one class against all.
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("estimator", "features", "target"),
    [
        pytest.param(regressor(), FEATURES, TARGET, id="squares"),
        pytest.param(regressor(), GAPS, TARGET, id="gaps"),
        pytest.param(regressor(use_missing=False), GAPS, TARGET, id="no-missing"),
        pytest.param(regressor(boosting_type="dart"), FEATURES, TARGET, id="dart"),
        pytest.param(regressor(max_depth=1), FEATURES, TARGET, id="stumps"),
        *(
            pytest.param(regressor(objective=objective), FEATURES, target, id=objective)
            for objective, target in (
                ("l1", TARGET),
                ("huber", TARGET),
                ("quantile", TARGET),
                ("poisson", POSITIVE),
                ("gamma", POSITIVE),
                ("tweedie", POSITIVE),
            )
        ),
    ],
)
def test_regressor(estimator: Any, features: Array, target: Array, dtype: Any) -> None:
    fitted = clone(estimator).fit(features, target)
    x = features.astype(dtype)
    assert_predicts(converted(fitted, x), {"x": x}, [fitted.predict(features)])


def test_categories() -> None:
    fitted = regressor(min_data_per_group=5).fit(
        MIXED, MIXED_TARGET, categorical_feature=[0]
    )
    model = converted(fitted, MIXED)
    (trees,) = (node for node in model.graph.node if node.op_type.startswith("Tree"))
    (modes,) = (each.strings for each in trees.attribute if each.name == "nodes_modes")
    assert b"BRANCH_EQ" in modes
    assert_predicts(model, {"x": MIXED}, [fitted.predict(MIXED)])


def test_ranker() -> None:
    groups = [40] * (len(FEATURES) // 40)
    fitted = lightgbm.LGBMRanker(**BRIEF).fit(FEATURES, ORDINALS, group=groups)
    assert_predicts(converted(fitted), {"x": FEATURES}, [fitted.predict(FEATURES)])


def test_booster() -> None:
    data = lightgbm.Dataset(FEATURES, TARGET)
    settings = {"objective": "regression", "num_threads": 1, "verbose": -1, "seed": 0}
    booster = lightgbm.train(settings, data, num_boost_round=9)
    assert_predicts(converted(booster), {"x": FEATURES}, [booster.predict(FEATURES)])


def test_trees_split_over_nodes() -> None:
    fitted = regressor(n_estimators=25).fit(FEATURES, TARGET)
    model = converted(fitted, split=10)
    trees = [node for node in model.graph.node if node.op_type.startswith("Tree")]
    assert len(trees) == 3
    assert_predicts(model, {"x": FEATURES}, [fitted.predict(FEATURES)])


def registered() -> None:
    """Make skl2onnx know the classifier."""
    update_registered_converter(
        lightgbm.LGBMClassifier,
        "LightGbmLGBMClassifier",
        calculate_linear_classifier_output_shapes,
        write_lightgbm,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )


def test_pipeline() -> None:
    registered()
    fitted = make_pipeline(StandardScaler(), classifier()).fit(FEATURES, NAMES)
    options = {id(fitted): {"zipmap": False}}
    model = to_onnx(fitted, FEATURES[:1], options=options, target_opset=OPSETS)
    expected = [fitted.predict(FEATURES), fitted.predict_proba(FEATURES)]
    assert_predicts(model, {"X": FEATURES}, expected)


def test_vote_with_another_library() -> None:
    registered()
    voters = [("trees", classifier()), ("line", LogisticRegression())]
    vote = VotingClassifier(voters, voting="soft", flatten_transform=False)
    fitted = vote.fit(FEATURES, CLASSES)
    options = {id(fitted): {"zipmap": False}}
    model = to_onnx(fitted, FEATURES[:1], options=options, target_opset=OPSETS)
    expected = [fitted.predict(FEATURES), fitted.predict_proba(FEATURES)]
    assert_predicts(model, {"X": FEATURES}, expected)
