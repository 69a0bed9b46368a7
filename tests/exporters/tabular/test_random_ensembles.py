"""Random ensembles of every producer: the votes of each, to the bit.

Features are at thresholds and beside them, denormal, infinite and missing.  Leaves are
found, and votes added up, by a walk in Python as ONNX describes it: comparisons of
float32, sums in the order of the trees.  ONNX's reference adds in float32, so of that
the last digits are its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")
pytest.importorskip("onnxmltools", reason="make test-exporters installs it")
pytest.importorskip("lightgbm", reason="make test-exporters installs it")
pytest.importorskip("xgboost", reason="make test-exporters installs it")

import lightgbm
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

import onnxplug

from .datasets import Array
from .ensembles import DOMAIN, grown, tree_ensemble

FEATURES: Final = 6
ROWS: Final = 24
SPECIAL: Final = (0.0, -0.0, 1e-40, -1e-40, math.inf, -math.inf, math.nan)


class Drawn(NamedTuple):
    """What an ensemble is fitted to, and how large it becomes."""

    x: Array
    classes: Array
    numbers: Array
    trees: int
    depth: int
    seed: int


def drawn(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((80, FEATURES)).round(rng.integers(0, 3))
    classes = rng.integers(0, rng.integers(2, 5), len(x))
    classes[:4] = [0, 1, 0, 1]
    numbers = x[:, 0] * x[:, 1] + rng.standard_normal(len(x))
    trees, depth = int(rng.integers(1, 24)), int(rng.integers(1, 9))
    return Drawn(
        x, np.unique(classes, return_inverse=True)[1], numbers, trees, depth, seed
    )


def of_sklearn(classifier: Any, regressor: Any) -> Callable[[Drawn], onnx.ModelProto]:
    def model(data: Drawn) -> onnx.ModelProto:
        kind, target = (
            (classifier, data.classes) if data.seed % 2 else (regressor, data.numbers)
        )
        sizes = {"n_estimators": data.trees, "max_depth": data.depth}
        if kind.__name__.startswith("Hist"):
            sizes = {"max_iter": data.trees, "max_depth": max(2, data.depth)}
        estimator = kind(**sizes, random_state=data.seed).fit(data.x, target)
        return to_onnx(estimator, data.x[:1].astype(np.float32))

    return model


def of_isolation(data: Drawn) -> onnx.ModelProto:
    estimator = IsolationForest(n_estimators=data.trees, random_state=data.seed)
    estimator.fit(data.x)
    opsets = {"": 18, "ai.onnx.ml": 3}
    return to_onnx(estimator, data.x[:1].astype(np.float32), target_opset=opsets)


def of_lightgbm(data: Drawn) -> onnx.ModelProto:
    kind, target = (
        (lightgbm.LGBMClassifier, data.classes)
        if data.seed % 2
        else (lightgbm.LGBMRegressor, data.numbers)
    )
    x = data.x.copy()
    x[:: 2 + data.seed % 3, 0] = math.nan
    estimator = kind(
        n_estimators=data.trees,
        num_leaves=2**data.depth,
        min_child_samples=2,
        verbose=-1,
        n_jobs=1,
        random_state=data.seed,
    ).fit(x, target)
    types = [("x", FloatTensorType([None, FEATURES]))]
    return convert_lightgbm(estimator, initial_types=types, target_opset=15)


def of_xgboost(data: Drawn) -> onnx.ModelProto:
    kind, target = (
        (xgboost.XGBClassifier, data.classes)
        if data.seed % 2
        else (xgboost.XGBRegressor, data.numbers)
    )
    x = data.x.copy()
    x[:: 2 + data.seed % 3, 0] = math.nan
    sizes = {"n_estimators": data.trees, "max_depth": data.depth}
    estimator = kind(**sizes, n_jobs=1, random_state=data.seed).fit(x, target)
    types = [("x", FloatTensorType([None, FEATURES]))]
    return convert_xgboost(estimator, initial_types=types, target_opset=15)


def of_new_operator(data: Drawn) -> onnx.ModelProto:
    forest = RandomForestRegressor(
        data.trees, max_depth=data.depth, random_state=data.seed
    ).fit(data.x, data.numbers)
    trees = [grown(each.tree_) for each in forest.estimators_]
    node = tree_ensemble(trees, [0] * len(trees), "SUM", np.float32)
    return model_of(node, 1)


PRODUCERS: Final[Mapping[str, Callable[[Drawn], onnx.ModelProto]]] = {
    "forest": of_sklearn(RandomForestClassifier, RandomForestRegressor),
    "extra trees": of_sklearn(ExtraTreesClassifier, ExtraTreesRegressor),
    "boosting": of_sklearn(GradientBoostingClassifier, GradientBoostingRegressor),
    "histograms": of_sklearn(
        HistGradientBoostingClassifier, HistGradientBoostingRegressor
    ),
    "isolation": of_isolation,
    "LightGBM": of_lightgbm,
    "XGBoost": of_xgboost,
    "TreeEnsemble": of_new_operator,
}


def model_of(node: onnx.NodeProto, targets: int) -> onnx.ModelProto:
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [None, None]), ("y", [None, targets]))
    )
    opsets = [helper.make_opsetid("", 21)]
    version = 5 if node.op_type == "TreeEnsemble" else 3
    opsets.append(helper.make_opsetid(DOMAIN, version))
    graph = helper.make_graph([node], "votes", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def votes_of(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The ensembles of a model, without what becomes of their votes, and targets."""
    for node in model.graph.node:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "TreeEnsemble":
            yield node, given["n_targets"]
        if node.op_type not in ("TreeEnsembleClassifier", "TreeEnsembleRegressor"):
            continue
        prefix = "class" if node.op_type.endswith("Classifier") else "target"
        kept = {name: v for name, v in given.items() if name.startswith("nodes_")}
        for name in ("treeids", "nodeids", "ids", "weights"):
            kept[f"target_{name}"] = given[f"{prefix}_{name}"]
        kept.pop("nodes_hitrates", None)
        targets = max(kept["target_ids"]) + 1
        made = helper.make_node(
            "TreeEnsembleRegressor",
            ["x"],
            ["y"],
            domain=DOMAIN,
            n_targets=targets,
            **kept,
        )
        yield made, targets


COMPARISONS: Final[Mapping[Any, Callable[[Any, Any], Any]]] = {
    b"BRANCH_LEQ": lambda x, t: x <= t,
    b"BRANCH_LT": lambda x, t: x < t,
    b"BRANCH_GTE": lambda x, t: x >= t,
    b"BRANCH_GT": lambda x, t: x > t,
    b"BRANCH_EQ": lambda x, t: x == t,
}


class Walker:
    """Walks through the trees of a node."""

    def __init__(self, node: onnx.NodeProto, targets: int) -> None:
        self.targets = targets
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        read = self._new if node.op_type == "TreeEnsemble" else self._old
        # of a branch: feature, threshold, comparison, missing goes, true, false;
        # of a leaf its votes
        self.nodes: dict[Any, Any] = {}
        self.roots: list[Any] = []
        read(given)

    def _old(self, given: Mapping[str, Any]) -> None:
        votes: dict[Any, list[tuple[int, float]]] = {}
        for tree, node, target, weight in zip(
            *(given[f"target_{n}"] for n in ("treeids", "nodeids", "ids", "weights")),
            strict=True,
        ):
            votes.setdefault((tree, node), []).append((target, weight))
        names = "treeids nodeids featureids values modes truenodeids falsenodeids"
        columns = [given[f"nodes_{name}"] for name in names.split()]
        missing = given.get("nodes_missing_value_tracks_true") or [0] * len(columns[0])
        for tree, node, feature, value, mode, true, false, goes in zip(
            *columns, missing, strict=True
        ):
            if tree not in [root[0] for root in self.roots]:
                self.roots.append((tree, node))
            if mode == b"LEAF":
                self.nodes[tree, node] = votes.get((tree, node), [])
                continue
            below = (tree, true), (tree, false)
            test = (feature, np.float32(value), COMPARISONS[mode], goes, *below)
            self.nodes[tree, node] = test

    def _new(self, given: Mapping[str, Any]) -> None:
        splits = onnx.numpy_helper.to_array(given["nodes_splits"])
        weights = onnx.numpy_helper.to_array(given["leaf_weights"]).astype(float)
        leaves = zip(given["leaf_targetids"], weights, strict=True)
        self.nodes = {("leaf", n): [vote] for n, vote in enumerate(leaves)}
        for n, split in enumerate(splits):
            below = [
                ("leaf" if given[f"nodes_{way}leafs"][n] else "branch",
                 given[f"nodes_{way}nodeids"][n])
                for way in ("true", "false")
            ]  # fmt: skip
            feature = given["nodes_featureids"][n]
            goes = given["nodes_missing_value_tracks_true"][n]
            self.nodes["branch", n] = (
                feature,
                split,
                COMPARISONS[b"BRANCH_LEQ"],
                goes,
                *below,
            )
        self.roots = [("branch", root) for root in given["tree_roots"]]

    @property
    def thresholds(self) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for node in self.nodes.values():
            if isinstance(node, tuple):
                found.setdefault(node[0], []).append(node[1])
        return found

    def totals(self, row: Array) -> list[float]:
        found = [0.0] * self.targets
        for root in self.roots:
            node = self.nodes[root]
            while isinstance(node, tuple):
                feature, threshold, compare, goes, true, false = node
                x = row[feature]
                holds = compare(x, threshold) or (goes and np.isnan(x))
                node = self.nodes[true if holds else false]
            for target, weight in node:
                found[target] += weight
        return found


def rows_for(walker: Walker, rng: np.random.Generator) -> Array:
    """Rows of features that are at thresholds and beside them, or special."""
    thresholds = walker.thresholds
    count = max(FEATURES, max(thresholds, default=0) + 1)
    x = rng.standard_normal((ROWS, count)).astype(np.float32)
    for row, column in np.ndindex(x.shape):
        chance = rng.random()
        if chance < 0.15:
            x[row, column] = rng.choice(SPECIAL)
        elif chance < 0.6 and column in thresholds:
            at = np.float32(rng.choice(thresholds[column]))
            beside = at, np.nextafter(at, np.float32(9e9)), np.nextafter(at, -at - 1)
            x[row, column] = beside[rng.integers(3)]
    return x


def compare(producer: str, seeds: range) -> tuple[int, int, int]:
    """How many ensembles and rows, and of these how many where ONNX's reference is
    further away than its roundings."""
    ensembles = rows = apart = 0
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PRODUCERS[producer](drawn(seed))
        rng = np.random.default_rng(seed)
        for node, targets in votes_of(model):
            walker = Walker(node, targets)
            x = rows_for(walker, rng)
            alone = model_of(node, targets)
            session = onnxplug.InferenceSession(alone.SerializeToString())
            expected = np.array([walker.totals(row) for row in x]).astype(np.float32)
            for batch in (x, x[:1]):
                (found,) = session.run(None, {"x": batch})
                told = f"{producer}, seed {seed}"
                np.testing.assert_array_equal(found, expected[: len(batch)], told)
            reference: Any = ReferenceEvaluator(alone).run(None, {"x": x})
            limit = 1e-5 * max(1.0, float(np.abs(expected).max()))
            apart += int((np.abs(reference[0] - expected) > limit).any(axis=1).sum())
            ensembles += 1
            rows += len(x)
    return ensembles, rows, apart


@pytest.mark.usefixtures("integer_flags")
@pytest.mark.parametrize("producer", PRODUCERS)
def test_votes_are_those_of_a_walk(producer: str) -> None:
    ensembles, _, apart = compare(producer, range(4))
    assert (ensembles >= 4, apart) == (True, 0)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("integer_flags")
@pytest.mark.parametrize("producer", PRODUCERS)
def test_votes_of_300_ensembles(producer: str, capsys: Any) -> None:
    ensembles, rows, apart = compare(producer, range(4, 304))
    with capsys.disabled():
        print(f"\n{producer}: {ensembles} ensembles, {rows} rows to the bit; ONNX's "
              f"reference is elsewhere for {apart} rows")  # fmt: skip
    assert ensembles >= 300
