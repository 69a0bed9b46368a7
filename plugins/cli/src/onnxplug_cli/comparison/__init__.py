"""What two choices of EPs make of the same model and inputs, and where they part.

It is of the command line's distribution, as it asks of the core no more than any
program may: sessions, and runs that name values on the way.  Unlike the modules of
commands, these import numpy and onnx.
"""

from onnxplug.tolerances import TOLERANCES, Tolerance
from onnxplug_cli.comparison.differences import Difference
from onnxplug_cli.comparison.divergence import Divergence
from onnxplug_cli.comparison.outcome import Comparison, compare

__all__ = [
    "TOLERANCES",
    "Comparison",
    "Difference",
    "Divergence",
    "Tolerance",
    "compare",
]
