"""ONNX Runtime's operators as functions of ONNX's, one family per module."""
