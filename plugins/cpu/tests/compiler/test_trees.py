"""Tree ensembles compiled, against walks in Python as ONNX describes them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import onnxplug

from .rarely import crossed

Array = np.ndarray[Any, Any]

COMPARISONS = {
    "BRANCH_LEQ": lambda x, t: x <= t,
    "BRANCH_LT": lambda x, t: x < t,
    "BRANCH_GT": lambda x, t: x > t,
    "BRANCH_GTE": lambda x, t: x >= t,
    "BRANCH_EQ": lambda x, t: x == t,
    "BRANCH_NEQ": lambda x, t: x != t,
}
NUMBERS = [-math.inf, -1.0, -0.5, -0.0, 0.0, 1e-40, -1e-40, 0.5, 1.0, 3e38, math.inf]
FEATURES = 5


class Ensemble:
    """Random trees, as attributes and to walk through."""

    def __init__(
        self,
        chance: random.Random,
        trees: int,
        depth: int,
        targets: int,
        *,
        modes: Sequence[str] = tuple(COMPARISONS),
        missing: bool = True,
        sole: int | None = None,
        votes: int = 1,
    ) -> None:
        self.chance, self.targets = chance, targets
        self.modes, self.missing, self.sole = list(modes), missing, sole
        self.nodes: list[dict[str, Any]] = []
        self.votes: list[tuple[int, int, int, float]] = []
        self.votes_of_leaf = votes
        self.roots = [self._grow(tree, depth, [0]) for tree in range(trees)]

    def _grow(self, tree: int, depth: int, count: list[int]) -> dict[str, Any]:
        chance = self.chance
        node: dict[str, Any] = {"tree": tree, "id": count[0]}
        count[0] += 1
        self.nodes.append(node)
        if depth == 0 or chance.random() < 0.15:
            node["mode"] = "LEAF"
            node["votes"] = [
                (
                    chance.randrange(self.targets) if self.sole is None else self.sole,
                    float(np.float32(chance.gauss(0, 1))),
                )
                for _ in range(self.votes_of_leaf)
            ]
            self.votes += [(tree, node["id"], *vote) for vote in node["votes"]]
            return node
        node["mode"] = chance.choice(self.modes)
        node["feature"] = chance.randrange(FEATURES)
        common = chance.random() < 0.7
        value = chance.choice(NUMBERS) if common else chance.gauss(0, 1)
        node["value"] = float(np.float32(value))
        node["missing"] = int(self.missing and chance.random() < 0.5)
        node["true"] = self._grow(tree, depth - 1, count)
        node["false"] = self._grow(tree, depth - 1, count)
        return node

    def attributes(self, votes: str) -> dict[str, Any]:
        def of(name: str, absent: Any = 0) -> list[Any]:
            return [node.get(name, absent) for node in self.nodes]

        def ids(name: str) -> list[int]:
            return [node[name]["id"] if name in node else 0 for node in self.nodes]

        trees, nodes, targets, weights = zip(*self.votes, strict=True)
        return {
            "nodes_treeids": of("tree"),
            "nodes_nodeids": of("id"),
            "nodes_featureids": of("feature"),
            "nodes_modes": of("mode"),
            "nodes_values": of("value", 0.0),
            "nodes_missing_value_tracks_true": of("missing"),
            "nodes_truenodeids": ids("true"),
            "nodes_falsenodeids": ids("false"),
        } | {
            "_".join((votes, name)): values
            for name, values in (
                ("treeids", trees),
                ("nodeids", nodes),
                ("ids", targets),
                ("weights", weights),
            )
        }

    def totals(self, row: Array, aggregate: str) -> list[float]:
        """The votes for each target put together; NaN for none."""
        found: list[list[float]] = [[] for _ in range(self.targets)]
        for root in self.roots:
            node = root
            while node["mode"] != "LEAF":
                x = row[node["feature"]]
                holds = COMPARISONS[node["mode"]](x, np.float32(node["value"]))
                holds = holds or (node["missing"] and bool(np.isnan(x)))
                node = node["true" if holds else "false"]
            counted = node["votes"][:1] if self.targets == 1 else node["votes"]
            for target, weight in counted:
                found[target].append(weight)
        return [_joined(votes, aggregate, len(self.roots)) for votes in found]


def _joined(votes: list[float], aggregate: str, trees: int) -> float:
    if not votes:
        return math.nan
    if aggregate in ("MIN", "MAX"):
        return min(votes) if aggregate == "MIN" else max(votes)
    total = 0.0
    for vote in votes:
        total += vote
    return total / trees if aggregate == "AVERAGE" else total


def rows_of(chance: random.Random, count: int) -> Array:
    numbers = [*NUMBERS, math.nan, *(chance.gauss(0, 1) for _ in range(9))]
    chosen = [chance.choice(numbers) for _ in range(count * FEATURES)]
    return np.array(chosen, np.float32).reshape(count, FEATURES)


def model_of(op_type: str, outputs: Mapping[str, int], **attributes: Any) -> bytes:
    given = {name: value for name, value in attributes.items() if value != []}
    node = onnx.helper.make_node(
        op_type, ["x"], list(outputs), domain="ai.onnx.ml", **given
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "trees",
        [info("x", 1, ["rows", FEATURES])],
        [info(name, type_, None) for name, type_ in outputs.items()],
    )
    model = onnx.helper.make_model(
        graph,
        opset_imports=[
            onnx.helper.make_opsetid("", 21),
            onnx.helper.make_opsetid("ai.onnx.ml", 3),
        ],
        ir_version=10,
    )
    return model.SerializeToString()


def compiled(model: bytes) -> onnxplug.InferenceSession:
    made = onnxplug.InferenceSession(model)
    assert {each.tier for each in made.explain().nodes} == {"compiled"}
    return made


@pytest.mark.parametrize(
    ("seed", "aggregate"), crossed(range(12), ["SUM", "AVERAGE", "MIN", "MAX"])
)
def test_regressors(seed: int, aggregate: str) -> None:
    chance = random.Random(seed)
    targets = 1 + seed % 3
    trees = Ensemble(
        chance,
        chance.randint(1, 21),
        chance.randint(0, 6),
        targets,
        modes=["BRANCH_LEQ"] if seed % 4 == 0 else tuple(COMPARISONS),
        missing=seed % 3 != 1,
        votes=1 + seed % 2,
    )
    base = [0.25] * targets if seed % 5 == 0 else []
    model = model_of(
        "TreeEnsembleRegressor",
        {"y": 1},
        n_targets=targets,
        aggregate_function=aggregate,
        base_values=base,
        **trees.attributes("target"),
    )
    made = compiled(model)
    for count in (0, 1, 7, 8, 150):
        x = rows_of(chance, count)
        (found,) = made.run(None, {"x": x})
        totals = np.array([trees.totals(row, aggregate) for row in x])
        expected = np.nan_to_num(totals.reshape(count, targets), nan=0.0, posinf=np.inf)
        expected = (expected + (0.25 if base else 0)).astype(np.float32)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["SUM", "AVERAGE", "classes", "second"])
@pytest.mark.parametrize("seed", range(4))
def test_trees_that_vote_for_one_target_each(seed: int, kind: str) -> None:
    chance, targets = random.Random(seed), 2 if kind == "second" else 3
    trees = Ensemble(chance, 4 + seed, 5, targets, missing=seed % 2 == 0)

    def target_of(tree: int) -> int:
        return 1 if kind == "second" else tree % targets

    for node in trees.nodes:
        if node["mode"] == "LEAF":
            node["votes"] = [(target_of(node["tree"]), w) for _, w in node["votes"]]
    trees.votes = [(t, n, target_of(t), w) for t, n, _, w in trees.votes]
    outputs = {"y": 1}
    about: dict[str, Any] = {"n_targets": targets, "aggregate_function": kind}
    if kind in ("classes", "second"):
        outputs, about = {"label": 7, "y": 1}, {"classlabels_int64s": [*range(targets)]}
    votes = "target" if len(outputs) == 1 else "class"
    op_type = f"TreeEnsemble{'Regressor' if votes == 'target' else 'Classifier'}"
    made = compiled(model_of(op_type, outputs, **about, **trees.attributes(votes)))
    aggregate = kind if votes == "target" else "SUM"
    for count in (1, 5, 9, 16, 17, 140):
        x = rows_of(chance, count)
        *labels, scores = made.run(None, {"x": x})
        totals = np.array([trees.totals(row, aggregate) for row in x])
        if kind == "second":
            np.testing.assert_array_equal(scores[:, 1], totals[:, 1].astype(np.float32))
            continue
        np.testing.assert_array_equal(scores, totals.astype(np.float32))
        if labels:
            decisive = scores.argmax(axis=1)
            np.testing.assert_array_equal(labels[0], decisive)


@pytest.mark.parametrize("leaves", [1, 2, 32, 33, 64, 65])
@pytest.mark.parametrize("missing", [0, 1])
def test_trees_that_grow_to_one_side(leaves: int, missing: int) -> None:
    """Each comparison parts one leaf from the rest, so that a walk goes on for long."""
    trees, count = 3, 2 * leaves - 1
    limits = np.linspace(-2, 2, leaves - 1).astype(np.float32)
    modes, values, true, false, weights = [], [], [], [], []
    for place in range(count):
        is_branch = place < count - 1 and place % 2 == 0
        modes.append("BRANCH_LEQ" if is_branch else "LEAF")
        values.append(float(limits[place // 2]) if is_branch else 0.0)
        true.append(place + 1 if is_branch else 0)
        false.append(place + 2 if is_branch else 0)
        weights.append(float(place))
    chosen = [n for n, mode in enumerate(modes) if mode == "LEAF"]
    model = model_of(
        "TreeEnsembleRegressor",
        {"y": 1},
        n_targets=1,
        nodes_treeids=np.repeat(range(trees), count).tolist(),
        nodes_nodeids=[*range(count)] * trees,
        nodes_featureids=np.repeat([4, 0, 2], count).tolist(),
        nodes_modes=modes * trees,
        nodes_values=values * trees,
        nodes_missing_value_tracks_true=[missing] * count * trees,
        nodes_truenodeids=true * trees,
        nodes_falsenodeids=false * trees,
        target_treeids=np.repeat(range(trees), leaves).tolist(),
        target_nodeids=chosen * trees,
        target_ids=[0] * leaves * trees,
        target_weights=[weights[n] for n in chosen] * trees,
    )
    made = compiled(model)
    for rows in (1, 9, 31, 32, 33, 128, 129, 300):
        x = rows_of(random.Random(rows), rows)
        x[::7] = limits[:1] if leaves > 1 else 0
        place = np.searchsorted(limits, x, side="left")
        place[np.isnan(x)] = 0 if missing else leaves - 1
        votes = np.array([weights[n] for n in chosen])[place]
        expected = votes[:, 4] + votes[:, 0] + votes[:, 2]
        np.testing.assert_array_equal(made.run(None, {"x": x})[0][:, 0], expected)


def transformed(scores: Array, transform: str) -> Array:
    if transform == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if transform == "SOFTMAX":
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    return scores


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("seed", range(8))
def test_classifiers(seed: int, transform: str) -> None:
    chance = random.Random(seed)
    classes = 2 + seed % 3
    trees = Ensemble(chance, 9, 4, classes, votes=1 + seed % 3)
    labels = [10 * n - 5 for n in range(classes)]
    model = model_of(
        "TreeEnsembleClassifier",
        {"label": 7, "scores": 1},
        classlabels_int64s=labels,
        post_transform=transform,
        **trees.attributes("class"),
    )
    x = rows_of(chance, 60)
    label, scores = compiled(model).run(None, {"x": x})
    totals = np.array([trees.totals(row, "SUM") for row in x])
    decisive = np.where(np.isnan(totals), -np.inf, totals).astype(np.float32)
    np.testing.assert_array_equal(label, np.array(labels)[decisive.argmax(axis=1)])
    expected = transformed(np.nan_to_num(totals), transform)
    np.testing.assert_allclose(scores, expected, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("sole", [0, 1])
@pytest.mark.parametrize("base", [[], [0.5], [0.25, -0.5]], ids=len)
def test_votes_for_one_of_two_classes(
    sole: int, transform: str, base: list[float]
) -> None:
    """Which ONNX leaves open: as ONNX Runtime does, which forgets some base values, and
    as the kernels on arrays do with those."""
    ort = pytest.importorskip("onnxruntime")
    for seed in range(4):
        chance = random.Random(seed)
        trees = Ensemble(chance, 5, 3, 2, sole=sole, missing=False)
        if seed % 2:
            trees.votes = [(*vote[:3], abs(vote[3])) for vote in trees.votes]
        model = model_of(
            "TreeEnsembleClassifier",
            {"label": 7, "scores": 1},
            classlabels_int64s=[3, 8],
            post_transform=transform,
            base_values=base,
            **trees.attributes("class"),
        )
        x = rows_of(chance, 40)
        if base:
            cpu = ("CPUExecutionProvider", {"compile": "0"})
            peer = onnxplug.InferenceSession(model, providers=[cpu])
        else:
            peer = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        label, scores = compiled(model).run(None, {"x": x})
        expected = peer.run(None, {"x": x})
        np.testing.assert_array_equal(label, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)


def stump(mode: int, post_transform: int = 0) -> bytes:
    """One comparison of the first feature with 0.5: 1 where it is true, else 2."""
    numbers = onnx.numpy_helper.from_array
    node = onnx.helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        post_transform=post_transform,
        tree_roots=[0],
        nodes_featureids=[0],
        nodes_modes=numbers(np.array([mode], np.uint8)),
        nodes_splits=numbers(np.array([0.5], np.float32)),
        nodes_trueleafs=[1],
        nodes_truenodeids=[0],
        nodes_falseleafs=[1],
        nodes_falsenodeids=[1],
        leaf_targetids=[0, 0],
        leaf_weights=numbers(np.array([1, 2], np.float32)),
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "trees", [info("x", 1, ["rows", 2])], [info("y", 1, None)]
    )
    imports = [onnx.helper.make_opsetid("ai.onnx.ml", 5)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("mode", "holds"),
    [
        (0, np.less_equal),
        (1, np.less),
        (2, np.greater_equal),
        (3, np.greater),
        (4, np.equal),
        (5, np.not_equal),
    ],
)
def test_thresholds_that_are_a_tensor_stay_as_they_are(mode: int, holds: Any) -> None:
    x = np.array([[0.25, 0], [0.5, 0], [0.75, 0]], np.float32)
    made = compiled(stump(mode))
    expected = np.where(holds(x[:, :1], 0.5), 1, 2)
    for _ in range(2):
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], expected)


def test_numbers_that_stand_for_nothing_are_told_when_a_run_meets_them() -> None:
    made = onnxplug.InferenceSession(stump(0, post_transform=9))
    with pytest.raises(onnxplug.errors.NodeError, match="post_transform is 9"):
        made.run(None, {"x": np.zeros((1, 2), np.float32)})
