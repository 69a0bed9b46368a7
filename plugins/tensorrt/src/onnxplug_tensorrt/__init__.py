"""onnxplug's execution provider for NVIDIA's GPUs, on TensorRT."""

__version__ = "0.1.0"
