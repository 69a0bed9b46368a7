"""Trees that scikit-learn grew, written as the operators of ai.onnx.ml 3 and 5.

No converter writes these yet: they stay with the operators of ai.onnx.ml 1, which hold
float32 numbers and know no sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

DOMAIN = "ai.onnx.ml"

Aggregate: TypeAlias = Literal["AVERAGE", "SUM"]


@dataclass(frozen=True)
class Node:
    """A branch of a tree, or a leaf, which has a value only.

    Attributes:
        children: the numbers of the nodes where the condition holds and where not.
        members: what the feature must be one of; if there are none, it must not be
            above the threshold.
        missing: whether the condition holds for a missing feature.
    """

    value: float = 0.0
    feature: int = 0
    threshold: float = 0.0
    members: tuple[float, ...] = ()
    missing: bool = False
    children: tuple[int, int] | None = None


Tree: TypeAlias = Sequence[Node]


def grown(tree: Any, target: int = 0) -> Tree:
    """A ``sklearn.tree._tree.Tree``, of whose values that of *target* counts."""
    return [
        Node(
            value=tree.value[i].reshape(-1)[target],
            feature=tree.feature[i],
            threshold=tree.threshold[i],
            missing=bool(tree.missing_go_to_left[i]),
            children=(left, right) if left >= 0 else None,
        )
        for i, (left, right) in enumerate(
            zip(tree.children_left, tree.children_right, strict=True)
        )
    ]


def grown_of_histograms(predictor: Any) -> Tree:
    """A tree of scikit-learn's histogram-based gradient boosting."""
    return [
        Node(
            value=node["value"],
            feature=node["feature_idx"],
            threshold=node["num_threshold"],
            members=_members(predictor.raw_left_cat_bitsets[node["bitset_idx"]])
            if node["is_categorical"]
            else (),
            missing=bool(node["missing_go_to_left"]),
            children=None if node["is_leaf"] else (node["left"], node["right"]),
        )
        for node in predictor.nodes
    ]


def _members(bits: Any) -> tuple[float, ...]:
    return tuple(n for n in range(32 * len(bits)) if bits[n // 32] >> (n % 32) & 1)


def tree_ensemble(
    trees: Sequence[Tree], targets: Sequence[int], aggregate: Aggregate, dtype: Any
) -> onnx.NodeProto:
    """``TreeEnsemble`` from x to y.  *targets* are what the trees vote for."""
    branches: dict[str, list[int]] = {name: [] for name in _BRANCH}
    splits, modes, members, weights = [], [], [], []
    roots, leaf_targets = [], []
    for tree, target in zip(trees, targets, strict=True):
        numbers = _numbered(tree, len(splits), len(weights))
        roots.append(numbers[0])
        for node in tree:
            if node.children is None:
                weights.append(node.value)
                leaf_targets.append(target)
                continue
            true, false = node.children
            for name, value in zip(
                _BRANCH,
                (
                    node.feature,
                    numbers[true],
                    tree[true].children is None,
                    numbers[false],
                    tree[false].children is None,
                    node.missing,
                ),
                strict=True,
            ):
                branches[name].append(int(value))
            splits.append(node.threshold)
            modes.append(6 if node.members else 0)
            if node.members:
                members += [*node.members, np.nan]
    sets = {"membership_values": _tensor(members, dtype)} if members else {}
    return helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain=DOMAIN,
        aggregate_function=("AVERAGE", "SUM").index(aggregate),
        n_targets=max(targets) + 1,
        tree_roots=roots,
        nodes_splits=_tensor(splits, dtype),
        nodes_modes=_tensor(modes, np.uint8),
        leaf_targetids=leaf_targets,
        leaf_weights=_tensor(weights, dtype),
        **branches,
        **sets,
    )


_BRANCH = (
    "nodes_featureids",
    "nodes_truenodeids",
    "nodes_trueleafs",
    "nodes_falsenodeids",
    "nodes_falseleafs",
    "nodes_missing_value_tracks_true",
)


def _numbered(tree: Tree, branches: int, leaves: int) -> list[int]:
    """Of each node its number among the branches or among the leaves of all trees."""
    numbers = []
    for node in tree:
        numbers.append(leaves if node.children is None else branches)
        leaves += node.children is None
        branches += node.children is not None
    return numbers


def tree_ensemble_regressor(
    trees: Sequence[Tree], targets: Sequence[int], aggregate: Aggregate, dtype: Any
) -> onnx.NodeProto:
    """``TreeEnsembleRegressor`` from x to y, with tensors for numbers."""
    rows = [
        (tree, i, node)
        for tree in range(len(trees))
        for i, node in enumerate(trees[tree])
    ]
    leaves = [(tree, i, node) for tree, i, node in rows if node.children is None]

    def column(values: Iterable[Any]) -> list[int]:
        return [int(value) for value in values]

    return helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain=DOMAIN,
        aggregate_function=aggregate,
        n_targets=max(targets) + 1,
        nodes_treeids=column(tree for tree, _, _ in rows),
        nodes_nodeids=column(i for _, i, _ in rows),
        nodes_featureids=column(node.feature for _, _, node in rows),
        nodes_values_as_tensor=_tensor([node.threshold for _, _, node in rows], dtype),
        nodes_modes=[
            "LEAF" if node.children is None else "BRANCH_LEQ" for _, _, node in rows
        ],
        nodes_missing_value_tracks_true=column(node.missing for _, _, node in rows),
        nodes_truenodeids=column((node.children or (0, 0))[0] for _, _, node in rows),
        nodes_falsenodeids=column((node.children or (0, 0))[1] for _, _, node in rows),
        target_treeids=column(tree for tree, _, _ in leaves),
        target_nodeids=column(i for _, i, _ in leaves),
        target_ids=column(targets[tree] for tree, _, _ in leaves),
        target_weights_as_tensor=_tensor([node.value for _, _, node in leaves], dtype),
    )


def _tensor(values: Sequence[float], dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=dtype))
