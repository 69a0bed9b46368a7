"""scikit-learn's regressors, and what finds outliers and clusters, after conversion."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    IsolationForest,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    GammaRegressor,
    HuberRegressor,
    Lars,
    Lasso,
    LassoLars,
    LinearRegression,
    MultiTaskLasso,
    OrthogonalMatchingPursuit,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    SGDOneClassSVM,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import (
    KNeighborsRegressor,
    LocalOutlierFactor,
    RadiusNeighborsRegressor,
)
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR, LinearSVR, NuSVR, OneClassSVM
from sklearn.tree import DecisionTreeRegressor

from .cases import Case, each_dtype
from .comparison import FLOAT32
from .datasets import FEATURES, TARGET, TARGETS, Array

ONLY32: Final = ("float32",)
POSITIVE: Final = np.exp(TARGET / 4)
# far from the origin, from which machines of one class are told
APART: Final = (FEATURES + 4) / np.float32(4)


def numeric(estimator: Any, target: Array = TARGET, **settings: Any) -> Case:
    return Case(estimator, ("predict",), target, **settings)


LINEAR: Final = (
    numeric(LinearRegression()),
    numeric(LinearRegression(), TARGETS, name="two"),
    numeric(Ridge()),
    numeric(Lasso(alpha=0.1)),
    numeric(ElasticNet(alpha=0.1)),
    numeric(Lars()),
    numeric(LassoLars(alpha=0.01)),
    numeric(ARDRegression()),
    numeric(BayesianRidge()),
    numeric(HuberRegressor()),
    numeric(MultiTaskLasso(alpha=0.1), TARGETS),
    numeric(OrthogonalMatchingPursuit()),
    numeric(QuantileRegressor(alpha=0.01)),
    numeric(RANSACRegressor(random_state=0)),
    numeric(SGDRegressor(random_state=0)),
    numeric(LinearSVR(max_iter=10000, random_state=0)),
    numeric(PLSRegression(), TARGETS),
    numeric(GammaRegressor(), POSITIVE),
    numeric(PoissonRegressor(), POSITIVE),
    numeric(TweedieRegressor(power=1.5), POSITIVE),
    numeric(MultiOutputRegressor(Ridge()), TARGETS),
)

MACHINES: Final = (
    *(
        numeric(SVR(kernel=kernel), tolerance64=FLOAT32, name=kernel)
        for kernel in ("linear", "poly", "rbf", "sigmoid")
    ),
    numeric(NuSVR(), tolerance64=FLOAT32),
    numeric(MultiOutputRegressor(SVR()), TARGETS, tolerance64=FLOAT32),
    *(
        Case(
            OneClassSVM(kernel=kernel, nu=0.3),
            ("predict", "decision_function"),
            features=features,
            tolerance64=FLOAT32,
            name=kernel,
        )
        for kernel, features in (
            ("linear", APART),
            ("poly", APART),
            ("rbf", FEATURES),
            ("sigmoid", FEATURES),
        )
    ),
    Case(SGDOneClassSVM(random_state=0), ("predict", "decision_function")),
)


def deviation(estimator: Any, x: Array) -> Array:
    """The standard deviation of what is predicted."""
    return estimator.predict(x, return_std=True)[1]


def process(kernel: Any, name: str, **settings: Any) -> Case:
    """A Gaussian process of one kernel, left as it is."""
    gaussian = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None)
    return numeric(gaussian, name=name, tolerance=1e-4, **settings)


OTHERS: Final = (
    numeric(KNeighborsRegressor()),
    numeric(KNeighborsRegressor(), TARGETS, name="two"),
    numeric(KNeighborsRegressor(metric="minkowski", p=3), name="minkowski"),
    numeric(KNeighborsRegressor(), options={"optim": "cdist"}, name="cdist"),
    numeric(RadiusNeighborsRegressor(radius=4.0)),
    numeric(
        MLPRegressor(
            hidden_layer_sizes=(8,),
            solver="lbfgs",
            random_state=0,
            max_iter=50,
        ),
    ),
    numeric(AdaBoostRegressor(n_estimators=7, random_state=0), dtypes=ONLY32),
    numeric(BaggingRegressor(n_estimators=7, random_state=0), dtypes=ONLY32),
    numeric(VotingRegressor([("a", LinearRegression()), ("b", Ridge(10))])),
    numeric(
        StackingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3))]),
        tolerance64=FLOAT32,
    ),
    process(RBF(2.0), "rbf"),
    process(ConstantKernel(2.0) * Matern(2.0, nu=1.5) + WhiteKernel(0.1), "matern"),
    process(RationalQuadratic(2.0, 0.5), "rational"),
    process(ConstantKernel(0.5) * ExpSineSquared(9.0, 30.0), "periodic"),
    process(DotProduct(1.0), "linear"),
    Case(
        GaussianProcessRegressor(RBF(2.0), alpha=0.1, optimizer=None),
        ("predict", deviation),
        TARGET,
        options={"return_std": True},
        # in float32, subtraction leaves little of the deviations
        dtypes=("float64",),
        name="deviation",
    ),
)

UNSUPERVISED: Final = (
    Case(KMeans(4, n_init=1, random_state=0), ("predict", "transform")),
    Case(MiniBatchKMeans(4, n_init=1, random_state=0), ("predict", "transform")),
    Case(GaussianMixture(3, random_state=0), ("predict", "predict_proba")),
    *(
        Case(
            GaussianMixture(2, covariance_type=kind, random_state=0),
            ("predict", "predict_proba", "score_samples"),
            options={"score_samples": True},
            name=kind,
        )
        for kind in ("tied", "diag", "spherical")
    ),
    Case(
        BayesianGaussianMixture(n_components=2, random_state=0),
        ("predict", "predict_proba"),
    ),
    Case(
        IsolationForest(n_estimators=10, random_state=0),
        ("predict", "decision_function"),
        dtypes=ONLY32,
        # the converter refuses what it takes by default, ai.onnx.ml 4
        opsets={"": 18, "ai.onnx.ml": 3},
    ),
    Case(LocalOutlierFactor(novelty=True), ("predict", "decision_function")),
)


@each_dtype(LINEAR)
def test_linear_model(case: Case, dtype: str) -> None:
    case.check(dtype)


@each_dtype(MACHINES)
def test_support_vector_machine(case: Case, dtype: str) -> None:
    case.check(dtype)


# how well layers of perceptrons are fitted does not matter here
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge:UserWarning")
@each_dtype(OTHERS)
def test_other_regressor(case: Case, dtype: str) -> None:
    case.check(dtype)


@each_dtype(UNSUPERVISED)
def test_outliers_and_clusters(case: Case, dtype: str) -> None:
    case.check(dtype)
