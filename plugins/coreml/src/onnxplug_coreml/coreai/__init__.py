"""Core AI: programs as its models, and runs of them."""

from onnxplug_coreml.coreai.engine import build, load, units

__all__ = ["build", "load", "units"]
