"""What each ONNX operator is in primitives, at each of its versions."""

from onnxplug_coreml.lowering.operators import (
    activation,
    arithmetic,
    attention,
    layout,
    linear,
    lookup,
    normalization,
    reduction,
    resampling,
    sampling,
    windows,
)

__all__ = [
    "activation",
    "arithmetic",
    "attention",
    "layout",
    "linear",
    "lookup",
    "normalization",
    "reduction",
    "resampling",
    "sampling",
    "windows",
]
