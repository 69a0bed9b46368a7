"""Which nodes the EP takes: those like the ones that OpenVINO was seen to get right.

The allow-list, ``operators.json``, is measured, not written: OpenVINO compiles nodes
that it computes wrongly.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from onnxplug import ep
from onnxplug.authoring.allow_list import AllowList
from onnxplug.authoring.operators import having
from onnxplug.authoring.ranges import Ranges
from onnxplug_openvino.channels import Channels


@functools.cache
def load_list() -> AllowList:
    """What was measured, by operator."""
    file = resources.files("onnxplug_openvino").joinpath("operators.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return AllowList(table["operators"], "OpenVINO", table["lacks"])


def judge(graph: ep.Graph, *, trust_int64: bool = False) -> ep.CapabilityReport:
    """Claim or refuse every node of *graph*.

    Args:
        trust_int64: take int64 for granted to fit in 32 bits.
    """
    ranges = Ranges(graph, "OpenVINO", "int64_in_32_bits")
    channels = Channels(graph)
    reasons: dict[int, ep.Reason | None] = {}
    for node in graph.nodes:
        reason = check(graph, node) or channels.check(node)
        if reason is None and not trust_int64:
            reason = ranges.check(node)
        ranges.follow(node)
        reasons[node.index] = reason
    return ep.CapabilityReport.per_node(
        graph, lambda node: reasons[node.index], keeps_constants=False
    )


def check(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """Why *node* is refused; ``None`` if the allow-list has its like."""
    if node.domain in ("", "ai.onnx") and node.op_type in having("control_flow"):
        return ep.Reason(ep.RefusalCode.OP, "the host runs the bodies of control flow")
    return load_list().check(graph, node)
