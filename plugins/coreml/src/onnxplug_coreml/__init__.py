"""onnxplug's execution provider on Apple's Core ML and Core AI."""

__version__ = "0.1.0"
