"""The rules against ONNX's own cases of single operators."""

from __future__ import annotations

import numpy as np

from onnxplug.ep import TensorType
from onnxplug.graph.load import load_model
from onnxplug.prepare.symbolic.inference import infer_symbolically


def test_what_follows_is_what_the_suite_expects(suite):
    followed, wrong = 0, []
    for case in suite:
        if case.model is None or not case.data_sets:
            continue
        model = load_model(case.model)
        graph = model.graph
        if model.functions:
            continue
        for node in graph.nodes:
            for name in filter(None, node.outputs):
                graph.types.pop(name, None)
        infer_symbolically(graph)
        _, expected = case.data_sets[0]
        for name, value in zip(graph.outputs, expected, strict=False):
            found = graph.types.get(name)
            if not isinstance(found, TensorType) or not isinstance(value, np.ndarray):
                continue
            dtype_fits = found.dtype is None or found.dtype.numpy == value.dtype
            fits = dtype_fits and (
                found.shape is None
                or (
                    len(found.shape) == value.ndim
                    and all(
                        size == actual or not isinstance(size, int)
                        for size, actual in zip(found.shape, value.shape, strict=True)
                    )
                )
            )
            followed += found.shape is not None
            if not fits:
                wrong.append(f"{case.name}: {found} for {value.dtype}{value.shape}")
    assert not wrong, "\n".join(wrong)
    assert followed > 1200
