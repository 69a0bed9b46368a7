"""The domain whose operators this is of."""

from typing import Final

DOMAIN: Final = "ai.onnx.preview.training"
