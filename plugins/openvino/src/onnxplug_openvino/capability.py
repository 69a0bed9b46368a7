"""Which nodes the EP takes: those like the ones that OpenVINO was seen to get right.

The allow-list, ``operators.json``, is measured, not written: OpenVINO compiles nodes
that it computes wrongly.  Every refusal names what was found and what is known to work.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from onnxplug import ep
from onnxplug_openvino.channels import Channels
from onnxplug_openvino.features import features, type_signature
from onnxplug_openvino.ranges import Ranges

CONTROL_FLOW: Final = frozenset({"If", "Loop", "Scan"})

_CODES: Final = {
    "types": ep.RefusalCode.DTYPE,
    "attribute": ep.RefusalCode.ATTRIBUTE,
    "flattens": ep.RefusalCode.ATTRIBUTE,
    "negative": ep.RefusalCode.ATTRIBUTE,
    "dynamic": ep.RefusalCode.DYNAMIC_SHAPE,
    "unsized": ep.RefusalCode.DYNAMIC_SHAPE,
    "fed": ep.RefusalCode.NOT_CONSTANT,
    "held": ep.RefusalCode.OTHER,
    "since": ep.RefusalCode.OPSET,
    "rank": ep.RefusalCode.RANK,
    "empty": ep.RefusalCode.RANK,
    "omits": ep.RefusalCode.OTHER,
    "inputs": ep.RefusalCode.OTHER,
    "outputs": ep.RefusalCode.OTHER,
}


@functools.cache
def load_table() -> Mapping[str, Any]:
    """The allow-list: what was measured, by operator."""
    file = resources.files("onnxplug_openvino").joinpath("operators.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {name: _prepared(entry) for name, entry in table["operators"].items()}


def _prepared(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "refused": [frozenset(rule) for rule in entry.get("refused", ())]}


def judge(graph: ep.Graph, *, trust_int64: bool = False) -> ep.CapabilityReport:
    """Claim or refuse every node of *graph*.

    Args:
        trust_int64: take int64 for granted to fit in 32 bits.
    """
    ranges = Ranges(graph)
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
    if node.domain not in ("", "ai.onnx"):
        return ep.Reason(ep.RefusalCode.OP, f"domain {node.domain}; takes ONNX's own")
    if node.op_type in CONTROL_FLOW:
        return ep.Reason(ep.RefusalCode.OP, "the host runs the bodies of control flow")
    entry = load_table().get(node.op_type)
    if entry is None:
        detail = f"{node.op_type} was not seen to be right in OpenVINO"
        return ep.Reason(ep.RefusalCode.OP, detail)
    types: list[str | None] = []
    shapes: list[Any] = []
    constants = set()
    for position, name in enumerate(node.inputs):
        if name is None:
            types.append(None)
            shapes.append(None)
            continue
        value = graph.value(name)
        if value.dtype is None:
            detail = f"{name!r} is no tensor of known type"
            return ep.Reason(ep.RefusalCode.DTYPE, detail)
        if value.shape is None:
            detail = f"{name!r} is of unknown rank"
            return ep.Reason(ep.RefusalCode.RANK, detail)
        types.append(str(value.dtype))
        shapes.append(value.shape)
        if value.is_constant:
            constants.add(position)
    for name in filter(None, node.outputs):
        value = graph.value(name)
        if value.dtype is None or value.shape is None:
            detail = f"{name!r} is of unknown type or rank"
            return ep.Reason(ep.RefusalCode.DYNAMIC_SHAPE, detail)
        if str(value.dtype) in ("float64", "uint64"):
            detail = f"{name!r} is {value.dtype}, for which OpenVINO has 32 bits"
            return ep.Reason(ep.RefusalCode.DTYPE, detail)
    facts = features(
        operator=node.op_type,
        since=node.since_version,
        types=types,
        shapes=shapes,
        outputs=[bool(name) for name in node.outputs],
        attributes=node.attributes,
        defaults=entry.get("defaults", {}),
        constants=frozenset(constants),
    )
    return refusal_of(entry, frozenset(facts))


def refusal_of(entry: Mapping[str, Any], facts: frozenset[str]) -> ep.Reason | None:
    """Why an operator's *entry* refuses a node with these features, if it does."""
    if "flattens" in facts:
        detail = "Softmax before version 13 along another axis than the last"
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
    for word in sorted(facts):
        kind, _, value = word.partition("=")
        if kind in ("since", "types", "inputs", "omits", "outputs"):
            if value not in entry.get(kind, ()):
                return _unseen(kind, value, entry)
        elif kind.startswith("attribute:"):
            written = word.removeprefix("attribute:")
            if written not in entry.get("attributes", ()):
                detail = f"{written} was not seen to be right"
                return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
        elif kind.startswith("empty:"):
            position = kind.removeprefix("empty:")
            if position not in entry.get("empty", ()):
                detail = f"input {position} has no elements"
                return ep.Reason(ep.RefusalCode.RANK, detail)
    for rule in entry.get("refused", ()):
        if facts.issuperset(rule):
            ordered = sorted(rule, key=_severity)
            code = _CODES[ordered[0].partition("=")[0].partition(":")[0]]
            return ep.Reason(code, f"wrong in OpenVINO with {' and '.join(ordered)}")
    return None


def _unseen(kind: str, value: str, entry: Mapping[str, Any]) -> ep.Reason:
    seen = ", ".join(entry.get(kind, ())) or "none"
    match kind:
        case "since":
            detail = f"version {value}; those seen to be right: {seen}"
        case "types":
            wide = {"float64", "uint64"} & set(value.split(","))
            if wide:
                detail = f"{', '.join(sorted(wide))}, for which OpenVINO has 32 bits"
            else:
                detail = (
                    f"inputs of {value}; seen to be right: {seen.replace(', ', '; ')}"
                )
        case _:
            detail = f"{kind} {value or 'none'}; seen to be right: {seen}"
    return ep.Reason(_CODES[kind], detail)


def _severity(word: str) -> int:
    return list(_CODES).index(word.partition("=")[0].partition(":")[0])


__all__ = ["check", "judge", "load_table", "refusal_of", "type_signature"]
