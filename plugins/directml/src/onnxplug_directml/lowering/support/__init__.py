"""What DirectML's operators take, as their documentation states it.

A row is text, one line for each tensor or several that have the same::

    "InputTensor=OutputTensor: FLOAT32 FLOAT16; ranks 4 5"

Rows begin with feature level 5.0, the least that is used; what later levels add are
rows of their own.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from onnxplug_directml.lowering.support.table import (
    SUPPORT,
    level_named,
    supports,
    why_unsupported,
)

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["SUPPORT", "level_named", "supports", "why_unsupported"]
