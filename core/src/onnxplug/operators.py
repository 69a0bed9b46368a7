"""What is known of single operators beside their types, shapes and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug.graph import Node

if TYPE_CHECKING:
    from onnxplug import ep

CONTROL_FLOW: Final = frozenset({"If", "Loop", "Scan"})
"""Operators whose bodies the host runs when no EP takes the whole node."""

COMPUTE_INTENSIVE: Final = CONTROL_FLOW | {
    "Attention",
    "Conv",
    "ConvTranspose",
    "Einsum",
    "GRU",
    "Gemm",
    "LSTM",
    "MatMul",
    "RNN",
}
"""Operators that take many times as long as those that read each element once."""

DEQUANTIZE: Final = "DequantizeLinear"
"""ONNX's operator, and ONNX Runtime's.  Of constants it is not folded: what becomes of
it is decided when it is known which EP reads it."""

EP_CONTEXT: Final = "com.microsoft", "EPContext"
"""Domain and name of the operator that stands for a partition an EP has compiled."""


def is_ep_context(node: ep.Node) -> bool:
    """Whether *node* stands for a partition that an EP has compiled."""
    return (node.domain, node.op_type) == EP_CONTEXT


def is_control_flow(node: Node) -> bool:
    """Whether the host can run *node* by running its bodies."""
    return node.domain == "" and node.op_type in CONTROL_FLOW
