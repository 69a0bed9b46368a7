"""Tree ensembles: their attributes made a forest, and its scores made outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from onnxplug_kernels.ml import forest
from onnxplug_kernels.ml.scores import (
    class_labels,
    feature_rows,
    labels_at,
    transformed,
    two_class_scores,
)
from onnxplug_kernels.prepared import attribute_array, prepared_once
from onnxplug_kernels.registry import operator

_DOMAIN: Final = "ai.onnx.ml"

_LEAF: Final = -1
_MODES: Final = {
    "BRANCH_LEQ": forest.LESS_EQUAL,
    "BRANCH_LT": forest.LESS,
    "BRANCH_GTE": forest.GREATER_EQUAL,
    "BRANCH_GT": forest.GREATER,
    "BRANCH_EQ": forest.EQUAL,
    "BRANCH_NEQ": forest.NOT_EQUAL,
    "LEAF": _LEAF,
}
AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@operator("TreeEnsemble", since=5, domain=_DOMAIN)
def tree_ensemble(
    xp: Any,
    x: Any,
    *,
    aggregate_function: int = 1,
    leaf_targetids: tuple[int, ...],
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int | None = None,
    nodes_falseleafs: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: tuple[int, ...],
    nodes_truenodeids: tuple[int, ...],
    post_transform: int = 0,
    tree_roots: tuple[int, ...],
) -> Any:
    """The scores of each target.  *nodes_hitrates* could only make this faster."""
    trees = _forest_of_branches(
        xp,
        leaf_targetids,
        leaf_weights,
        membership_values,
        n_targets,
        nodes_falseleafs,
        nodes_falsenodeids,
        nodes_featureids,
        nodes_missing_value_tracks_true,
        nodes_modes,
        nodes_splits,
        nodes_trueleafs,
        nodes_truenodeids,
        tree_roots,
    )
    aggregate = named(AGGREGATES, aggregate_function, "aggregate_function")
    transform = named(TRANSFORMS, post_transform, "post_transform")
    scores = _filled(xp, trees.scores(xp, feature_rows(xp, x), aggregate))
    return xp.astype(transformed(xp, scores, transform), x.dtype)


@operator("TreeEnsembleRegressor", since=1, domain=_DOMAIN)
def tree_ensemble_regressor(
    xp: Any,
    x: Any,
    *,
    aggregate_function: str = "SUM",
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Any = None,
    n_targets: int | None = None,
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: tuple[str, ...],
    nodes_nodeids: tuple[int, ...],
    nodes_treeids: tuple[int, ...],
    nodes_truenodeids: tuple[int, ...],
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Any = None,
    post_transform: str = "NONE",
    target_ids: tuple[int, ...],
    target_nodeids: tuple[int, ...],
    target_treeids: tuple[int, ...],
    target_weights: tuple[float, ...] = (),
    target_weights_as_tensor: Any = None,
) -> Any:
    trees = _forest_of_nodes(
        xp,
        nodes_falsenodeids,
        nodes_featureids,
        nodes_missing_value_tracks_true,
        nodes_modes,
        nodes_nodeids,
        nodes_treeids,
        nodes_truenodeids,
        numbers(nodes_values, nodes_values_as_tensor),
        target_ids,
        target_nodeids,
        target_treeids,
        numbers(target_weights, target_weights_as_tensor),
        n_targets,
    )
    rows = feature_rows(xp, x)
    scores = _filled(xp, trees.scores(xp, rows, aggregate_function))
    base = numbers(base_values, base_values_as_tensor)
    if len(base):
        scores = scores + _base_of(xp, base, scores)
    return xp.astype(transformed(xp, scores, post_transform), xp.float32)


@operator("TreeEnsembleClassifier", since=1, domain=_DOMAIN)
def tree_ensemble_classifier(
    xp: Any,
    x: Any,
    *,
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Any = None,
    class_ids: tuple[int, ...],
    class_nodeids: tuple[int, ...],
    class_treeids: tuple[int, ...],
    class_weights: tuple[float, ...] = (),
    class_weights_as_tensor: Any = None,
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: tuple[str, ...],
    nodes_nodeids: tuple[int, ...],
    nodes_treeids: tuple[int, ...],
    nodes_truenodeids: tuple[int, ...],
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Any = None,
    post_transform: str = "NONE",
) -> Any:
    """The label and the scores of each row."""
    labels = class_labels(xp, classlabels_strings, classlabels_int64s)
    weights = numbers(class_weights, class_weights_as_tensor)
    trees = _forest_of_nodes(
        xp,
        nodes_falsenodeids,
        nodes_featureids,
        nodes_missing_value_tracks_true,
        nodes_modes,
        nodes_nodeids,
        nodes_treeids,
        nodes_truenodeids,
        numbers(nodes_values, nodes_values_as_tensor),
        class_ids,
        class_nodeids,
        class_treeids,
        weights,
        labels.shape[0],
    )
    scores = trees.scores(xp, feature_rows(xp, x), "SUM")
    base = numbers(base_values, base_values_as_tensor)
    sole = sole_class(class_ids)
    if labels.shape[0] == 2 and sole is not None:
        positive = none_negative(weights)
        index, scores = _of_one_score(xp, scores, base, sole, positive, post_transform)
        return labels_at(xp, labels, index), xp.astype(scores, xp.float32)
    if len(base):
        scores = _filled(xp, scores) + _base_of(xp, base, scores)
    # a class without a vote is not chosen even if all others have negative scores
    decisive = xp.astype(xp.where(xp.isnan(scores), -xp.inf, scores), xp.float32)
    index = xp.argmax(decisive, axis=1)
    scores = transformed(xp, _filled(xp, scores), post_transform)
    return labels_at(xp, labels, index), xp.astype(scores, xp.float32)


def _of_one_score(
    xp: Any, scores: Any, base: Any, sole: int, positive: bool, post_transform: str
) -> tuple[Any, Any]:
    """Class and scores if all votes are for one of two classes, here called *sole*.

    ONNX does not say what that means; this is what ONNX Runtime makes of it.  The
    score decides for the second class, whichever it is for: as a probability if all
    weights are *positive*, and as its logarithmic odds otherwise.
    """
    scores = _filled(xp, scores)
    if len(base) == 2:
        scores = scores + _base_of(xp, base, scores)
    elif len(base):
        scores[:, sole] += float(base[0])
    score = scores[:, sole]
    # as it is returned: ten votes of float32(1 / 20) are no majority of twenty trees,
    # though they are more than half
    decisive = xp.astype(score, xp.float32)
    index = xp.astype(decisive > (0.5 if positive else 0), xp.int64)
    if sole == 0 and len(base) < 2:
        return index, two_class_scores(xp, score, post_transform, complement=positive)
    return index, transformed(xp, scores, post_transform)


def _base_of(xp: Any, base: Any, scores: Any) -> Any:
    if len(base) not in (1, scores.shape[1]):
        raise ValueError(
            f"base_values has {len(base)} numbers for {scores.shape[1]} scores"
        )
    return attribute_array(xp, base, xp.float64)


def named(names: tuple[str, ...], number: int, attribute: str) -> str:
    """What *number*, the value of an attribute, stands for.

    Raises:
        ValueError: for nothing.
    """
    if not 0 <= number < len(names):
        raise ValueError(
            f"{attribute} is {number}, expected from 0 to {len(names) - 1}"
        )
    return names[number]


def _filled(xp: Any, scores: Any) -> Any:
    return xp.where(xp.isnan(scores), 0.0, scores)


def numbers(floats: tuple[float, ...], tensor: Any) -> Any:
    """The attribute that was given of two that mean the same."""
    return floats if tensor is None else tensor


@prepared_once
def sole_class(class_ids: tuple[int, ...]) -> int | None:
    """The class that all votes are for, if there is one."""
    classes = set(class_ids)
    return classes.pop() if len(classes) == 1 else None


@prepared_once
def none_negative(weights: Any) -> bool:
    """Whether all votes are for their class, and none is against it."""
    return bool((np.asarray(weights) >= 0).all())


def forest_of(xp: Any, op_type: str, attributes: Mapping[str, Any]) -> forest.Forest:
    """The forest that the attributes of an operator describe; made once for them.

    Raises:
        ValueError: they describe none.
    """
    if op_type == "TreeEnsemble":
        return _forest_of_branches(xp, *(attributes[name] for name in _BRANCHES))
    votes = "class" if op_type == "TreeEnsembleClassifier" else "target"
    if votes == "class":
        labels = attributes["classlabels_strings"] or attributes["classlabels_int64s"]
        count = len(labels)
    else:
        count = attributes["n_targets"]
    described = [
        *(attributes[f"nodes_{name}"] for name in _NODES),
        numbers(attributes["nodes_values"], attributes["nodes_values_as_tensor"]),
        *(attributes[f"{votes}_{name}"] for name in ("ids", "nodeids", "treeids")),
        numbers(
            attributes[f"{votes}_weights"], attributes[f"{votes}_weights_as_tensor"]
        ),
        count,
    ]
    return _forest_of_nodes(xp, *described)


def required(op_type: str) -> tuple[str, ...]:
    """Attributes without which an operator describes no forest."""
    if op_type == "TreeEnsemble":
        optional = ("membership_values", "n_targets")
        return tuple(name for name in _BRANCHES if name not in optional)
    return tuple(f"nodes_{name}" for name in _NODES)


_NODES: Final = (
    "falsenodeids",
    "featureids",
    "missing_value_tracks_true",
    "modes",
    "nodeids",
    "treeids",
    "truenodeids",
)
_BRANCHES: Final = (
    "leaf_targetids",
    "leaf_weights",
    "membership_values",
    "n_targets",
    "nodes_falseleafs",
    "nodes_falsenodeids",
    "nodes_featureids",
    "nodes_missing_value_tracks_true",
    "nodes_modes",
    "nodes_splits",
    "nodes_trueleafs",
    "nodes_truenodeids",
    "tree_roots",
)


@prepared_once
def _forest_of_nodes(
    xp: Any,
    false_ids: tuple[int, ...],
    feature_ids: tuple[int, ...],
    missing_true: tuple[int, ...],
    modes: tuple[str, ...],
    node_ids: tuple[int, ...],
    tree_ids: tuple[int, ...],
    true_ids: tuple[int, ...],
    values: Any,
    vote_targets: tuple[int, ...],
    vote_node_ids: tuple[int, ...],
    vote_tree_ids: tuple[int, ...],
    vote_weights: Any,
    target_count: int | None,
) -> forest.Forest:
    """The forest of the attributes that the operators share until version 5."""
    _check_lengths(
        modes=modes,
        nodes_falsenodeids=false_ids,
        nodes_featureids=feature_ids,
        nodes_nodeids=node_ids,
        nodes_treeids=tree_ids,
        nodes_truenodeids=true_ids,
        nodes_values=values,
        nodes_missing_value_tracks_true=missing_true or modes,
    )
    _check_lengths(
        target_ids=vote_targets,
        target_nodeids=vote_node_ids,
        target_treeids=vote_tree_ids,
        target_weights=vote_weights,
    )
    unknown = set(modes) - _MODES.keys()
    if unknown:
        raise ValueError(
            f"nodes_modes has {', '.join(map(repr, sorted(unknown)))}, "
            f"not one of {', '.join(_MODES)}"
        )
    mode_numbers = _array([_MODES[mode] for mode in modes])
    trees = _array(tree_ids)
    nodes = _Nodes(trees, _array(node_ids))
    leaf = mode_numbers == _LEAF
    branch = ~leaf
    branches = int(branch.sum())
    number = np.where(leaf, branches + np.cumsum(leaf), np.cumsum(branch)) - 1
    _, first_nodes = np.unique(trees, return_index=True)
    voting = nodes.find(_array(vote_tree_ids), _array(vote_node_ids))
    # votes of nodes that branch are never reached
    counted = np.nonzero(leaf[voting])[0]
    targets = _array(vote_targets)
    if target_count is None:
        target_count = int(targets.max(initial=0)) + 1
    if target_count == 1:
        # ONNX does not say what more votes of a leaf for the same target mean.  ONNX
        # Runtime then counts the first, and skl2onnx writes as many as classes.
        counted = counted[np.unique(voting[counted], return_index=True)[1]]
    return forest.grown(
        xp,
        roots=number[first_nodes],
        features=_array(feature_ids)[branch],
        thresholds=_thresholds(values)[branch],
        modes=mode_numbers[branch],
        missing_true=_flags(missing_true, len(modes))[branch],
        true_children=number[nodes.find(trees[branch], _array(true_ids)[branch])],
        false_children=number[nodes.find(trees[branch], _array(false_ids)[branch])],
        leaf_count=int(leaf.sum()),
        vote_leaves=number[voting[counted]] - branches,
        vote_targets=targets[counted],
        vote_weights=np.asarray(vote_weights, dtype=np.float64)[counted],
        target_count=target_count,
    )


@prepared_once
def _forest_of_branches(
    xp: Any,
    leaf_targets: tuple[int, ...],
    leaf_weights: Any,
    membership_values: Any,
    target_count: int | None,
    false_leafs: tuple[int, ...],
    false_ids: tuple[int, ...],
    feature_ids: tuple[int, ...],
    missing_true: tuple[int, ...],
    modes: Any,
    splits: Any,
    true_leafs: tuple[int, ...],
    true_ids: tuple[int, ...],
    roots: tuple[int, ...],
) -> forest.Forest:
    """The forest of the attributes of ``TreeEnsemble``."""
    _check_lengths(
        nodes_modes=modes,
        nodes_falseleafs=false_leafs,
        nodes_falsenodeids=false_ids,
        nodes_featureids=feature_ids,
        nodes_splits=splits,
        nodes_trueleafs=true_leafs,
        nodes_truenodeids=true_ids,
        nodes_missing_value_tracks_true=missing_true or modes,
    )
    _check_lengths(leaf_targetids=leaf_targets, leaf_weights=leaf_weights)
    branches = len(modes)
    targets = _array(leaf_targets)
    if target_count is None:
        target_count = int(targets.max(initial=0)) + 1
    if membership_values is not None:
        membership_values = _thresholds(membership_values)
    return forest.grown(
        xp,
        roots=_array(roots),
        features=_array(feature_ids),
        thresholds=_thresholds(splits),
        modes=_array(modes),
        missing_true=_flags(missing_true, branches),
        true_children=_array(true_ids) + branches * (_array(true_leafs) != 0),
        false_children=_array(false_ids) + branches * (_array(false_leafs) != 0),
        membership_values=membership_values,
        leaf_count=len(targets),
        vote_leaves=np.arange(len(targets)),
        vote_targets=targets,
        vote_weights=np.asarray(leaf_weights, dtype=np.float64),
        target_count=target_count,
    )


class _Nodes:
    """Finds nodes by the ids of their tree and of themselves in it.

    Ids may be any int64, so a key is made of their ranks, whose product cannot be too
    large.
    """

    def __init__(self, tree_ids: Any, node_ids: Any) -> None:
        if not len(tree_ids):
            raise ValueError("a tree ensemble has no nodes")
        self._trees, self._nodes = np.unique(tree_ids), np.unique(node_ids)
        keys, _ = self._keys_of(tree_ids, node_ids)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        if (self._keys[1:] == self._keys[:-1]).any():
            raise ValueError("two nodes of a tree have the same id")

    def find(self, tree_ids: Any, node_ids: Any) -> Any:
        keys, unknown = self._keys_of(tree_ids, node_ids)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        missing = (self._keys[places] != keys) | unknown
        if missing.any():
            raise ValueError(
                f"tree {tree_ids[missing][0]} has no node {node_ids[missing][0]}, "
                f"to which its nodes or votes refer"
            )
        return self._order[places]

    def _keys_of(self, tree_ids: Any, node_ids: Any) -> tuple[Any, Any]:
        """The keys, and which of them are of ids that no node has."""
        trees = np.searchsorted(self._trees, tree_ids)
        nodes = np.searchsorted(self._nodes, node_ids)
        unknown = (self._trees[np.minimum(trees, len(self._trees) - 1)] != tree_ids) | (
            self._nodes[np.minimum(nodes, len(self._nodes) - 1)] != node_ids
        )
        return trees * (len(self._nodes) + 1) + nodes, unknown


def _check_lengths(**attributes: Any) -> None:
    if len({len(values) for values in attributes.values()}) > 1:
        lengths = (f"{len(values)} {name}" for name, values in attributes.items())
        raise ValueError(f"there should be equally many of: {', '.join(lengths)}")


def _array(values: Any) -> Any:
    return np.asarray(values, dtype=np.int64)


def _flags(values: tuple[int, ...], count: int) -> Any:
    return np.asarray(values, dtype=bool) if values else np.zeros(count, dtype=bool)


def _thresholds(values: Any) -> Any:
    """As narrow as attributes allow: all comparisons are exact in any case."""
    if isinstance(values, np.ndarray) and values.dtype.itemsize > 4:
        return values
    return np.asarray(values, dtype=np.float32)
