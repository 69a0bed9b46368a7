"""Reads ML programs as Core ML would, and computes them with NumPy.

Core ML itself runs on Apple's systems only.  The semantics are those that coremltools
documents of each operation ("MIL Ops"); where that says nothing, as of values at
places that no index may have, an operation fails rather than guesses.
"""

from mil_interpreter.interpreter import Interpreter, UnknownOperation
from mil_interpreter.specification import SpecificationError

__all__ = ["Interpreter", "SpecificationError", "UnknownOperation"]
