"""Attention with a cache, by kernels on a processor, beside its definition in
float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxplug
from onnxplug_testing.grouped_attention import Grouped

CASES = {
    "something is added": Grouped([7, 3], 1, 20, added=(1, 4), softcap=2.0),
    "norms": Grouped([7, 3], 2, 20, norms=True, packed=True, qk_norm_epsilon=1e-3),
    "added to a prompt": Grouped([9, 7], 9, 12, added=(2, 1), rotated=0),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_of_heads_attend_to_a_cache(alone: Any, name: str) -> None:
    case = CASES[name]
    found = alone(case.model()).run(None, case.feeds)
    for image, wanted in enumerate(case.expected()):
        for ours, right in zip(found, wanted, strict=True):
            part = ours[image].astype(np.float64)
            part = part[: len(right)] if ours.ndim == 3 else part[:, : right.shape[1]]
            limit = 4e-6 * max(1.0, np.abs(right).max())
            np.testing.assert_allclose(part, right, 0, limit, err_msg=name)


def test_a_row_behind_what_is_added_is_an_error(alone: Any) -> None:
    """Scores of rows that nothing is added to are nobody's."""
    case = Grouped([7], 1, 20, added=(1, 1))
    feeds = {**case.feeds, "lengths": np.array([7], np.int32)}
    with pytest.raises(onnxplug.errors.NodeError, match="GroupQueryAttention"):
        alone(case.model()).run(None, feeds)


def as_arrays(alone: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Compare with the CPU EP's arrays."""
    providers = [("CPUExecutionProvider", {"compile": False})]
    cpu = onnxplug.InferenceSession(model, providers=providers)
    (found,), (wanted,) = (each.run(["y"], feeds) for each in (alone(model), cpu))
    np.testing.assert_allclose(found, wanted, 0, 4e-6)


def test_a_mask_hides_keys_of_a_cache_with_room(alone: Any) -> None:
    random = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape).astype(np.float32)

    feeds = {name: normal(2, 2, 16) for name in "qkv"}
    feeds |= {"mask": random.integers(0, 2, (2, 6)).astype(np.int32)}
    feeds |= {"added": normal(1, 4, 2, 6), "past_k": normal(2, 4, 9, 4)}
    feeds |= {"past_v": normal(2, 4, 9, 4), "used": np.array([4], np.int32)}
    names = ["q", "k", "v", "", "mask", "added", "past_k", "past_v", "used"]
    node = helper.make_node(
        "MultiHeadAttention", names, ["y", "new_k", "new_v"], domain="com.microsoft",
        num_heads=4, unidirectional=1, mask_filter_value=-3.0,
    )  # fmt: skip
    as_arrays(alone, of_node(node, feeds), feeds)


def test_rows_may_be_padding(alone: Any) -> None:
    case = Grouped([7, 3], 4, 20)
    feeds = {**case.feeds, "valid": np.array([3, 1], np.int32)}
    node = onnx.NodeProto()
    node.CopyFrom(case.node)
    node.input.extend([""] * (16 - len(node.input)) + ["valid"])
    as_arrays(alone, of_node(node, feeds), feeds)


def of_node(node: onnx.NodeProto, feeds: dict[str, Any]) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "one",
        [make(name, element(x.dtype), x.shape) for name, x in feeds.items()],
        [make(name, onnx.TensorProto.FLOAT, None) for name in node.output],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
