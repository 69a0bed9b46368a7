"""Reads a model's graphs in order and finds the type of each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from onnxplug.errors import ModelError
from onnxplug.graph import Graph
from onnxplug.prepare.scopes import all_graphs
from onnxplug.prepare.symbolic import elementwise, movement, neural
from onnxplug.prepare.symbolic.control import control_flow
from onnxplug.prepare.symbolic.declared import settled, shown, written
from onnxplug.prepare.symbolic.elementwise import Rule
from onnxplug.prepare.symbolic.facts import UNKNOWN, Facts, NodeCall, Scope, Value
from onnxplug.prepare.symbolic.values import RULES as CONTENT_RULES
from onnxplug.prepare.symbolic.values import contents
from onnxplug.prepare.types import GENERATED, names_of_sizes

_RULES: Final[dict[tuple[str, str], Rule]] = {
    **{
        ("", operator): rule
        for rules in (elementwise.RULES, movement.RULES, neural.RULES)
        for operator, rule in rules.items()
    },
    **{
        ("com.microsoft", operator): rule
        for rules in (elementwise.MICROSOFT, neural.MICROSOFT)
        for operator, rule in rules.items()
    },
}
"""Rules by domain and operator."""


def infer_symbolically(graph: Graph) -> None:
    """Complete ``Graph.types`` of *graph* and of bodies within.

    Operators without a rule keep the types that are declared; more than is known of
    them then is not known of what follows.

    Args:
        graph: a main graph.

    Raises:
        InvalidModel: a value is declared with another element type than it gets.
    """
    scope = Scope(_first_unused(graph))
    _read(graph, Facts(graph, scope))


def _first_unused(graph: Graph) -> int:
    """A number above those in names that were made up before."""
    numbers = (
        number
        for each in all_graphs(graph)
        for type in each.types.values()
        for name in names_of_sizes(type)
        if GENERATED in name
        for part in name.split(GENERATED)[1:]
        if (number := _leading_number(part)) is not None
    )
    return max(numbers, default=-1) + 1


def _leading_number(text: str) -> int | None:
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits) if digits else None


def _read(graph: Graph, facts: Facts) -> Facts:
    opset = graph.opset()
    is_main = graph.parent is None
    outputs = frozenset(graph.outputs)
    for node in graph.nodes:
        call = NodeCall(node, facts, opset)
        found = _types(call)
        if node.op_type in CONTENT_RULES:
            _follow_content(call)
        for position, name in enumerate(node.outputs):
            if not name:
                continue
            follows = found[position] if position < len(found) else UNKNOWN
            declared = graph.types.get(name)
            value = settled(graph, name, follows, facts.scope)
            facts.values[name] = value
            if value != UNKNOWN:
                type = written(value, facts.scope)
                hides = is_main and name in outputs
                graph.types[name] = shown(declared, type) if hides else type
    return facts


def _types(call: NodeCall) -> Sequence[Value]:
    """The types of a node's outputs, as far as they follow."""
    node = call.node
    rule = _RULES.get((node.domain, node.op_type))
    try:
        if rule is not None:
            found = rule(call)
        elif node.subgraphs:
            found = control_flow(call, _follower(call.facts))
        else:
            return ()
    except ModelError:
        raise
    except (IndexError, TypeError, ValueError):
        # the node is wrong, which its EP will say better
        return ()
    if found is None:
        return ()
    return (found,) if isinstance(found, Value) else found


def _follow_content(call: NodeCall) -> None:
    found = contents(call)
    if found is not None:
        for name, content in zip(call.node.outputs, found, strict=False):
            if name:
                call.facts.contents[name] = content


def _follower(around: Facts) -> Callable[[Graph, Sequence[Value]], Facts]:
    def follow(body: Graph, given: Iterable[Value]) -> Facts:
        facts = Facts(body, around.scope, around)
        for name, value in zip(body.inputs, given, strict=False):
            value = settled(body, name, value, around.scope, believes_names=False)
            facts.values[name] = value
            if value != UNKNOWN:
                body.types[name] = written(value, around.scope)
        return _read(body, facts)

    return follow
