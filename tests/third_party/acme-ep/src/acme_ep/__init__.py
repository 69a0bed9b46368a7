"""An EP that knows nothing of onnxplug but its documentation."""
