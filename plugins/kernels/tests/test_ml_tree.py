"""Tree ensembles against a walk from node to node, ONNX Runtime and scikit-learn."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import ML, onnx_runtime, run

MODES = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}
NODE_FIELDS = (
    "treeids",
    "nodeids",
    "featureids",
    "modes",
    "values",
    "truenodeids",
    "falsenodeids",
    "missing_value_tracks_true",
)
FEATURES = 3
BOTH = (TensorProto.INT64, TensorProto.FLOAT)


def f32(values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def ml(op_type: str, *inputs: Any, version: int = 3, **attributes: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return run(
            op_type, *inputs, domain=ML, version=version, output_count=2, **attributes
        )


def runtime(op_type: str, *inputs: Any, **attributes: Any) -> Any:
    return onnx_runtime(op_type, *inputs, domain=ML, version=3, **attributes)


class Planted:
    """Random trees, grown node by node, that can be walked."""

    def __init__(
        self,
        seed: int,
        trees: int = 5,
        modes: tuple[str, ...] = ("BRANCH_LEQ",),
        targets: int = 1,
        votes: int = 1,
        positive: bool = False,
        missing: bool = False,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.modes, self.targets, self.votes = modes, targets, votes
        self.positive, self.missing = positive, missing
        self.nodes: dict[str, list[Any]] = {name: [] for name in NODE_FIELDS}
        self.ballots: dict[str, list[Any]] = {
            name: [] for name in ("treeids", "nodeids", "ids", "weights")
        }
        self.roots = []
        for tree in range(trees):
            self.count = 0
            self.roots.append(self.grow(tree, 4))

    def grow(self, tree: int, depth: int) -> Any:
        """One (id, mode, feature, threshold, missing, true, false) or (id, votes)."""
        number, self.count = self.count, self.count + 1
        place = len(self.nodes["nodeids"])
        for values in self.nodes.values():
            values.append(0)
        self.nodes["treeids"][place], self.nodes["nodeids"][place] = tree, number
        if not depth or self.random.random() < 0.2:
            self.nodes["modes"][place] = "LEAF"
            return number, self.vote(tree, number)
        mode = str(self.random.choice(self.modes))
        feature = int(self.random.integers(FEATURES))
        # halves, so that some features are equal to thresholds
        threshold = float(self.random.integers(-4, 5) / 2)
        missing = int(self.missing and self.random.integers(2))
        # a child may come before or after its brother
        sides: dict[str, Any] = {"true": None, "false": None}
        for side in self.random.permutation(list(sides)).tolist():
            sides[side] = self.grow(tree, depth - 1)
            self.nodes[f"{side}nodeids"][place] = sides[side][0]
        self.nodes["modes"][place] = mode
        self.nodes["featureids"][place] = feature
        self.nodes["values"][place] = threshold
        self.nodes["missing_value_tracks_true"][place] = missing
        return number, mode, feature, threshold, missing, sides["true"], sides["false"]

    def vote(self, tree: int, number: int) -> list[tuple[int, float]]:
        votes = []
        for target in self.random.choice(self.targets, self.votes, replace=False):
            weight = float(np.float32(self.random.standard_normal()))
            votes.append((int(target), abs(weight) if self.positive else weight))
            for name, value in zip(
                self.ballots, (tree, number, *votes[-1]), strict=True
            ):
                self.ballots[name].append(value)
        return votes

    def attributes(self, kind: str) -> dict[str, Any]:
        nodes = {f"nodes_{name}": tuple(v) for name, v in self.nodes.items()}
        return nodes | {f"{kind}_{name}": tuple(v) for name, v in self.ballots.items()}

    def walk(self, x: Any) -> list[list[list[tuple[int, float]]]]:
        """Of each row, in each tree, the votes of the leaf."""
        return [[self.leaf(root, row) for root in self.roots] for row in x]

    def leaf(self, node: Any, row: Any) -> Any:
        while len(node) > 2:
            _, mode, feature, threshold, missing, true, false = node
            holds = MODES[mode](row[feature], threshold)
            node = true if holds or (missing and np.isnan(row[feature])) else false
        return node[1]


def rows(missing: bool = False) -> Any:
    random = np.random.default_rng(0)
    x = random.integers(-5, 6, (40, FEATURES)) / 2
    if missing:
        x[random.random(x.shape) < 0.2] = np.nan
    return x.astype(np.float32)


def gathered(walks: Any, targets: int, aggregate: str) -> Any:
    result = np.zeros((len(walks), targets))
    for row, leaves in enumerate(walks):
        for target in range(targets):
            votes = [w for leaf in leaves for t, w in leaf if t == target]
            if votes:
                combine: Any = {"MIN": min, "MAX": max}.get(aggregate, sum)
                result[row, target] = combine(votes)
    return result / len(walks[0]) if aggregate == "AVERAGE" else result


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("targets", "votes"), [(1, 1), (4, 1), (3, 3)])
@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), tuple(MODES)])
def test_regressor(
    modes: tuple[str, ...], targets: int, votes: int, aggregate: str
) -> None:
    planted = Planted(1, modes=modes, targets=targets, votes=votes, missing=True)
    x = rows(missing=True)
    base = tuple(float(k) for k in range(1, targets + 1))
    attributes = planted.attributes("target") | {
        "n_targets": targets,
        "aggregate_function": aggregate,
        "base_values": base,
    }
    expected = gathered(planted.walk(x), targets, aggregate) + base
    result = ml("TreeEnsembleRegressor", x, **attributes)
    assert (result.dtype, result.shape) == (np.float32, (40, targets))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    # ONNX Runtime adds base values only to what got a vote
    if votes < targets:
        del attributes["base_values"]
        result = ml("TreeEnsembleRegressor", x, **attributes)
    (other,) = runtime("TreeEnsembleRegressor", x, **attributes)
    np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("post_transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_regressor_transforms(post_transform: str) -> None:
    planted = Planted(2, targets=3, votes=3)
    attributes = planted.attributes("target") | {
        "n_targets": 3,
        "post_transform": post_transform,
    }
    (expected,) = runtime("TreeEnsembleRegressor", rows(), **attributes)
    result = ml("TreeEnsembleRegressor", rows(), **attributes)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_several_votes_of_a_leaf_for_a_target(targets: int, aggregate: str) -> None:
    attributes = {
        "nodes_treeids": (0, 0, 0),
        "nodes_nodeids": (0, 1, 2),
        "nodes_featureids": (0, 0, 0),
        "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
        "nodes_values": (0.0, 0.0, 0.0),
        "nodes_truenodeids": (1, 0, 0),
        "nodes_falsenodeids": (2, 0, 0),
        "target_treeids": (0, 0, 0, 0),
        "target_nodeids": (1, 1, 2, 1),
        "target_ids": (0, 0, 0, 0),
        "target_weights": (2.0, 10.0, 5.0, 1.0),
        "n_targets": targets,
        "aggregate_function": aggregate,
    }
    x = f32([[-1], [1]])
    found = ml("TreeEnsembleRegressor", x, **attributes)
    (expected,) = runtime("TreeEnsembleRegressor", x, **attributes)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_regressor_of_other_types(dtype: Any) -> None:
    planted = Planted(3)
    x = (rows() * 2).astype(dtype)
    result = ml("TreeEnsembleRegressor", x, **planted.attributes("target"))
    assert result.dtype == np.float32
    expected = gathered(planted.walk(x), 1, "SUM")
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    one = ml("TreeEnsembleRegressor", x[0], **planted.attributes("target"))
    np.testing.assert_allclose(one, expected[:1], rtol=1e-5)


def test_tensors_keep_double_precision() -> None:
    planted = Planted(4, trees=1)
    attributes = planted.attributes("target")
    threshold = 1 + 1e-12
    attributes["nodes_values_as_tensor"] = np.full(
        len(attributes.pop("nodes_values")), threshold
    )
    attributes["target_weights_as_tensor"] = np.array(attributes.pop("target_weights"))
    attributes["base_values_as_tensor"] = np.array([0.5])
    below, above = np.full((1, FEATURES), 1.0), np.full((1, FEATURES), 1 + 1e-11)
    for x, extreme in ((below, -9.0), (above, 9.0)):
        result = ml("TreeEnsembleRegressor", x, **attributes)
        # with one threshold everywhere, rows on one side of it go one way
        way = planted.leaf(planted.roots[0], np.full(FEATURES, extreme))
        assert result.item() == pytest.approx(way[0][1] + 0.5)


def test_many_rows_are_worked_on_in_blocks() -> None:
    planted = Planted(5, trees=30)
    x = np.tile(rows(), (500, 1))
    result = ml("TreeEnsembleRegressor", x, **planted.attributes("target"))
    expected = gathered(planted.walk(rows()), 1, "SUM")
    np.testing.assert_allclose(result, np.tile(expected, (500, 1)), rtol=1e-4)
    none = ml("TreeEnsembleRegressor", x[:0], **planted.attributes("target"))
    assert none.shape == (0, 1)


@pytest.mark.parametrize("post_transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("votes", [1, 3])
def test_classifier(votes: int, base: bool, text: bool, post_transform: str) -> None:
    planted = Planted(6, trees=4, targets=3, votes=votes)
    attributes = planted.attributes("class") | {"post_transform": post_transform}
    if base:
        attributes["base_values"] = (0.5, -1.0, 0.25)
    if text:
        attributes["classlabels_strings"] = ("a", "b", "c")
    else:
        attributes["classlabels_int64s"] = (7, -1, 9)
    labels, scores = ml("TreeEnsembleClassifier", rows(), **attributes)
    kinds = (TensorProto.STRING if text else TensorProto.INT64, TensorProto.FLOAT)
    expected = runtime("TreeEnsembleClassifier", rows(), outputs=kinds, **attributes)
    assert (labels.dtype, scores.dtype) == (expected[0].dtype, np.float32)
    assert labels.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-6)


def of_one_class(planted: Planted, number: int) -> dict[str, Any]:
    attributes = planted.attributes("class") | {"classlabels_int64s": (7, -1)}
    count = len(attributes["class_ids"])
    return attributes | {"class_ids": (number,) * count}


@pytest.mark.parametrize("post_transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("positive", [False, True])
def test_two_classes_with_votes_for_one(
    positive: bool, number: int, post_transform: str
) -> None:
    attributes = of_one_class(Planted(7, trees=2, positive=positive), number)
    attributes["post_transform"] = post_transform
    bases: list[tuple[float, ...]] = [(), (-0.75,)] if number == 0 else [()]
    for base in bases:
        given = attributes | ({"base_values": base} if base else {})
        labels, scores = ml("TreeEnsembleClassifier", rows(), **given)
        expected = runtime("TreeEnsembleClassifier", rows(), outputs=BOTH, **given)
        assert labels.tolist() == expected[0].tolist()
        assert set(labels.tolist()) == {7, -1}
        np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-6)


def test_a_tie_of_trees_goes_to_the_first_class() -> None:
    # as in scikit-learn; the votes of ten of twenty trees, float32(1 / 20) each, are
    # more than 0.5, and the sum in ONNX Runtime depends on their order
    zeros = (0,) * 20
    attributes = {f"nodes_{name}": zeros for name in NODE_FIELDS} | {
        "nodes_treeids": tuple(range(20)),
        "nodes_modes": ("LEAF",) * 20,
        "nodes_values": (0.0,) * 20,
        "class_treeids": tuple(range(20)),
        "class_nodeids": zeros,
        "class_ids": zeros,
        "class_weights": (0.05,) * 10 + (0.0,) * 10,
        "classlabels_int64s": (7, -1),
    }
    x = f32([[0] * FEATURES])
    labels, scores = ml("TreeEnsembleClassifier", x, **attributes)
    assert labels.tolist() == [7]
    assert scores.tolist() == [[0.5, 0.5]]


def test_two_classes_with_votes_for_both() -> None:
    # ONNX Runtime looks at the second class alone here, and at no labels
    planted = Planted(8, targets=2, votes=2, positive=True)
    attributes = planted.attributes("class") | {"classlabels_int64s": (7, -1)}
    base = (0.5, 0.25)
    expected = gathered(planted.walk(rows()), 2, "SUM") + base
    labels, scores = ml(
        "TreeEnsembleClassifier", rows(), base_values=base, **attributes
    )
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert labels.tolist() == np.array([7, -1])[expected.argmax(axis=1)].tolist()


def in_version_5(planted: Planted) -> dict[str, Any]:
    """The attributes of ``TreeEnsemble`` for trees that were planted."""
    modes = list(MODES)
    branches: list[tuple[Any, ...]] = []
    leaves: list[tuple[int, float]] = []

    def add(node: Any) -> tuple[int, int]:
        """The place of the node, and whether it is a leaf."""
        if len(node) == 2:
            leaves.extend(node[1])
            return len(leaves) - 1, 1
        place = len(branches)
        branches.append(())
        _, mode, feature, threshold, missing, true, false = node
        branches[place] = (
            modes.index(mode), feature, threshold, missing, *add(true), *add(false)
        )  # fmt: skip
        return place, 0

    roots = [add(root) for root in planted.roots]
    assert not any(leaf for _, leaf in roots)
    columns = [*zip(*branches, strict=True)]
    targets, weights = zip(*leaves, strict=True)
    return {
        "nodes_modes": np.array(columns[0], dtype=np.uint8),
        "nodes_featureids": columns[1],
        "nodes_splits": np.array(columns[2], dtype=np.float32),
        "nodes_missing_value_tracks_true": columns[3],
        "nodes_truenodeids": columns[4],
        "nodes_trueleafs": columns[5],
        "nodes_falsenodeids": columns[6],
        "nodes_falseleafs": columns[7],
        "leaf_targetids": targets,
        "leaf_weights": np.array(weights, dtype=np.float32),
        "tree_roots": tuple(place for place, _ in roots),
        "n_targets": planted.targets,
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("aggregate", ["AVERAGE", "SUM", "MIN", "MAX"])
def test_tree_ensemble_5(aggregate: str, dtype: Any) -> None:
    planted = Planted(9, targets=3, modes=tuple(MODES), missing=True)
    attributes = in_version_5(planted)
    number = ["AVERAGE", "SUM", "MIN", "MAX"].index(aggregate)
    x = rows(missing=True).astype(dtype)
    result = ml("TreeEnsemble", x, version=5, aggregate_function=number, **attributes)
    assert result.dtype == dtype
    expected = gathered(planted.walk(x), 3, aggregate)
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("number", range(1, 5))
def test_transforms_are_numbered_in_version_5(number: int) -> None:
    planted = Planted(9, targets=3)
    attributes = in_version_5(planted)
    names = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
    result = ml("TreeEnsemble", rows(), version=5, post_transform=number, **attributes)
    older = planted.attributes("target") | {"n_targets": 3}
    expected = ml(
        "TreeEnsembleRegressor", rows(), post_transform=names[number], **older
    )
    np.testing.assert_array_equal(result, expected)


def membership() -> dict[str, Any]:
    """The first node asks for {1, 4}, its true child for {2}, its false one for {}."""
    return {
        "nodes_modes": np.array([6, 6, 6], dtype=np.uint8),
        "nodes_featureids": (0, 1, 1),
        "nodes_splits": np.zeros(3, dtype=np.float32),
        "membership_values": f32([4, 1, np.nan, 2, np.nan, np.nan]),
        "nodes_truenodeids": (1, 0, 2),
        "nodes_trueleafs": (0, 1, 1),
        "nodes_falsenodeids": (2, 1, 3),
        "nodes_falseleafs": (0, 1, 1),
        "nodes_missing_value_tracks_true": (0, 1, 0),
        "leaf_targetids": (0, 0, 0, 0),
        "leaf_weights": f32([10, 20, 30, 40]),
        "tree_roots": (0,),
        "n_targets": 1,
    }


def test_membership() -> None:
    attributes = membership()
    nan = np.nan
    x = f32([[1, 2], [4, 1], [4, nan], [2, 2], [nan, 2], [1.5, 1], [1, 4]])
    result = ml("TreeEnsemble", x, version=5, **attributes)
    assert result.ravel().tolist() == [10, 20, 10, 40, 40, 40, 20]
    with pytest.raises(ValueError, match="no membership_values"):
        ml("TreeEnsemble", x, version=5, **attributes | {"membership_values": None})
    with pytest.raises(ValueError, match=r"3 nodes test membership.* 1 sets"):
        short = {"membership_values": f32([1, nan])}
        ml("TreeEnsemble", x, version=5, **attributes | short)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "name", ["RandomForestClassifier", "GradientBoostingRegressor"]
)
def test_scikit_learn(name: str, classes: int) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    skl2onnx = pytest.importorskip("skl2onnx")
    random = np.random.default_rng(17)
    x = random.random((100, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > np.linspace(0.7, 1.2, classes - 1)[:, None]).sum(axis=0)
    model = getattr(ensemble, name)(n_estimators=8, random_state=0).fit(x, y)
    (node,) = (
        node
        for node in skl2onnx.to_onnx(model, x[:1]).graph.node
        if node.op_type.startswith("TreeEnsemble")
    )
    from onnx.helper import get_node_attr_value

    attributes: dict[str, Any] = {}
    for name_ in (attribute.name for attribute in node.attribute):
        value = get_node_attr_value(node, name_)
        if isinstance(value, list):
            value = tuple(v.decode() if isinstance(v, bytes) else v for v in value)
        attributes[name_] = value.decode() if isinstance(value, bytes) else value
    result = ml(node.op_type, x, version=1, **attributes)
    if name == "GradientBoostingRegressor":
        np.testing.assert_allclose(result[:, 0], model.predict(x), rtol=1e-4)
    else:
        assert result[0].tolist() == model.predict(x).tolist()
        np.testing.assert_allclose(result[1], model.predict_proba(x), atol=1e-5)


def test_a_tree_may_be_a_leaf() -> None:
    attributes: dict[str, Any] = {
        "nodes_treeids": (0,),
        "nodes_nodeids": (0,),
        "nodes_featureids": (0,),
        "nodes_modes": ("LEAF",),
        "nodes_values": (0.0,),
        "nodes_truenodeids": (0,),
        "nodes_falsenodeids": (0,),
        "target_treeids": (0,),
        "target_nodeids": (0,),
        "target_ids": (0,),
        "target_weights": (2.5,),
    }
    result = ml("TreeEnsembleRegressor", rows()[:2], **attributes)
    assert result.tolist() == [[2.5], [2.5]]


def test_refusals() -> None:
    attributes = Planted(1).attributes("target")

    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(ValueError, match=message):
            ml("TreeEnsembleRegressor", rows(), **attributes | changes)

    with pytest.raises(ValueError, match=r"feature 2.* has 1 features"):
        ml("TreeEnsembleRegressor", rows()[:, :1], **attributes)
    modes = attributes["nodes_modes"]
    refused("has 'BRANCH', not one of", nodes_modes=("BRANCH", *modes[1:]))
    refused("equally many of", nodes_modes=modes[1:])
    refused("aggregate_function is 'MEAN'", aggregate_function="MEAN")
    refused("votes for target 0 of 0 targets", n_targets=0)
    children = attributes["nodes_truenodeids"]
    refused("tree 0 has no node 999", nodes_truenodeids=(999, *children[1:]))
    refused("lead back", nodes_truenodeids=(0, *children[1:]))
    ids = attributes["nodes_nodeids"]
    refused("same id", nodes_nodeids=(ids[1], *ids[1:]))
