"""Classifiers of several targets or labels at once, and searches, after conversion."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import onnxplug

from .cases import Case, each_dtype
from .comparison import FLOAT32, assert_close
from .datasets import BINARY, CLASSES, FEATURES, TARGET, TRAINING, Array

APART: Final = {"zipmap": False}
ONLY32: Final = ("float32",)
LABELS: Final = np.stack([BINARY, TARGET > 1, FEATURES[:, 0] > 0], axis=1).astype(int)
"""Three labels that a row has or has not, of shape [rows, 3]."""

CASES: Final = (
    Case(
        OneVsRestClassifier(LogisticRegression()),
        ("predict", "predict_proba"),
        LABELS,
        options=APART,
        name="labels",
    ),
    Case(
        MLPClassifier((5,), solver="lbfgs", max_iter=30, random_state=0),
        ("predict", "predict_proba"),
        LABELS,
        options=APART,
        name="labels",
    ),
    Case(
        GridSearchCV(SVC(), {"C": [0.1, 1.0]}, cv=2),
        ("predict", "decision_function"),
        CLASSES,
        options=APART,
        dtypes=ONLY32,
    ),
    Case(
        GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
        ("predict", "predict_proba"),
        CLASSES,
        options=APART,
        name="linear",
    ),
    Case(
        TunedThresholdClassifierCV(LogisticRegression(), cv=2, random_state=0),
        ("predict", lambda search, x: search.estimator_.predict_proba(x)),
        BINARY,
        dtypes=ONLY32,
    ),
)


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:UserWarning")
@each_dtype(CASES)
def test_classifier(case: Case, dtype: str) -> None:
    case.check(dtype)


@pytest.mark.parametrize(
    ("estimator", "targets"),
    [
        (MultiOutputClassifier(LogisticRegression()), LABELS),
        # not equally many classes for each target
        (MultiOutputClassifier(LogisticRegression()), np.stack([CLASSES, BINARY], 1)),
        (KNeighborsClassifier(), LABELS),
        (RandomForestClassifier(5, max_depth=3, random_state=0), LABELS),
    ],
    ids=["each", "uneven", "neighbours", "forest"],
)
def test_probabilities_by_target(estimator: Any, targets: Array) -> None:
    fitted = estimator.fit(FEATURES[:TRAINING], targets[:TRAINING])
    x = FEATURES[TRAINING:]
    model = to_onnx(fitted, x[:1], options={id(fitted): APART})
    session = onnxplug.InferenceSession(model.SerializeToString())
    for rows in (x, x[:1]):
        # the probabilities are a sequence, or an array of one more axis
        labels, shares = session.run(None, {"X": rows})
        assert labels.tolist() == fitted.predict(rows).tolist()
        for found, expected in zip(shares, fitted.predict_proba(rows), strict=True):
            assert_close(found, expected, FLOAT32)
