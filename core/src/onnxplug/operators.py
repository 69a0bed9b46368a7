"""What is known of single operators beside their types, shapes and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug.authoring.operators import having
from onnxplug.escape import escape
from onnxplug.graph import Node
from onnxplug.suggest import did_you_mean

if TYPE_CHECKING:
    from onnxplug import ep

EP_CONTEXT: Final = "com.microsoft", "EPContext"
"""Domain and name of the operator that stands for a partition an EP has compiled."""


def is_ep_context(node: ep.Node) -> bool:
    """Whether *node* stands for a partition that an EP has compiled."""
    return (node.domain, node.op_type) == EP_CONTEXT


def dequantizes(node: Node) -> bool:
    """Whether *node* makes floats of integers, a scale and a zero point.

    Of constants it is not folded: what becomes of it is decided when it is known which
    EP reads it.
    """
    if not node.domain:
        return node.op_type in having("dequantize")
    from onnxplug import domains  # which few models need

    found = domains.find(node.graph, node) if node.graph else None
    return found is not None and "dequantize" in found.operator.traits


def is_control_flow(node: Node) -> bool:
    """Whether the host can run *node* by running its bodies."""
    return not node.domain and node.op_type in having("control_flow")


def is_defined(node: Node) -> bool:
    """Whether ONNX, or what a program has registered with it, has the operator in the
    version that the model imports."""
    # imported here, when a model is refused: it takes long, and models run without it
    import onnx.defs

    version = node.graph.opset(node.domain) if node.graph else 0
    return bool(onnx.defs.has(node.op_type, version, node.domain))


def why_unknown(node: Node) -> str:
    """What to say of an operator that ONNX has in no version; empty of others."""
    import onnx.defs

    if node.domain not in ("", "ai.onnx.ml") or onnx.defs.has(
        node.op_type, node.domain
    ):
        return ""
    schemas = onnx.defs.get_all_schemas()
    names = [each.name for each in schemas if each.domain == node.domain]
    near = did_you_mean(node.op_type, names)
    return f"ONNX has no operator {escape(node.op_type)}{near}"
