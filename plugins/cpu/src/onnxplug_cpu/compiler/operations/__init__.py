"""What the compiled tier does for each ONNX operator that is not element-wise."""
