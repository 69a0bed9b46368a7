"""How each primitive is written, by kind."""

from onnxplug_coreml.mlprogram.operations import (
    elementwise,
    indexing,
    movement,
    reduction,
    windows,
)

__all__ = ["elementwise", "indexing", "movement", "reduction", "windows"]
