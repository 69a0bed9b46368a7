"""What ONNX Runtime's CPU EP gives for one node: an independent reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

OPSET = 21


def of_onnx(
    operator: str, *inputs: Any, outputs: int = 1, opset: int = OPSET, **attributes: Any
) -> Any:
    """The output of an operator of ONNX, or the list of several.

    Args:
        operator: ONNX's name.
        inputs: arrays; None leaves an optional input out.
        outputs: how many there are.
        opset: the version of ONNX's operators.
        attributes: of the node.
    """
    names = ["" if each is None else f"x{at}" for at, each in enumerate(inputs)]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(operator, names, results, **attributes)
    feeds = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        [node], "g", infos, [onnx.ValueInfoProto(name=name) for name in results]
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )
    session = onnxruntime.InferenceSession(  # type: ignore[attr-defined]
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = session.run(None, feeds)
    return found[0] if outputs == 1 else found
