"""One node evaluated by its kernel, by ONNX Runtime, and by ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels import find_kernel
from onnxplug_testing.oracles import one_node_model, onnx_runtime, reference

__all__ = ["ML", "one_node_model", "onnx_runtime", "reference", "run"]

ML = "ai.onnx.ml"


def run(
    op_type: str,
    *inputs: Any,
    domain: str = "",
    version: int = 20,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    """What the kernel returns: one value, or a tuple of them."""
    kernel = find_kernel(domain, op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)
