"""Native plugin EPs of ONNX Runtime, hosted by onnxplug."""

__version__ = "0.1.0"
