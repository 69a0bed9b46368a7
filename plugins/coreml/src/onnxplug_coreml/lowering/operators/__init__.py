"""What each ONNX operator is in primitives, at each of its versions."""
