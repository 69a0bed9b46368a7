"""Computing on numpy arrays: the kernels of onnxplug-kernels, and what backs them."""
