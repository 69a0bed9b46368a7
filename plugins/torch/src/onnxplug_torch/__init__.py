"""onnxplug's execution provider for every device that PyTorch drives."""

__version__ = "0.1.0"
