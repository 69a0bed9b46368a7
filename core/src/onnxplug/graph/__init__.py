"""The model's graph: loading it, rewriting it, and writing parts of it out again.

Names are imported when they are first used, as some rooms want weights and no graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxplug.graph.attribute import Attribute, AttributeType
    from onnxplug.graph.graph import Function, Graph, Model, Node
    from onnxplug.graph.weight import Weight

_HOME: Final = {
    "Attribute": "attribute",
    "AttributeType": "attribute",
    "Function": "graph",
    "Graph": "graph",
    "Model": "graph",
    "Node": "graph",
    "Weight": "weight",
}

__all__ = [
    "Attribute",
    "AttributeType",
    "Function",
    "Graph",
    "Model",
    "Node",
    "Weight",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
    return value
