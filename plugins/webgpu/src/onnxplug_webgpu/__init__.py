"""onnxplug's execution provider for GPUs, on WebGPU."""

__version__ = "0.1.0"
