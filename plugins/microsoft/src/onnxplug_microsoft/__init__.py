"""ONNX Runtime's own operators for onnxplug."""

__version__ = "0.1.0"
