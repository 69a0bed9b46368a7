"""The hardware of this machine, found without loading a driver."""

from onnxplug.hardware.discover import discover

__all__ = ["discover"]
