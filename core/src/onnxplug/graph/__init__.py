"""The model's graph: loading it, rewriting it, and writing parts of it out again."""

from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.graph import Function, Graph, Model, Node
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
