"""ONNX operators as primitives that engines have."""
