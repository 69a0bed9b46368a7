"""What records the commands of each ONNX operator that is not element-wise."""
