"""Operators on tables of features, against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(6)
WEIGHTS = RNG.standard_normal(15).astype(np.float32).tolist()
NODES: dict[str, dict[str, Any]] = {
    "Scaler": {"offset": [0.5, -1.0, 0.0, 2.0, 1.0],
               "scale": [1.0, 2.0, 0.1, 3.0, 1.0]},
    "Binarizer": {"threshold": 0.25},
    "Imputer": {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")},
    "Normalizer": {"norm": "L2"},
    "LinearRegressor": {"coefficients": WEIGHTS, "intercepts": [1.0, 2.0, 3.0],
                        "targets": 3},
    "LinearClassifier": {"coefficients": WEIGHTS, "intercepts": [1.0, 0.0, 0.5],
                         "classlabels_ints": [4, -2, 9], "multi_class": 1,
                         "post_transform": "SOFTMAX"},
}  # fmt: skip


@pytest.mark.parametrize("op_type", NODES)
def test_tables_are_as_in_onnx(alone: Any, op_type: str) -> None:
    domain = "ai.onnx.ml"
    names = ["label", "y"] if op_type == "LinearClassifier" else ["y"]
    node = helper.make_node(op_type, ["x"], names, domain=domain, **NODES[op_type])
    info = helper.make_tensor_value_info
    kinds = {"label": TensorProto.INT64, "y": TensorProto.FLOAT}
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", TensorProto.FLOAT, ["N", 5])],
        [info(name, kinds[name], None) for name in names],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = alone(model)
    for count in (9, 1):
        x = RNG.standard_normal((count, 5)).astype(np.float32)
        if op_type == "Imputer":
            x[0, 2] = np.nan
        found = session.run(None, {"x": x})
        wanted = ReferenceEvaluator(model).run(None, {"x": x})
        for result, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(result, right, 1e-5, 1e-6)
