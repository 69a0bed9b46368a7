"""``Gradient`` nodes become ordinary nodes, by differentiation in reverse.

Source: operator ``Gradient`` of ``ai.onnx.preview.training``, version 1.  What its
text leaves open is read thus: a target that is not a scalar is summed, so that each
gradient has the shape of its variable; what is named in ``xs`` and ``zs`` is
independent, so that paths through one of them to another do not count; whatever else
the target needs is a constant.  A value that is not floating-point has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from onnxplug.authoring.nodes import describe
from onnxplug.ep import (
    Graph,
    GraphEditor,
    InvalidModel,
    Node,
    TensorType,
    UnsupportedModel,
)
from onnxplug_training.derivatives import RULES, Emitter, Rule, Step
from onnxplug_training.derivatives.emit import label
from onnxplug_training.names import DOMAIN


def differentiate(editor: GraphEditor) -> list[str]:
    """Replace the ``Gradient`` nodes of a graph.

    Types are inferred on the way.  A node on the way to a target whose operator has no
    rule is itself replaced by its function body, if it has one.

    Returns:
        The nodes that were replaced, described in words.

    Raises:
        InvalidModel: a node names what the graph does not have, or depends on itself.
        UnsupportedModel: an operator on the way cannot be differentiated, or not in
            the model's opset, or the graph becomes larger than the host allows.
    """
    replaced: list[str] = []
    while pending := [node for node in editor.graph.nodes if _is_gradient(node)]:
        request = _first(editor, pending)
        replaced.append(describe(request.node))
        _replace(editor, request)
    return replaced


@dataclass(frozen=True, slots=True)
class _Request:
    """A ``Gradient`` node, read.

    Attributes:
        variables: what the target is differentiated by, ``xs``.
        independent: names of the values given, ``xs`` and then ``zs``.
        values: the values at which to differentiate, one for each of these.
        target: ``y``.
    """

    node: Node
    variables: tuple[str, ...]
    independent: tuple[str, ...]
    values: tuple[str, ...]
    target: str


def _is_gradient(node: Node) -> bool:
    return node.op_type == "Gradient" and node.domain == DOMAIN


def _first(editor: GraphEditor, pending: Sequence[Node]) -> _Request:
    """The first whose target depends on no other, as of higher orders the innermost."""
    for node in pending:
        request = _read(editor, node)
        needed = _needed(editor.graph, request.target, request.independent)
        if not any(map(_is_gradient, needed)):
            return request
    raise InvalidModel(
        f"{describe(pending[0])} differentiates a value that depends on its own result"
    )


def _read(editor: GraphEditor, node: Node) -> _Request:
    xs = tuple(node.attributes.get("xs", ()))
    independent = (*xs, *node.attributes.get("zs", ()))
    target = node.attributes.get("y")
    values = tuple(filter(None, node.inputs))
    if not xs or not isinstance(target, str):
        raise InvalidModel(f"{describe(node)} must set the attributes 'xs' and 'y'")
    if len(node.inputs) != len(independent) or len(values) != len(independent):
        raise InvalidModel(
            f"{describe(node)} has {len(values)} inputs, and names {len(independent)} "
            "values in 'xs' and 'zs'; they must be as many"
        )
    if len(set(independent)) != len(independent):
        raise InvalidModel(f"{describe(node)} names a value twice in 'xs' and 'zs'")
    if len(node.outputs) > len(xs):
        raise InvalidModel(
            f"{describe(node)} has {len(node.outputs)} outputs for {len(xs)} 'xs'"
        )
    graph = editor.graph
    own = editor.names(graph)
    for name in (*independent, target):
        if name not in own and not _is_around(editor, name):
            raise InvalidModel(
                f"{describe(node)} names {name!r}, which is no value of graph "
                f"{graph.name!r}"
            )
    if target not in own and target not in independent:
        raise UnsupportedModel(
            f"{describe(node)} is in the body {graph.name!r} and differentiates "
            f"{target!r} of a graph around it; move it to where its target is made"
        )
    return _Request(node, xs, independent, values, target)


def _is_around(editor: GraphEditor, name: str) -> bool:
    outer = editor.graph.parent
    while outer is not None:
        if name in editor.names(outer):
            return True
        outer = outer.parent
    return False


# what depends on what


def _needed(graph: Graph, target: str, independent: Iterable[str]) -> list[Node]:
    """The nodes that *target* is computed by from *independent*, in order."""
    given = set(independent)
    if target in given:
        return []
    wanted, nodes = {target}, list[Node]()
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(filter(None, node.outputs)):
            nodes.append(node)
            wanted.update(name for name in _reads(node) if name not in given)
    return nodes[::-1]


def _reads(node: Node) -> tuple[str, ...]:
    return (*filter(None, node.inputs), *node.captures)


def _way(
    graph: Graph, target: str, variables: Sequence[str], independent: Sequence[str]
) -> tuple[list[Node], set[str]]:
    """The nodes through which *target* depends on *variables*, and their values."""
    alive, nodes = set(variables), list[Node]()
    for node in _needed(graph, target, independent):
        if alive.isdisjoint(_smooth(node)):
            continue
        made = [
            name
            for name in filter(None, node.outputs)
            if name not in independent and _may_have_gradient(graph, name)
        ]
        if made:
            alive.update(made)
            nodes.append(node)
    return nodes, alive


def _smooth(node: Node) -> tuple[str, ...]:
    """What *node* reads, without that on which it does not depend smoothly."""
    rule = _rule(node)
    if rule is None or rule.passes is None:
        return _reads(node)
    given = [node.inputs[position] for position in rule.passes]
    return tuple(name for name in given if name)


def _may_have_gradient(graph: Graph, name: str) -> bool:
    type = graph.value(name).type
    if isinstance(type, TensorType) and type.dtype is not None:
        return "float" in type.dtype
    return True  # nothing is known of it, or it may hold tensors that do


# replacing one node


def _replace(editor: GraphEditor, request: _Request) -> None:
    given, target = _at_values(editor, request)
    variables = given[: len(request.variables)]
    editor.infer_types()
    graph = editor.graph
    for name in (*variables, target):
        if not _may_have_gradient(graph, name):
            raise InvalidModel(
                f"{describe(request.node)}: {name!r} is {graph.value(name).dtype}; "
                "only floating-point values can be differentiated"
            )
    way, alive = _way(graph, target, variables, given)
    while missing := [node for node in way if not _has_rule(graph, node)]:
        if not editor.expand_node(missing[0]):
            _refuse(graph, request.node, missing[0])
        editor.infer_types()
        way, alive = _way(graph, target, variables, given)
    emit = Emitter(editor, request.node)
    found = _backward(emit, way, alive, target, variables)
    emit.about = describe(request.node)
    for output, variable in zip(request.node.outputs, variables, strict=False):
        if output is None:
            continue
        gradient = found.get(variable) or emit.filled(0, variable)
        emit.nodes.append(editor.make_node("Identity", [gradient], [output]))
    kept = [node for node in graph.nodes if node is not request.node]
    editor.replace_nodes([*kept, *emit.nodes])


def _at_values(editor: GraphEditor, request: _Request) -> tuple[tuple[str, ...], str]:
    """Names of the independent values and of the target at the values given.

    Where these are not the values named, what depends on them is computed again.
    """
    new: dict[str, str] = {}
    nodes: list[Node] = []
    prefix = label(request.node)
    for name, value in zip(request.independent, request.values, strict=True):
        if value != name:
            # under a name of its own, since other nodes may read the value too
            new[name] = editor.fresh_name(f"{prefix}/{name}")
            nodes.append(editor.make_node("Identity", [value], [new[name]]))
    given = tuple(new.get(name, name) for name in request.independent)
    if not new:
        return given, request.target
    changed, again = set(new), list[Node]()
    for node in _needed(editor.graph, request.target, request.independent):
        if not changed.isdisjoint(_reads(node)):
            again.append(node)
            changed.update(
                name
                for name in filter(None, node.outputs)
                if name not in request.independent
            )
    target = new.get(request.target, request.target)
    if again and request.target in changed and request.target not in new:
        target = editor.fresh_name(f"{prefix}/{request.target}")
        reads = dict(zip(request.independent, given, strict=True))
        nodes += editor.copy_nodes(again, reads, {request.target: target}, prefix)
    editor.replace_nodes([*editor.graph.nodes, *nodes])
    return given, target


def _rule(node: Node) -> Rule | None:
    return None if node.domain else RULES.get(node.op_type)


def _has_rule(graph: Graph, node: Node) -> bool:
    rule = _rule(node)
    return rule is not None and graph.opset() >= rule.since


def _refuse(graph: Graph, gradient: Node, node: Node) -> NoReturn:
    rule = _rule(node)
    if rule is not None:
        raise UnsupportedModel(
            f"{describe(gradient)} needs the derivative of {describe(node)}, which "
            f"onnxplug knows from opset {rule.since} on, and the model has opset "
            f"{graph.opset()}; convert it with onnx.version_converter"
        )
    raise UnsupportedModel(
        f"{describe(gradient)} needs the derivative of {describe(node)}, which "
        "onnxplug does not know; operators that can be differentiated: "
        f"{', '.join(sorted(RULES))}, and those with a function body made of these"
    )


def _backward(
    emit: Emitter,
    way: Sequence[Node],
    alive: set[str],
    target: str,
    variables: Sequence[str],
) -> dict[str, str]:
    """The gradient of *target* by each of *variables* that it depends on."""
    if target not in alive:
        return {}
    parts: dict[str, list[str]] = {target: [emit.filled(1, target)]}
    about = emit.about
    for node in reversed(way):  # all that reads a value comes before what makes it
        gradients = tuple(
            emit.add_up(parts[name]) if name in parts else None for name in node.outputs
        )
        if not any(gradients):
            continue
        wanted = frozenset(
            position for position, name in enumerate(node.inputs) if name in alive
        )
        emit.about = f"{about}, at {describe(node)},"
        made = RULES[node.op_type].build(Step(emit, node, gradients, wanted))
        for position in sorted(wanted & made.keys()):
            parts.setdefault(node.inputs[position] or "", []).append(made[position])
    return {name: emit.add_up(parts[name]) for name in variables if parts.get(name)}
