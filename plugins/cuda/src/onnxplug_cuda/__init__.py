"""onnxplug's execution provider for NVIDIA's GPUs, on CUDA."""

__version__ = "0.1.0"
