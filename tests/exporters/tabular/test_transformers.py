"""scikit-learn's transformers of numbers after conversion."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from sklearn.decomposition import PCA, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectKBest,
    VarianceThreshold,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

from .cases import Case, each_dtype
from .comparison import FLOAT32
from .datasets import CLASSES, COUNTS, FEATURES, Array, with_gaps

ONLY32: Final = ("float32",)
GAPS: Final = with_gaps(FEATURES)
SHARES: Final = (FEATURES - FEATURES.min()) / np.float32(16)


def dense(estimator: Any, x: Array) -> Array:
    return np.asarray(estimator.transform(x).todense())


def changed(estimator: Any, features: Array = FEATURES, **settings: Any) -> Case:
    return Case(estimator, ("transform",), features=features, **settings)


SCALERS: Final = (
    changed(StandardScaler()),
    changed(StandardScaler(with_mean=False), name="uncentred"),
    changed(StandardScaler(with_std=False), name="unscaled"),
    changed(MinMaxScaler((-1, 2))),
    changed(MinMaxScaler(clip=True), name="clip"),
    changed(MaxAbsScaler()),
    changed(RobustScaler()),
    changed(RobustScaler(with_centering=False), name="uncentred"),
    changed(Normalizer("l1"), name="l1"),
    changed(Normalizer("l2"), name="l2"),
    # that of ai.onnx.ml divides by the maximum, not by that of absolute values
    changed(Normalizer("max"), SHARES, dtypes=ONLY32, name="max"),
    changed(PowerTransformer(), dtypes=ONLY32),
    changed(PowerTransformer("box-cox"), 1 + SHARES, dtypes=ONLY32, name="box-cox"),
    changed(QuantileTransformer(n_quantiles=5)),
    changed(FunctionTransformer(), name="identity"),
)

ENCODERS: Final = (
    changed(Binarizer(threshold=0.25)),
    changed(
        KBinsDiscretizer(4, encode="ordinal", strategy="uniform"),
        dtypes=ONLY32,
        name="uniform",
    ),
    changed(
        KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
        dtypes=ONLY32,
        name="quantile",
    ),
    changed(
        KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"),
        dtypes=ONLY32,
        name="onehot",
    ),
    changed(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), COUNTS
    ),
    *(
        # what fills gaps is a float32 attribute
        changed(
            SimpleImputer(strategy=strategy, fill_value=-1.5),
            GAPS,
            tolerance64=FLOAT32,
            name=strategy,
        )
        for strategy in ("mean", "median", "most_frequent", "constant")
    ),
    changed(
        SimpleImputer(missing_values=0.0), COUNTS, tolerance64=FLOAT32, name="zeros"
    ),
    changed(KNNImputer(n_neighbors=3), GAPS, dtypes=ONLY32),
    changed(PolynomialFeatures(), dtypes=ONLY32),
    changed(PolynomialFeatures(3, interaction_only=True), dtypes=ONLY32, name="mixed"),
    *(
        Case(TfidfTransformer(norm=norm), (dense,), features=COUNTS + 1, name=norm)
        for norm in ("l1", "l2")
    ),
)

REDUCERS: Final = (
    changed(PCA(3)),
    changed(PCA(3, whiten=True), name="whiten"),
    changed(IncrementalPCA(2)),
    changed(TruncatedSVD(3, random_state=0)),
    *(
        changed(KernelPCA(3, kernel=kernel, gamma=0.2), name=kernel, tolerance=5e-5)
        for kernel in ("linear", "poly", "rbf", "sigmoid", "cosine")
    ),
    changed(GaussianRandomProjection(3, random_state=0)),
    changed(NeighborhoodComponentsAnalysis(2, random_state=0), target=CLASSES),
    changed(SelectKBest(k=2), target=CLASSES),
    changed(SelectFromModel(LogisticRegression()), target=CLASSES),
    changed(RFE(LogisticRegression(), n_features_to_select=3), target=CLASSES),
    changed(VarianceThreshold(1.0)),
    changed(FeatureUnion([("a", PCA(2)), ("b", StandardScaler())]), name="union"),
)


@each_dtype(SCALERS)
def test_scaler(case: Case, dtype: str) -> None:
    case.check(dtype)


@pytest.mark.filterwarnings(
    # a TfidfTransformer declares as many rows as it was converted for
    "ignore:output 'variable' has shape:onnxplug.errors.ModelWarning"
)
@each_dtype(ENCODERS)
def test_encoder(case: Case, dtype: str) -> None:
    case.check(dtype)


@each_dtype(REDUCERS)
def test_fewer_features(case: Case, dtype: str) -> None:
    case.check(dtype)
