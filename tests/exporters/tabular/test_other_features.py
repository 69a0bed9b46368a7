"""scikit-learn's estimators, converted for features that are integers or booleans."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

from .cases import Case, Output, each_dtype
from .datasets import CLASSES, COUNTS, FEATURES, TARGET

PROBABLE: Final = ("predict", "predict_proba")
APART: Final = {"zipmap": False}


def whole(estimator: Any, *outputs: Output, **settings: Any) -> Case:
    return Case(estimator, outputs, features=COUNTS, dtypes=("int64",), **settings)


CASES: Final = (
    *(
        whole(estimator, *PROBABLE, target=CLASSES, options=APART)
        for estimator in (
            LogisticRegression(max_iter=500),
            DecisionTreeClassifier(random_state=0),
            RandomForestClassifier(5, random_state=0),
            GaussianNB(),
            MultinomialNB(),
        )
    ),
    whole(SVC(), "predict", "decision_function", target=CLASSES, options=APART),
    *(
        whole(estimator, "predict", target=TARGET)
        for estimator in (
            LinearRegression(),
            RandomForestRegressor(5, random_state=0),
            GradientBoostingRegressor(n_estimators=5, random_state=0),
            SVR(),
            MLPRegressor(
                hidden_layer_sizes=(5,), solver="lbfgs", max_iter=30, random_state=0
            ),
        )
    ),
    *(
        whole(estimator, "transform")
        for estimator in (
            StandardScaler(),
            MinMaxScaler(),
            Normalizer(),
            KBinsDiscretizer(3, encode="ordinal", strategy="uniform"),
        )
    ),
    whole(PolynomialFeatures(), lambda fitted, x: fitted.transform(x).astype(int)),
    Case(
        DecisionTreeClassifier(random_state=0),
        PROBABLE,
        CLASSES,
        (FEATURES > 0).astype(np.float32),
        options=APART,
        dtypes=("bool",),
    ),
)


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:UserWarning")
@each_dtype(CASES)
def test_estimator(case: Case, dtype: str) -> None:
    case.check(dtype)
