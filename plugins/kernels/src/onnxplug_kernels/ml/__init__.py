"""The operators of ``ai.onnx.ml``: encoders, linear models, SVMs and trees."""
