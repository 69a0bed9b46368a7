"""Says where the names of ONNX Runtime are: in a distribution of their own."""

raise ImportError(
    "onnxplug.as_onnxruntime is the package onnxplug_onnxruntime, of the distribution "
    "onnxplug-onnxruntime; install that, and import onnxplug_onnxruntime, or run "
    "python -m onnxplug_onnxruntime program.py"
)
