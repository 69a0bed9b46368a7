"""ONNX Runtime's C interface of plugin EPs: its tables, and what stands behind them."""
