"""What each operation computes, by kind."""

from mil_interpreter.operations import (
    activation,
    convolution,
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    reduction,
    resizing,
    sorting,
)

__all__ = [
    "activation",
    "convolution",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "normalization",
    "pooling",
    "reduction",
    "resizing",
    "sorting",
]
