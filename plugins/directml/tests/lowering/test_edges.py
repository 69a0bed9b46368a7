"""What ONNX says of edges of operators: where it differs from what DirectML does alone,
and what is out of range."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.partition import GraphPartition
from onnxplug_directml.capability import Judge
from onnxplug_directml.lowering.graph import Graph
from onnxplug_directml.lowering.target import Target

from .single_node import SingleNode, feeds_of, model_of

Alone = Callable[..., onnxplug.InferenceSession]

X = np.array([[3.0, -4.0], [0.5, 1.0]], np.float32)
I32, I64 = np.int32, np.int64
NO_AXES = np.zeros(0, I64)


def run(alone: Alone, node: SingleNode) -> list[Any]:
    nodes = {"n": node}
    return alone(model_of(nodes)).run(None, feeds_of(nodes))


@pytest.mark.parametrize(
    ("op_type", "x", "wanted"),
    [
        ("ReduceSumSquare", X, X * X),
        ("ReduceL1", X, np.abs(X)),
        ("ReduceL2", X, np.abs(X)),
        ("ReduceLogSum", np.abs(X), np.log(np.abs(X))),
        ("ReduceLogSumExp", X, X),
        ("ReduceSum", X, X),
        ("ReduceMax", X, X),
        ("ReduceMean", X, X),
    ],
)
def test_a_reduction_of_no_axes_computes_what_is_not_a_reduction(
    alone: Alone, op_type: str, x: Any, wanted: Any
) -> None:
    """Of ONNX: "the reduction is skipped, but other operations will be performed"."""
    node = SingleNode(op_type, [x, NO_AXES], (1,), {"noop_with_empty_axes": 1})
    (found,) = run(alone, node)
    np.testing.assert_allclose(found, wanted, 1e-6)


@pytest.mark.parametrize(("exponent", "dtype"), [(2.0, I32), (3.0, I32), (1.0, I64)])
def test_integers_are_raised_exactly(alone: Alone, exponent: float, dtype: Any) -> None:
    """Beyond what float32 has of them."""
    x = np.array([20_001, -1_289, 0, 7], dtype)
    node = SingleNode("Pow", [x, np.float32(exponent)], (1,))
    (found,) = run(alone, node)
    wanted = [int(each) ** int(exponent) for each in x]
    narrowed = [(each + 2**31) % 2**32 - 2**31 for each in wanted]
    assert found.tolist() == (narrowed if dtype is I32 else wanted)


def test_the_deviation_is_what_1e_9_is_added_to(alone: Alone) -> None:
    x = np.float32(1e-5) * np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    (found,) = run(alone, SingleNode("MeanVarianceNormalization", [x]))
    exact = x.astype(np.float64)
    wanted = (exact - exact.mean()) / (exact.std() + 1e-9)
    np.testing.assert_allclose(found, wanted, 1e-4)


PICTURE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
REGION = np.array([[0, 0, 3, 3]], np.float32)
CACHE = np.zeros((1, 1, 4, 2), np.float32)
ROWS = np.ones((1, 1, 2, 2), np.float32)
GATES, STATES = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
TIMES = np.ones((4, 2, 3), np.float32)
HEADS = np.ones((1, 2, 8), np.float32)
PAST = np.ones((1, 2, 3, 4), np.float32)
ANGLES = np.ones((4, 2), np.float32)

OUTSIDE: dict[str, tuple[SingleNode, int, Any, Any]] = {
    "a picture of RoiAlign": (
        SingleNode(
            "RoiAlign", [PICTURE, REGION, np.array([0])], (),
            {"output_height": 1, "output_width": 1, "sampling_ratio": 1},
        ),
        2, np.array([1]), np.array([-1]),
    ),
    "a picture of MaxRoiPool": (
        SingleNode(
            "MaxRoiPool", [PICTURE, np.insert(REGION, 0, 0, 1)], (),
            {"pooled_shape": [1, 1]},
        ),
        1, np.insert(REGION, 0, 1, 1), np.insert(REGION, 0, -1, 1),
    ),
    "a place of MaxUnpool": (
        SingleNode(
            "MaxUnpool", [PICTURE[..., :2, :2], np.array([[[[0, 5], [10, 15]]]])], (),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
        ),
        1, np.array([[[[0, 5], [10, 16]]]]), np.array([[[[0, 5], [10, -1]]]]),
    ),
    "rows of a cache": (
        SingleNode("TensorScatter", [CACHE, ROWS, np.array([2])], opset=24),
        2, np.array([3]), np.array([-1]),
    ),
    "rows of a cache that begins again": (
        SingleNode(
            "TensorScatter", [CACHE, ROWS, np.array([7])], (), {"mode": "circular"},
            opset=24,
        ),
        2, np.array([-1]), np.array([-5]),
    ),
    "a reversed sequence": (
        SingleNode("ReverseSequence", [X, np.array([2, 0])]),
        1, np.array([3, 1]), np.array([1, -1]),
    ),
    "a sequence of a network": (
        SingleNode(
            "LSTM", [TIMES, GATES, STATES, None, np.array([4, 0], I32)], (),
            {"hidden_size": 2},
        ),
        4, np.array([5, 1], I32), np.array([1, -1], I32),
    ),
    "keys of a cache": (
        SingleNode(
            "GroupQueryAttention",
            [HEADS, HEADS, HEADS, PAST, PAST, np.array([[4]], I32), np.array(5, I32)],
            (6,), {"num_heads": 2, "kv_num_heads": 2}, domain="com.microsoft",
            shapes=[(1, 2, 8)],
        ),
        5, np.array([[5]], I32), np.array([[100]], I32),
    ),
    "a position of a head": (
        SingleNode(
            "GroupQueryAttention",
            [HEADS, HEADS, HEADS, None, None, np.array([[1]], I32), np.array(2, I32),
             ANGLES, ANGLES, np.array([[0, 3]])],
            (6,), {"num_heads": 2, "kv_num_heads": 2, "do_rotary": 1},
            domain="com.microsoft", shapes=[(1, 2, 8)],
        ),
        9, np.array([[0, 4]]), np.array([[-1, 1]]),
    ),
}  # fmt: skip
"""A node that is right, and two things for an input that are out of range."""


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_is_out_of_range_fails_the_run(alone: Alone, case: str) -> None:
    """DirectML does not say what it does then."""
    node, position, above, below = OUTSIDE[case]
    if case == "keys of a cache":  # one that has no room for the new ones
        node = node._replace(outputs=("y0", "", ""))
    nodes = {"n": node}
    session, fed = alone(model_of(nodes)), feeds_of(nodes)
    session.run(None, fed)
    for wrong in (above, below):
        with pytest.raises(onnxplug.errors.NodeError):
            session.run(None, {**fed, f"n:x{position}": wrong})
    session.run(None, fed)


def test_indices_from_both_ends_may_be_the_same(
    lowered: Callable[..., Graph],
) -> None:
    model = (
        'y = ScatterElements <reduction = "add"> (x, i, u)',
        "float[4, 1] x, float[2, 1] u", "float[4, 1] y",
    )  # fmt: skip
    assert lowered(*model, weights="int64[2, 1] i = {2, -1}")
    with pytest.raises(ep.Declined, match="of which some are equal"):
        lowered(*model, weights="int64[2, 1] i = {3, -1}")


@pytest.mark.parametrize("level", [0x6400, 0x5000])
@pytest.mark.parametrize(("left", "right"), [(1, 0), (1, -1), (-1, 1), (0, 2)])
def test_a_query_sees_as_many_keys_as_its_window_has(
    make_windows: Any, register: Any, level: int, left: int, right: int
) -> None:
    """Those at its place, and some to each side."""
    register(make_windows(directml_level=(level >> 12, level >> 8 & 0xF)))
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, 4, 2)).astype(np.float32) for _ in range(3))
    fields = {"q_num_heads": 1, "kv_num_heads": 1}
    fields |= {"left_window_size": left, "right_window_size": right}
    nodes = {
        "n": SingleNode(
            "Attention", [q, k, v], (), fields, opset=25, shapes=[(1, 4, 2)]
        )
    }
    session = onnxplug.InferenceSession(
        model_of(nodes), providers=["DmlExecutionProvider"]
    )
    (found,) = session.run(None, feeds_of(nodes))
    distance = np.arange(4) - np.arange(4)[:, None]
    seen = (distance >= (-left if left >= 0 else -4)) & (
        distance <= (right if right >= 0 else 4)
    )
    scores = q[0].astype(np.float64) @ k[0].T / np.sqrt(2)
    weights = np.where(seen, np.exp(scores), 0)
    wanted = weights / weights.sum(-1, keepdims=True) @ v[0]
    np.testing.assert_allclose(found[0], wanted, 1e-5, 1e-6)


def test_what_nobody_takes_has_an_edge_all_the_same(
    alone: Alone, lowered: Callable[..., Graph], parse: Callable[..., onnx.ModelProto]
) -> None:
    """DirectML demands one from each output of each node."""
    model = "y, i = TopK (x, k)", "float[2, 2] x", "float[2, 1] y"
    graph = lowered(*model, weights="int64[1] k = {1}")
    assert "JOIN" in [node.operator.type.name for node in graph.nodes]
    session = alone(parse(*model, weights="int64[1] k = {1}"))
    (found,) = session.run(None, {"x": X})
    assert found.tolist() == [[3.0], [1.0]]


@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_a_range_begins_at_its_start(lowered: Callable[..., Graph], dtype: str) -> None:
    graph = lowered(
        "y = Range (a, b, c)", "float x", f"{dtype}[3] y",
        weights=f"{dtype} a = {{5}}, {dtype} b = {{11}}, {dtype} c = {{2}}",
    )  # fmt: skip
    fills = [n.operator for n in graph.nodes if "SEQUENCE" in n.operator.type.name]
    told = [(each.fields["ValueStart"], each.fields["ValueDelta"]) for each in fills]
    held = [x.constant.tolist() for x in graph.inputs if x.constant is not None]
    assert told == [(5, 2)] or held == [[5, 7, 9]]


def test_matrices_in_many_dimensions_are_one_product(
    lowered: Callable[..., Graph],
) -> None:
    """Where strides tell how they follow one another, none is copied."""
    graph = lowered(
        "y = MatMul (a, b)", "float[2, 3, 2, 4, 5] a, float[2, 3, 2, 5, 6] b",
        "float[2, 3, 2, 4, 6] y",
    )  # fmt: skip
    assert [node.operator.type.name for node in graph.nodes] == ["GEMM"]


REFUSED: dict[str, tuple[SingleNode, str]] = {
    "letters of one size": (
        SingleNode(
            "Einsum", [X.reshape(1, 4), X.reshape(4, 1)], (),
            {"equation": "ij,ij->ij"}, shapes=[(1, 4)],
        ),
        "i is 1 and 4",
    ),
    "letters once in the result": (
        SingleNode(
            "Einsum", [X[0]], (), {"equation": "i->ii"}, shapes=[(2, 2)]
        ),
        "each once",
    ),
    "dimensions of batches": (
        SingleNode(
            "GatherND", [PICTURE.reshape(2, 4, 2), np.zeros((4, 2, 1), I64)], (),
            {"batch_dims": 2}, shapes=[(4, 2)],
        ),
        "batch_dims is 2",
    ),
    "the shape of updates": (
        SingleNode(
            "ScatterElements",
            [PICTURE[0, 0], np.zeros((2, 4), I64), PICTURE[0, 0][:, :2]],
            shapes=[(4, 4)],
        ),
        r"updates of \[4, 2\] for \[2, 4\]",
    ),
    "the shape of rows": (
        SingleNode(
            "ScatterND", [PICTURE[0, 0], np.zeros((2, 1), I64), PICTURE[0, 0][:, :2]],
            shapes=[(4, 4)],
        ),
        r"updates of \[4, 2\] for \[2, 4\]",
    ),
    "integers raised to fractions": (
        SingleNode("Pow", [np.array([3], I32), np.array([0.5], np.float32)], (1,)),
        "there is no float64",
    ),
    "another way to align": (
        SingleNode(
            "RoiAlign", [PICTURE, REGION, np.array([0])], (),
            {"sampling_ratio": 1, "coordinate_transformation_mode": "middle"},
            shapes=[(1, 1, 1, 1)],
        ),
        "is 'middle'; takes half_pixel, output_half_pixel",
    ),
    "a number that no field holds": (
        SingleNode(
            "DepthToSpace", [np.ones((1, 4, 1, 1), np.float32)], (),
            {"blocksize": 2**40}, shapes=[(1, 1, 2, 2)],
        ),
        "BlockSize is 1099511627776, which is no UINT",
    ),
    "a text for a number": (
        SingleNode("Elu", [X], (), {"alpha": "1"}, shapes=[(2, 2)]),
        "alpha is '1'; takes FLOAT",
    ),
    "no number": (
        SingleNode("MaxRoiPool", [PICTURE, np.insert(REGION, 0, 0, 1)],
                   shapes=[(1, 1, 1, 1)]),
        "pooled_shape is left out",
    ),
    "an order of other dimensions": (
        SingleNode("Transpose", [X], (), {"perm": [0, 0]}, shapes=[(2, 2)]),
        r"\[0, 0\] orders no 2 dimensions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_goes_not_together_is_refused(
    graph_of: Callable[[onnx.ModelProto], GraphPartition], case: str
) -> None:
    node, said = REFUSED[case]
    graph = graph_of(model_of({"n": node})).graph
    reason = str(Judge(graph, Target(0x6400))(graph.nodes[0]))
    assert re.search(said, reason), reason
