"""Tests in ``src`` are of distributions that ``onnxplug new-ep`` writes."""

collect_ignore = ["src"]
