"""onnxplug's CPU execution provider."""

__version__ = "0.1.0"
