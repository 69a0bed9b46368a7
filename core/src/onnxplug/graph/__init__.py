"""The model's graph: loading it, rewriting it, and writing parts of it out again."""

from onnxplug.graph.graph import Function, Graph, Model
from onnxplug.graph.node import Attribute, AttributeType, Node
from onnxplug.graph.weight import Weight

__all__ = [
    "Attribute",
    "AttributeType",
    "Function",
    "Graph",
    "Model",
    "Node",
    "Weight",
]
