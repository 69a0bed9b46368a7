"""The engine MLProgram: Core ML, by coremltools.

Programs are written in MIL, coremltools' intermediate language, and saved as packages,
which any system can do; only a Mac runs them.
"""

from onnxplug_coreml.mlprogram.engine import build, load, units

__all__ = ["build", "load", "units"]
