"""Allow-lists that were measured: nodes like those that an engine got right.

For EPs whose engine compiles nodes that it computes wrongly.  A list says of each
operator which features of nodes (:mod:`.features`) were seen to be right, and which
combinations of them wrong.  Every refusal names what was found and what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug.authoring.features import features
from onnxplug.ep.capability import Reason, RefusalCode
from onnxplug.ep.graph import Graph, Node

_CODES: Final = {
    "types": RefusalCode.DTYPE,
    "attribute": RefusalCode.ATTRIBUTE,
    "flattens": RefusalCode.ATTRIBUTE,
    "negative": RefusalCode.ATTRIBUTE,
    "dynamic": RefusalCode.DYNAMIC_SHAPE,
    "unsized": RefusalCode.DYNAMIC_SHAPE,
    "fed": RefusalCode.NOT_CONSTANT,
    "held": RefusalCode.OTHER,
    "since": RefusalCode.OPSET,
    "rank": RefusalCode.RANK,
    "empty": RefusalCode.RANK,
    "omits": RefusalCode.OTHER,
    "inputs": RefusalCode.OTHER,
    "outputs": RefusalCode.OTHER,
}


class AllowList:
    """Judges nodes by what was measured.

    Args:
        operators: by operator what was seen: lists of words by ``since``, ``types``,
            ``inputs``, ``omits``, ``outputs``, ``attributes`` and ``empty``, and
            combinations of words in ``refused``.
        engine: its name, for reasons.
        lacks: element types that it has not.
    """

    def __init__(
        self,
        operators: Mapping[str, Mapping[str, Any]],
        engine: str,
        lacks: Mapping[str, str] = {},
    ) -> None:
        self.operators: Final[Mapping[str, Mapping[str, Any]]] = {
            name: {
                **entry,
                "refused": [frozenset(rule) for rule in entry.get("refused", ())],
            }
            for name, entry in operators.items()
        }
        self._engine = engine
        self._lacks = lacks

    def check(self, graph: Graph, node: Node) -> Reason | None:
        """Why *node* is refused; ``None`` if the list has its like."""
        if node.domain not in ("", "ai.onnx"):
            return Reason(RefusalCode.OP, f"domain {node.domain}; takes ONNX's own")
        entry = self.operators.get(node.op_type)
        if entry is None:
            detail = f"{node.op_type} was not seen to be right in {self._engine}"
            return Reason(RefusalCode.OP, detail)
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
                return Reason(RefusalCode.DTYPE, f"{name!r} is no tensor of known type")
            if value.shape is None:
                return Reason(RefusalCode.RANK, f"{name!r} is of unknown rank")
            types.append(str(value.dtype))
            shapes.append(value.shape)
            if value.is_constant:
                constants.add(position)
        for name in filter(None, node.outputs):
            value = graph.value(name)
            if value.dtype is None or value.shape is None:
                detail = f"{name!r} is of unknown type or rank"
                return Reason(RefusalCode.DYNAMIC_SHAPE, detail)
            if str(value.dtype) in self._lacks:
                why = self._lacks[str(value.dtype)]
                return Reason(RefusalCode.DTYPE, f"{name!r} is {value.dtype}, {why}")
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
        return self.refusal_of(entry, frozenset(facts))

    def refusal_of(
        self, entry: Mapping[str, Any], facts: frozenset[str]
    ) -> Reason | None:
        """Why an operator's *entry* refuses a node with these features, if it does."""
        if "flattens" in facts:
            detail = "Softmax before version 13 along another axis than the last"
            return Reason(RefusalCode.ATTRIBUTE, detail)
        for word in sorted(facts):
            kind, _, value = word.partition("=")
            if kind in ("since", "types", "inputs", "omits", "outputs"):
                if value not in entry.get(kind, ()):
                    return self._unseen(kind, value, entry)
            elif kind.startswith("attribute:"):
                written = word.removeprefix("attribute:")
                if written not in entry.get("attributes", ()):
                    detail = f"{written} was not seen to be right"
                    return Reason(RefusalCode.ATTRIBUTE, detail)
            elif kind.startswith("empty:"):
                position = kind.removeprefix("empty:")
                if position not in entry.get("empty", ()):
                    detail = f"input {position} has no elements"
                    return Reason(RefusalCode.RANK, detail)
        for rule in entry.get("refused", ()):
            if facts.issuperset(rule):
                ordered = sorted(rule, key=_severity)
                code = _CODES[ordered[0].partition("=")[0].partition(":")[0]]
                return Reason(
                    code, f"wrong in {self._engine} with {' and '.join(ordered)}"
                )
        return None

    def _unseen(self, kind: str, value: str, entry: Mapping[str, Any]) -> Reason:
        seen = ", ".join(entry.get(kind, ())) or "none"
        match kind:
            case "since":
                detail = f"version {value}; those seen to be right: {seen}"
            case "types":
                lacking = [each for each in value.split(",") if each in self._lacks]
                if lacking:
                    detail = f"{lacking[0]}, {self._lacks[lacking[0]]}"
                else:
                    detail = (
                        f"inputs of {value}; seen to be right: "
                        f"{seen.replace(', ', '; ')}"
                    )
            case _:
                detail = f"{kind} {value or 'none'}; seen to be right: {seen}"
        return Reason(_CODES[kind], detail)


def _severity(word: str) -> int:
    return list(_CODES).index(word.partition("=")[0].partition(":")[0])
