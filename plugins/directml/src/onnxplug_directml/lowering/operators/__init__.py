"""The rules of operators: importing this package declares them all.

A rule is a function of a :class:`.call.Call` under ``@lowers("Add", …)``: it writes
nodes with ``call.build`` and returns the values of the outputs::

    @lowers("Relu")
    def _relu(call: Call) -> Value:
        x = call.operand(0)
        return call.build("ACTIVATION_RELU", InputTensor=x, OutputTensor=call.result())

What it does not know it refuses, by raising :class:`.builder.Refused`.  Types and ranks
that DirectML's operators take at the device's feature level are checked by the builder,
against the rows of :mod:`onnxplug_directml.lowering.support`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
