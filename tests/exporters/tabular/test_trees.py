"""scikit-learn's decision trees and their ensembles, in each version of ai.onnx.ml."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from .cases import BOTH, Case, each_dtype
from .comparison import FLOAT32, FLOAT64, assert_predicts
from .datasets import (
    BINARY,
    CLASSES,
    FEATURES,
    MIXED,
    MIXED_TARGET,
    NAMES,
    TARGET,
    TARGETS,
    TRAINING,
    Array,
    with_gaps,
)
from .ensembles import (
    DOMAIN,
    grown,
    grown_of_histograms,
    tree_ensemble,
    tree_ensemble_regressor,
)

APART: Final = {"zipmap": False}
RAW: Final = {"zipmap": False, "raw_scores": True}
GAPS: Final = with_gaps(FEATURES)
ONLY32: Final = ("float32",)


def classes(estimator: Any, target: Array = CLASSES, **settings: Any) -> Case:
    outputs = {"outputs": ("predict", "predict_proba"), "options": APART}
    dtypes = {"dtypes": ONLY32, "tolerance64": FLOAT32}
    return Case(estimator, target=target, **outputs | dtypes | settings)


def numbers(estimator: Any, target: Array = TARGET, **settings: Any) -> Case:
    return Case(estimator, ("predict",), target, dtypes=ONLY32, **settings)


def forest(kind: Any, **settings: Any) -> Any:
    return kind(n_estimators=9, random_state=0, **settings)


def boosting(kind: Any, **settings: Any) -> Any:
    return kind(max_iter=5, min_samples_leaf=4, early_stopping=False, **settings)


# skl2onnx makes valid models for float64 features of few trees, and none that follow
# the missing ones but of histograms.  It forgets what the losses of histograms that are
# not squared transform scores with.
CASES: Final = (
    classes(DecisionTreeClassifier(random_state=0)),
    classes(DecisionTreeClassifier(max_depth=3), BINARY, name="binary"),
    classes(DecisionTreeClassifier(max_depth=3), NAMES, name="names"),
    classes(ExtraTreeClassifier(random_state=0)),
    classes(forest(RandomForestClassifier), dtypes=BOTH),
    classes(forest(RandomForestClassifier), BINARY, dtypes=BOTH, name="binary"),
    classes(forest(ExtraTreesClassifier), NAMES),
    classes(forest(GradientBoostingClassifier)),
    classes(forest(GradientBoostingClassifier), BINARY, name="binary"),
    classes(forest(GradientBoostingClassifier, init="zero"), NAMES, name="zero"),
    classes(
        forest(GradientBoostingClassifier),
        outputs=("predict", "decision_function"),
        options=RAW,
        name="raw",
    ),
    numbers(DecisionTreeRegressor(random_state=0)),
    numbers(DecisionTreeRegressor(max_depth=4), TARGETS, name="two"),
    numbers(ExtraTreeRegressor(random_state=0)),
    numbers(forest(RandomForestRegressor)),
    numbers(forest(RandomForestRegressor, max_depth=4), TARGETS, name="two"),
    numbers(forest(ExtraTreesRegressor)),
    numbers(forest(GradientBoostingRegressor)),
    numbers(forest(GradientBoostingRegressor, loss="huber"), name="huber"),
    numbers(boosting(HistGradientBoostingRegressor)),
    numbers(boosting(HistGradientBoostingRegressor), features=GAPS, name="gaps"),
    classes(boosting(HistGradientBoostingClassifier), features=GAPS, name="gaps"),
    classes(
        boosting(HistGradientBoostingClassifier),
        BINARY,
        features=GAPS,
        name="binary-gaps",
    ),
)


@pytest.mark.filterwarnings(
    # skl2onnx declares one target always
    "ignore:output 'variable' has shape:onnxplug.errors.ModelWarning"
)
@pytest.mark.usefixtures("integer_flags")
@each_dtype(CASES)
def test_converted_trees(case: Case, dtype: str) -> None:
    case.check(dtype)


def paths(fitted: Any, x: Array) -> Array:
    """Of each row and tree, a 1 for each node on the way, and a 0 for all others."""
    trees = getattr(fitted, "estimators_", [fitted])
    ways = [tree.decision_path(x).toarray() for tree in trees]
    return np.array([["".join(map(str, row)) for row in way] for way in ways]).T


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=3, random_state=0),
        DecisionTreeRegressor(max_depth=3, random_state=0),
        RandomForestClassifier(5, max_depth=3, random_state=0),
        RandomForestRegressor(5, max_depth=3, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_paths_and_leaves(estimator: Any) -> None:
    options = {"decision_path": True, "decision_leaf": True}
    outputs = ("predict", paths, lambda fitted, x: fitted.apply(x))
    if is_classifier(estimator):
        options |= APART
        outputs = ("predict", "predict_proba", *outputs[1:])
    Case(estimator, outputs, CLASSES, options=options).check("float32")


def model_of(node: onnx.NodeProto, dtype: Any, base: Any = 0.0) -> onnx.ModelProto:
    """*base* and what the trees of *node* say, in the version that it came with."""
    version = {"TreeEnsembleRegressor": 3, "TreeEnsemble": 5}[node.op_type]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = element if version == 5 else TensorProto.FLOAT
    start = np.asarray(base, helper.tensor_dtype_to_np_dtype(made))
    graph = helper.make_graph(
        [node, helper.make_node("Add", ["y", "base"], ["sum"])],
        "trees",
        [helper.make_tensor_value_info("x", element, ["rows", "features"])],
        [helper.make_tensor_value_info("sum", made, ["rows", "targets"])],
        [numpy_helper.from_array(start, "base")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("write", [tree_ensemble_regressor, tree_ensemble])
@pytest.mark.parametrize("features", [FEATURES, GAPS], ids=["whole", "gaps"])
def test_forest_written_anew(features: Array, write: Any, dtype: Any) -> None:
    fitted = forest(RandomForestRegressor, max_depth=6)
    fitted.fit(features[:TRAINING], TARGET[:TRAINING])
    trees = [grown(each.tree_) for each in fitted.estimators_]
    node = write(trees, [0] * len(trees), "AVERAGE", dtype)
    x = features[TRAINING:].astype(dtype)
    tolerance = (
        FLOAT64 if node.op_type == "TreeEnsemble" and dtype is np.float64 else FLOAT32
    )
    assert_predicts(model_of(node, dtype), {"x": x}, [fitted.predict(x)], tolerance)


@pytest.mark.parametrize("write", [tree_ensemble_regressor, tree_ensemble])
def test_forest_of_classes_written_anew(write: Any) -> None:
    fitted = forest(ExtraTreesClassifier, max_depth=6)
    fitted.fit(FEATURES[:TRAINING], CLASSES[:TRAINING])
    votes = [(tree, target) for tree in fitted.estimators_ for target in range(3)]
    trees = [grown(tree.tree_, target) for tree, target in votes]
    node = write(trees, [target for _, target in votes], "SUM", np.float32)
    x = FEATURES[TRAINING:]
    expected = fitted.predict_proba(x) * len(fitted.estimators_)
    assert_predicts(model_of(node, np.float32), {"x": x}, [expected])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_categories_as_sets(dtype: Any) -> None:
    fitted = boosting(HistGradientBoostingRegressor, categorical_features=[0])
    fitted.fit(MIXED, MIXED_TARGET)
    trees = [grown_of_histograms(each) for (each,) in fitted._predictors]
    assert any(len(node.members) > 1 for tree in trees for node in tree)
    node = tree_ensemble(trees, [0] * len(trees), "SUM", dtype)
    model = model_of(node, dtype, fitted._baseline_prediction)
    tolerance = FLOAT64 if dtype is np.float64 else FLOAT32
    x = MIXED.astype(dtype)
    assert_predicts(model, {"x": x}, [fitted.predict(MIXED)], tolerance)
