"""The models of the pages: exported by PyTorch, and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

CONTROL_FLOW = """
    <ir_version: 10, opset_import: ["": 21]>
    decode (float[4] x, int64 n, bool c) => (float[4] out, float[4] w) {
        [start] s0 = Mul (x, x)
        [steps] last, all = Loop (n, c, s0) <body = turn (int64 i, bool k, float[4] s)
            => (bool k2, float[4] s2, float[4] o) {
            k2 = Identity (k)
            [square] m = Mul (s, s)
            [root] q = Sqrt (m)
            [sum] s2 = Add (q, s0)
            [inner] o = If (k) <
                then_branch = soft () => (float[4] t) { [deep] t = Tanh (s2) },
                else_branch = hard () => (float[4] u) {
                    u1 = Sqrt (s2)
                    u = Mul (u1, u1)
                }
            >
        }>
        [end] out = Mul (last, last)
        [choice] w = If (c) <
            then_branch = here () => (float[4] v) { v = Mul (s0, last) },
            else_branch = there () => (float[4] y) { y = Sqrt (s0) }
        >
    }
"""


def with_control_flow() -> onnx.ModelProto:
    """A Loop whose body has an If, and an If."""
    return onnx.parser.parse_model(CONTROL_FLOW)


def of_nodes(count: int) -> onnx.ModelProto:
    """Layers of an encoder, tiny, until there are *count* nodes; each has a weight of
    its own, so that none is another's duplicate."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray[Any, Any]] = {}

    def add(operator: str, *inputs: str) -> str:
        number = len(nodes)
        if operator == "MatMul" and len(inputs) == 1:
            name = f"w{number}"
            constants[name] = np.full((4, 4), 0.1 + number * 1e-6, np.float32)
            inputs = (*inputs, name)
        nodes.append(
            helper.make_node(
                operator,
                inputs,
                [f"v{number}"],
                name=f"/layer.{number // 20}/{operator}_{number}",
            )
        )
        return f"v{number}"

    x, mask = "x", add("Sqrt", "mask")
    while len(nodes) < count:
        q, k, v = (add("Tanh", add("MatMul", x)) for _ in range(3))
        scores = add("Softmax", add("Add", add("MatMul", q, k), mask))
        x = add("Sigmoid", add("Add", add("MatMul", add("MatMul", scores, v)), x))
        gate = add("Erf", add("MatMul", x))
        x = add("Tanh", add("Add", add("Mul", gate, x), x))
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4])
        for name in ("x", "mask", x)
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        infos[:2],
        infos[2:],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in constants.items()
        ],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"blocks": (2, 2), "width": 8, "classes": 10},
    "yolo": {"widths": (4, 8, 8, 16, 16), "classes": 4, "size": 64},
    "bert": {
        "num_hidden_layers": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 99,
    },
}
"""The structure of networks, with sizes that take no time."""


def exported(name: str, folder: Path) -> str:
    """The path of the network *name* of the zoo, as PyTorch exports it, in small."""
    from zoo import SEQUENCES, ZOO, export

    image = {"image": (1, 3, 64, 64)}
    network = {
        "resnet": ZOO["resnet50-torchscript"]._replace(inputs=image),
        "yolo": ZOO["yolo"]._replace(inputs=image),
        "bert": SEQUENCES["bert-base"]._replace(
            inputs={"input_ids": (1, 16)}, words=99
        ),
    }[name]
    return str(export(network, folder, name, **SMALL[name]).model)
