"""onnxplug."""
