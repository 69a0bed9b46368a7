"""Ensembles of trees against walks of each row, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

RNG = np.random.default_rng(9)
MODES = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
FEATURES = 5


class Ensemble:
    """Random trees; thresholds are few numbers, which features have, too."""

    def __init__(self, trees: int, depth: int, targets: int, modes: list[str]) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.votes: list[tuple[int, int, int, float]] = []
        self.modes, self.targets = modes, targets
        for tree in range(trees):
            self._grow(tree, [0], depth)

    def _grow(self, tree: int, numbers: list[int], depth: int) -> int:
        number = numbers[0]
        numbers[0] += 1
        node = {"tree": tree, "node": number, "mode": "LEAF", "yes": 0, "no": 0}
        node |= {"feature": 0, "value": 0.0, "missing": 0}
        self.nodes.append(node)
        if depth == 0 or (number and RNG.random() < 0.2):
            some = RNG.permutation(self.targets)[: RNG.integers(1, self.targets + 1)]
            for target in some:
                weight = float(np.float32(RNG.choice([0.05, 0.3, 1e-9, -2.5])))
                self.votes.append((tree, number, int(target), weight))
            return number
        node |= {
            "mode": str(RNG.choice(self.modes)),
            "feature": int(RNG.integers(FEATURES)),
            "value": float(np.float32(RNG.integers(-3, 4) / 2)),
            "missing": int(RNG.integers(2)),
        }
        node["yes"] = self._grow(tree, numbers, depth - 1)
        node["no"] = self._grow(tree, numbers, depth - 1)
        return number

    def attributes(self, votes: str) -> dict[str, Any]:
        names = {
            "nodes_treeids": "tree", "nodes_nodeids": "node", "nodes_modes": "mode",
            "nodes_featureids": "feature", "nodes_values": "value",
            "nodes_truenodeids": "yes", "nodes_falsenodeids": "no",
            "nodes_missing_value_tracks_true": "missing",
        }  # fmt: skip
        found = {
            name: [node[key] for node in self.nodes] for name, key in names.items()
        }
        columns = [list(column) for column in zip(*self.votes, strict=True)]
        ends = "treeids", "nodeids", "ids", "weights"
        return found | {
            f"{votes}_{end}": column for end, column in zip(ends, columns, strict=True)
        }

    def votes_of(self, x: np.ndarray[Any, Any]) -> list[list[tuple[int, float]]]:
        """Of each row what all leaves vote for."""
        nodes = {(node["tree"], node["node"]): node for node in self.nodes}
        trees = sorted({node["tree"] for node in self.nodes})
        found = []
        for row in x:
            votes = []
            for tree in trees:
                node = nodes[tree, 0]
                while node["mode"] != "LEAF":
                    value = row[node["feature"]]
                    holds = MODES[node["mode"]](value, np.float32(node["value"]))
                    holds |= bool(node["missing"]) and np.isnan(value)
                    node = nodes[tree, node["yes"] if holds else node["no"]]
                at = tree, node["node"]
                votes += [(t, w) for a, b, t, w in self.votes if (a, b) == at]
            found.append(votes)
        return found


def rows(count: int) -> np.ndarray[Any, Any]:
    x = (RNG.integers(-6, 7, (count, FEATURES)) / 4).astype(np.float32)
    x[RNG.random(x.shape) < 0.1] = np.nan
    return x


def model(op_type: str, outputs: list[tuple[str, int]], **attributes: Any) -> Any:
    domain = "ai.onnx.ml"
    node = helper.make_node(
        op_type, ["x"], [name for name, _ in outputs], domain=domain, **attributes
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", TensorProto.FLOAT, ["N", FEATURES])],
        [info(name, element, None) for name, element in outputs],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


AGGREGATES = {"SUM": sum, "MIN": min, "MAX": max}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], [*MODES]], ids=["one", "all"])
def test_regression(alone: Any, aggregate: str, modes: list[str]) -> None:
    trees = Ensemble(9, 4, 3, modes)
    base = [0.5, -1.25, 3.0] if aggregate == "SUM" else []
    session = alone(
        model(
            "TreeEnsembleRegressor",
            [("y", TensorProto.FLOAT)],
            n_targets=3,
            aggregate_function=aggregate,
            **({"base_values": base} if base else {}),
            **trees.attributes("target"),
        )
    )
    for count in (70, 1, 0):
        x = rows(count)
        (found,) = session.run(None, {"x": x})
        wanted = np.zeros((count, 3)) + (base or [0.0] * 3)
        for row, votes in enumerate(trees.votes_of(x)):
            for target in range(3):
                mine = [weight for of, weight in votes if of == target]
                if mine:
                    total = AGGREGATES.get(aggregate, sum)(mine)
                    share = 9 if aggregate == "AVERAGE" else 1
                    wanted[row, target] += total / share
        np.testing.assert_allclose(found, wanted, 2e-7, 1e-12)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classification(alone: Any, classes: int, transform: str) -> None:
    """A class without a vote is not chosen."""
    trees = Ensemble(6, 3, classes, ["BRANCH_LT"])
    labels = [7, -3, 100, 5][:classes]
    session = alone(
        model(
            "TreeEnsembleClassifier",
            [("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)],
            classlabels_int64s=labels,
            post_transform=transform,
            **trees.attributes("class"),
        )
    )
    x = rows(60)
    label, scores = session.run(None, {"x": x})
    totals = np.full((60, classes), -np.inf)
    for row, votes in enumerate(trees.votes_of(x)):
        for target in range(classes):
            mine = [weight for of, weight in votes if of == target]
            totals[row, target] = sum(mine) if mine else -np.inf
    best = np.argmax(totals.astype(np.float32), 1)
    np.testing.assert_array_equal(label, np.array(labels)[best])
    filled = np.where(np.isinf(totals), 0, totals)
    powers = np.exp(filled - filled.max(1, keepdims=True))
    wanted = {
        "NONE": filled,
        "SOFTMAX": powers / powers.sum(1, keepdims=True),
        "LOGISTIC": 1 / (1 + np.exp(-filled)),
    }[transform]
    np.testing.assert_allclose(scores, wanted, 2e-6, 1e-7)


def test_half_of_the_votes_are_no_majority(alone: Any) -> None:
    """Ten of twenty trees vote with float32(1 / 20), which is more than that."""
    nodes = {
        "nodes_treeids": [*range(20)], "nodes_nodeids": [0] * 20,
        "nodes_modes": ["LEAF"] * 20, "nodes_featureids": [0] * 20,
        "nodes_values": [0.0] * 20, "nodes_truenodeids": [0] * 20,
        "nodes_falsenodeids": [0] * 20,
    }  # fmt: skip
    for voting, wanted in ((10, 0), (11, 1)):
        votes = {
            "class_treeids": [*range(voting)], "class_nodeids": [0] * voting,
            "class_ids": [0] * voting, "class_weights": [0.05] * voting,
        }  # fmt: skip
        session = alone(
            model(
                "TreeEnsembleClassifier",
                [("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)],
                classlabels_int64s=[0, 1],
                **nodes,
                **votes,
            )
        )
        label, scores = session.run(None, {"x": rows(3)})
        share = voting * float(np.float32(0.05))
        np.testing.assert_array_equal(label, [wanted] * 3)
        np.testing.assert_allclose(scores, [[1 - share, share]] * 3, 1e-6)
