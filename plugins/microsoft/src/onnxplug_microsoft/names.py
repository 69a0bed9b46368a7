"""Names of ONNX Runtime's domains."""

from __future__ import annotations

from typing import Final

ONNX: Final = "ai.onnx"
"""ONNX's own, to which ONNX Runtime adds operators."""

MICROSOFT: Final = "com.microsoft"

NCHWC: Final = "com.microsoft.nchwc"
"""That of images with their channels in blocks."""
