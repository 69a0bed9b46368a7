"""How each primitive is written, by kind."""

from onnxplug_coreml.coreai.operations import (
    elementwise,
    indexing,
    movement,
    reduction,
    resampling,
    windows,
)

__all__ = ["elementwise", "indexing", "movement", "reduction", "resampling", "windows"]
