"""Pipelines and ensembles of trees, as ONNX and as their libraries have them."""
