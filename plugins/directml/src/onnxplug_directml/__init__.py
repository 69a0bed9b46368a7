"""onnxplug's execution provider on DirectML, for Windows' GPUs and NPUs."""

__version__ = "0.1.0"
