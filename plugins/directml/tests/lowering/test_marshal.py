"""What DirectML reads, decoded from its memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug_directml.abi import directml
from onnxplug_directml.abi.directml import (
    DML_BUFFER_TENSOR_DESC,
    DML_GRAPH_DESC,
    DML_GRAPH_EDGE_DESC,
    DML_OPERATOR_DESC,
    DML_OPERATOR_TYPE,
    DML_TENSOR_DATA_TYPE,
    OPERATOR_DESCS,
)
from onnxplug_directml.lowering.graph import (
    Graph,
    GraphInput,
    InputEdge,
    Node,
    Operator,
    TensorDesc,
)
from onnxplug_directml.lowering.marshal import Marshalled, scalar_union

T = DML_TENSOR_DATA_TYPE


def at(address: int, structure: Any) -> Any:
    return structure.from_address(address)


def described(desc: DML_OPERATOR_DESC) -> Any:
    """The operator's own structure."""
    return at(desc.Desc, OPERATOR_DESCS[DML_OPERATOR_TYPE(desc.Type)])


def tensor(pointer: Any) -> dict[str, Any]:
    """A tensor's description."""
    found = at(pointer.contents.Desc, DML_BUFFER_TENSOR_DESC)
    count = found.DimensionCount
    return {
        "type": T(found.DataType).name,
        "sizes": found.Sizes[:count],
        "strides": found.Strides[:count] if found.Strides else None,
        "bytes": found.TotalTensorSizeInBytes,
        "owned": bool(found.Flags),
    }


def edges(count: int, pointer: Any, structure: Any) -> list[tuple[int, ...]]:
    """Edges as numbers, in the order of their fields."""
    numbers = [name for name, _ in structure._fields_ if name != "Name"]
    made = [at(pointer[i].Desc, structure) for i in range(count)]
    return [tuple(getattr(each, name) for name in numbers) for each in made]


def test_a_convolution_and_what_is_fused(lowered: Callable[..., Graph]) -> None:
    graph = lowered(
        "c = Conv <pads = [1, 0, 0, 2]> (x, w, b)\n y = LeakyRelu <alpha = 0.5> (c)",
        "float[1, 2, 5, 6] x",
        "float[1, 3, 4, 7] y",
        weights="float[3, 2, 3, 2] w = {" + ",".join(["1"] * 36) + "},"
        "float[3] b = {1, 2, 3}",
    )
    marshalled = Marshalled(graph)
    gc.collect()
    (operator,) = marshalled.operators
    desc = described(operator)
    assert operator.Type == DML_OPERATOR_TYPE.CONVOLUTION
    assert tensor(desc.InputTensor) == {
        "type": "FLOAT32", "sizes": [1, 2, 5, 6], "strides": None, "bytes": 240,
        "owned": False,
    }  # fmt: skip
    assert tensor(desc.FilterTensor)["owned"]
    assert tensor(desc.BiasTensor) == {
        "type": "FLOAT32", "sizes": [1, 3, 1, 1], "strides": None, "bytes": 12,
        "owned": True,
    }  # fmt: skip
    assert desc.Mode == directml.DML_CONVOLUTION_MODE.CROSS_CORRELATION
    assert desc.Direction == directml.DML_CONVOLUTION_DIRECTION.FORWARD
    assert desc.DimensionCount == 2
    assert desc.StartPadding[:2] == [1, 0]
    assert desc.EndPadding[:2] == [0, 2]
    assert desc.GroupCount == 1
    activation = described(desc.FusedActivation.contents)
    assert desc.FusedActivation.contents.Type == DML_OPERATOR_TYPE.ACTIVATION_LEAKY_RELU
    assert activation.Alpha == 0.5
    assert not activation.InputTensor
    assert not activation.OutputTensor


def test_edges_of_a_graph(lowered: Callable[..., Graph]) -> None:
    graph = lowered("a = Exp (x)\n b = Sub (a, x)\n y = Sub (b, a)")
    marshalled = Marshalled(graph)
    desc = marshalled.graph([11, 22, 33])
    assert (desc.InputCount, desc.OutputCount, desc.NodeCount) == (1, 1, 3)
    nodes = [
        at(desc.Nodes[i].Desc, directml.DML_OPERATOR_GRAPH_NODE_DESC) for i in range(3)
    ]
    assert [node.Operator for node in nodes] == [11, 22, 33]
    assert b"Exp" in nodes[0].Name
    assert edges(
        desc.InputEdgeCount, desc.InputEdges, directml.DML_INPUT_GRAPH_EDGE_DESC
    ) == [(0, 0, 0), (0, 1, 1)]
    assert edges(
        desc.IntermediateEdgeCount, desc.IntermediateEdges,
        directml.DML_INTERMEDIATE_GRAPH_EDGE_DESC,
    ) == [(0, 0, 1, 0), (1, 0, 2, 0), (0, 0, 2, 1)]  # fmt: skip
    assert edges(
        desc.OutputEdgeCount, desc.OutputEdges, directml.DML_OUTPUT_GRAPH_EDGE_DESC
    ) == [(2, 0, 0)]
    kinds = ctypes.cast(desc.InputEdges, ctypes.POINTER(DML_GRAPH_EDGE_DESC))
    assert kinds[0].Type == directml.DML_GRAPH_EDGE_TYPE.INPUT
    assert isinstance(desc, DML_GRAPH_DESC)


def test_connected_tensors_state_the_same_total(lowered: Callable[..., Graph]) -> None:
    """What is repeated by strides is of as many bytes as what makes it."""
    graph = lowered("s = Exp (b)\n y = Add (x, s)", "float[2, 3] x, float[3] b")
    marshalled = Marshalled(graph)
    exp, add = (described(each) for each in marshalled.operators)
    repeated = tensor(add.BTensor)
    assert repeated["sizes"] == [2, 3]
    assert repeated["strides"] == [0, 1]
    assert repeated["bytes"] == tensor(exp.OutputTensor)["bytes"] == 12


@pytest.mark.parametrize(
    ("number", "data_type", "wanted"),
    [
        (-3, T.INT8, b"\xfd"),
        (2**63, T.UINT64, b"\0\0\0\0\0\0\0\x80"),
        (1.5, T.FLOAT32, np.float32(1.5).tobytes()),
        (1.5, T.FLOAT16, np.float16(1.5).tobytes()),
        (np.inf, T.FLOAT16, np.float16(np.inf).tobytes()),
    ],
)
def test_scalars_are_of_their_type(
    number: float, data_type: DML_TENSOR_DATA_TYPE, wanted: bytes
) -> None:
    assert bytes(scalar_union(number, data_type)) == wanted.ljust(8, b"\0")


def pool(**fields: tuple[int, ...]) -> Graph:
    """A graph of one pool."""
    x = TensorDesc(T.FLOAT32, (1, 1, 4, 4))
    operator = Operator(
        DML_OPERATOR_TYPE.LP_POOLING,
        {
            "InputTensor": x, "OutputTensor": x, "Strides": (1, 1),
            "WindowSize": (1, 1), "StartPadding": (0, 0), "EndPadding": (0, 0), "P": 2,
            **fields,
        },
    )  # fmt: skip
    given = [GraphInput("x", x)]
    return Graph([Node("pool", operator)], given, [], [InputEdge(0, 0, 0)], [], [])


def test_integers_do_not_wrap() -> None:
    with pytest.raises(ValueError, match="300 is no UINT8"):
        scalar_union(300, T.UINT8)
    with pytest.raises(ValueError, match="StartPadding is -1, which is no UINT"):
        Marshalled(pool(StartPadding=(0, -1)))


def test_arrays_that_share_a_count_are_of_one_length() -> None:
    with pytest.raises(ValueError, match=r"LP_POOLING.WindowSize has 1"):
        Marshalled(pool(WindowSize=(1,)))
