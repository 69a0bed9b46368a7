"""Models to be compiled ahead by simulated devices, and how that is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import onnxplug

EP = "SimulatedExecutionProvider"
ON_DEVICE = frozenset({"MatMul", "Relu", "Add", "Sub", "Mul"})

SANDWICH = """
< ir_version: 9, opset_import: ["" : 20], producer_name: "maker",
  metadata_props: ["author": "somebody"] >
agraph (float[n, 3] x) => (float[n, 4] y)
< float[3, 4] w = {1, 0, 2, 0, 0, 1, 0, 2, 3, 0, 1, 0}, float[4] v = {4, 3, 2, 1} >
{
    [first] a = MatMul (x, w)
    [second] b = Relu (a)
    [third] c = Sin (b)
    [fourth] d = Add (c, a)
    [fifth] y = Mul (d, v)
}
"""
"""Two partitions of a simulated device, one of the CPU EP between them."""

BRANCHES = """
< ir_version: 9, opset_import: ["" : 20] >
agraph (bool c, float[2] x) => (float[2] y)
< float[2] k = {5, 7} >
{
    s = Add (x, k)
    t = If (c) <
        then_branch = then () => (float[2] p) { q = Mul (s, k) p = Sub (q, x) },
        else_branch = other () => (float[2] r) { u = Sin (s) r = Add (u, k) }
    >
    y = Add (t, x)
}
"""
"""Partitions within bodies, which capture values and a constant."""

FEED = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}


def save(text: str, path: Path) -> str:
    """Write the model of *text*."""
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


def expected(text: str, feed: dict[str, Any]) -> Any:
    """What ``onnx.reference`` computes."""
    return ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, feed)[0]


def options(**entries: str) -> onnxplug.SessionOptions:
    """Session options with entries ``ep.context_…``, and ``session_…``."""
    found = onnxplug.SessionOptions()
    for key, value in entries.items():
        prefix, _, rest = key.partition("_")
        found.add_session_config_entry(f"{prefix}.{rest}", value)
    return found


def compile_ahead(source: Any, target: Path, **entries: str) -> str:
    """Write a compiled model by way of a session; its path."""
    entries = {"ep_context_file_path": str(target)} | entries
    said = options(ep_context_enable="1", **entries)
    onnxplug.InferenceSession(source, said, [EP]).close()
    return str(target)


def contexts(model: str | Path) -> list[onnx.NodeProto]:
    """The EPContext nodes of the main graph of a model."""
    graph = onnx.load(model, load_external_data=False).graph
    return [node for node in graph.node if node.op_type == "EPContext"]


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of an attribute."""
    (found,) = [each for each in node.attribute if each.name == name]
    return onnx.helper.get_attribute_value(found)


def change(path: str | Path, name: str, value: Any) -> None:
    """Set an attribute of every EPContext node of a model to another value."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "EPContext":
            kept = [each for each in node.attribute if each.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value is not None:
                node.attribute.append(onnx.helper.make_attribute(name, value))
    onnx.save(model, path)
