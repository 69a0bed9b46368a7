"""The operators of ``ai.onnx.preview.training`` for onnxplug."""

__version__ = "0.1.0"
