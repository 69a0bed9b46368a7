"""Reads a model's graphs in order and finds the type of each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug.authoring.generated import GENERATED
from onnxplug.ep import (
    InferTypes,
    ValueType,
)
from onnxplug.errors import InvalidModel, ModelError, PluginError
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs
from onnxplug.shapes.control import control_flow, has_bodies
from onnxplug.shapes.declared import reconciled, shown
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import UNKNOWN, Content, Fact, Facts, NodeCall, Scope
from onnxplug.shapes.rules import find_rule, followed
from onnxplug.shapes.stated import names_of_sizes
from onnxplug.shapes.values import RULES as CONTENT_RULES
from onnxplug.shapes.values import contents

if TYPE_CHECKING:
    from onnxplug.plugins.domains import SuppliedOperator


def infer_symbolically(graph: Graph) -> Mapping[str, Content | None]:
    """Complete ``Graph.types`` of *graph* and of bodies within.

    Operators without a rule keep the types that are declared; more than is known of
    them then is not known of what follows.

    Args:
        graph: a main graph.

    Returns:
        The elements of small tensors of integers, as far as they follow.

    Raises:
        InvalidModel: a value is declared with another element type than it gets, or a
            node of *graph* has attributes or constants with which it cannot run.
    """
    scope = Scope(_first_unused(graph))
    return _read(graph, Facts(graph, scope)).contents


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
    # no count of ours gets so far, and of thousands of digits Python reads none
    return int(digits) if 0 < len(digits) < _MOST_DIGITS else None


_MOST_DIGITS: Final = 18


def _read(graph: Graph, facts: Facts) -> Facts:
    opset = graph.opset()
    believed = facts.believed
    is_main = graph.parent is None
    outputs = frozenset(graph.outputs)
    for node in graph.nodes:
        call = NodeCall(node, facts, opset)
        rule = rule_of(graph, node)
        believes = bool(believed) and not believed.isdisjoint(node.inputs)
        found = _types(call, rule, proven=is_main and not believes)
        if node.op_type in CONTENT_RULES:
            _follow_content(call)
        for position, name in enumerate(node.outputs):
            if not name:
                continue
            follows = found[position] if position < len(found) else UNKNOWN
            follows = facts.scope.kept(follows)
            declared = graph.types.get(name)
            fact = reconciled(graph, name, follows, facts.scope)
            facts.values[name] = fact
            if believes or rule is None or fact != follows:
                believed.add(name)
            if fact != UNKNOWN:
                type = facts.scope.stated(fact)
                hides = is_main and name in outputs
                graph.types[name] = shown(declared, type) if hides else type
    return facts


def rule_of(graph: Graph, node: Node) -> Rule | None:
    """The rule of a node's operator: the host's, or that of who supplies it."""
    rule = find_rule(node.domain, node.op_type)
    if rule is not None or (not node.domain and (node.subgraphs or has_bodies(node))):
        return rule
    from onnxplug import domains  # which few models need

    found = domains.find(graph, node)
    supplied = None if found is None else found.operator.infer_types
    if found is None or supplied is None:
        return None
    if not isinstance(supplied, str):
        return partial(_supplied, graph, found, supplied)
    rule = find_rule("", supplied)
    if rule is None:
        raise PluginError(
            f"{found.supplier} gives {node.op_type} the types of {supplied}; expected "
            "the name of an operator of ONNX"
        )
    return rule


def _supplied(
    graph: Graph, found: SuppliedOperator, infer_types: InferTypes, call: NodeCall
) -> Sequence[Fact]:
    """What the rule of who supplies an operator says.

    Raises:
        InvalidModel, OutOfBounds: the rule says that the node is wrong.
        PluginError: it failed.
    """
    node, scope = call.node, call.scope
    given = tuple(call.type(position) for position in range(len(node.inputs)))

    def ask() -> list[Fact] | OutOfBounds:
        try:
            types = infer_types(graph, node, given)
        except OutOfBounds as error:
            return error
        for type in types:
            if type is not None and not isinstance(type, ValueType):
                raise TypeError(f"it gave {type!r}; expected types of onnxplug.ep")
        return [scope.fact(type) for type in types]

    facts: list[Fact] | OutOfBounds = found.ask("infer_types", ask)
    if isinstance(facts, OutOfBounds):
        raise facts
    return facts


def types_of(call: NodeCall) -> Sequence[Fact]:
    """The types of a node's outputs, as far as they follow; never raises for a node
    that is wrong."""
    try:
        return _types(call, rule_of(call.facts.graph, call.node), proven=False)
    except ModelError:
        return ()


def _types(call: NodeCall, rule: Rule | None, *, proven: bool) -> Sequence[Fact]:
    """The types of a node's outputs, as far as they follow.

    Args:
        proven: the node is sure to run, on values of which nothing is only declared.

    Raises:
        InvalidModel: it is *proven* that the node cannot run.
    """
    if rule is None and (call.node.subgraphs or has_bodies(call.node)):
        rule = _control_flow
    try:
        return () if rule is None else followed(call, rule)
    except OutOfBounds as error:
        # a body need not run: exporters write branches that are wrong for some shapes
        if not proven:
            return ()
        raise InvalidModel(str(error)) from error


def _control_flow(call: NodeCall) -> Sequence[Fact] | None:
    return control_flow(call, _follower(call.facts))


def _follow_content(call: NodeCall) -> None:
    found = contents(call)
    if found is not None:
        for name, content in zip(call.node.outputs, found, strict=False):
            if name:
                call.facts.contents[name] = content


def _follower(around: Facts) -> Callable[[Graph, Sequence[Fact]], Facts]:
    def follow(body: Graph, given: Iterable[Fact]) -> Facts:
        facts = Facts(body, around.scope, around)
        for name, value in zip(body.inputs, given, strict=False):
            value = reconciled(body, name, value, around.scope, believes_names=False)
            facts.values[name] = value
            if value != UNKNOWN:
                body.types[name] = around.scope.stated(value)
        return _read(body, facts)

    return follow
