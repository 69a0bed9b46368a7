"""A function's body as nodes of the graph that calls it.

Every value that the body makes gets a new name, in control-flow bodies too; formal
inputs and outputs become the call's; attributes that refer get the call's values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import Attribute, AttributeType, Function, Graph, Node
from onnxplug.graph.scopes import Names
from onnxplug.prepare.budget import Budget
from onnxplug.shapes.stated import is_known, without_names

MOST_TEXT: Final = 512
"""Characters of a name above which only its end is used in new ones: those of nested
calls would be as long as the calls are deep, and each copy of a body has names."""


def instantiate(
    function: Function,
    call: Node,
    graph: Graph,
    names: Names,
    budget: Budget | None = None,
) -> list[Node]:
    """The nodes that stand for *call* of *function* in *graph*.

    New names read ``<name of the call or its operator>/<name in the function>``.
    Attributes with defaults count as set; an inner attribute that refers to one that
    is not set is left out (ONNX IR specification, *Functions*).

    Args:
        budget: how many nodes may be made; ``None``: as many as the body has.

    Raises:
        InvalidModel: the call has more inputs or outputs than the function, or wants
            an output that nothing makes.
        UnsupportedModel: there are more nodes, or bodies within each other, than
            *budget* allows.
    """
    body = function.body
    _check_call(function, call)
    prefix = names.fresh(shortened(label(call))) + "/"
    attributes = {**function.attribute_defaults, **call.typed_attributes}
    copy = _Copy(graph, names, prefix, attributes, budget, (call,))
    inputs = (*call.inputs, *[None] * (len(body.inputs) - len(call.inputs)))
    values: dict[str, str | None] = dict(zip(body.inputs, inputs, strict=True))
    made = body.producers().keys()
    passed_on = _name_outputs(body, call, made, values)
    nodes = copy.nodes(body, values)
    for formal, actual in passed_on:
        source = values.get(formal)
        if source is None:
            raise InvalidModel(
                f"{describe(call)} wants output {formal!r} of the function "
                f"{function.name!r}, which no node of the function makes and no input "
                "of the call supplies"
            )
        name = prefix + shortened(formal)
        nodes.append(_identity(source, actual, name, (call,)))
    # names of sizes hold within one call only, so they do not come along
    for name, type in body.types.items():
        given = values[name] if name in made else None
        if given is not None and graph.types.get(given) is None:
            graph.types[given] = without_names(type)
    return nodes


def splice(body: Graph, call: Node, graph: Graph, names: Names) -> list[Node]:
    """The nodes that stand for *call* in *graph* when it always runs its *body*.

    The body has no inputs.  What it captures keeps its name, its constants become
    constants of *graph*, and new names are as those of :func:`instantiate`.
    """
    prefix = names.fresh(shortened(label(call))) + "/"
    values: dict[str, str | None] = {}
    for name, weight in (body.constants | body.defaults).items():
        values[name] = new = names.fresh(prefix + shortened(name))
        graph.add_constant(new, weight)
    made = body.producers().keys()
    passed_on = _name_outputs(body, call, made, values)
    nodes = _Copy(graph, names, prefix, {}).nodes(body, values)
    for name in made:
        new_name = values[name]
        if new_name is not None and not is_known(graph.types.get(new_name)):
            graph.types[new_name] = without_names(body.types.get(name))
    nodes += [
        _identity(values.get(formal, formal), actual, prefix + shortened(formal))
        for formal, actual in passed_on
    ]
    return nodes


def shortened(name: str) -> str:
    """The end of *name*, as long as a part of a new name may be."""
    return name if len(name) <= MOST_TEXT else "…" + name[-MOST_TEXT:]


def label(node: Node) -> str:
    """The node's name, or its operator where it has none."""
    return node.name or node.op_type


def too_deep(name: str, depth: int) -> UnsupportedModel:
    """The error of a graph *name* within whose *depth* bodies there are more."""
    return UnsupportedModel(
        f"inlining the model's functions puts bodies of control flow into each other, "
        f"to {name!r} and beyond, more than {depth} deep, which is onnxplug's limit"
    )


def _check_call(function: Function, call: Node) -> None:
    for kind, given, formal in (
        ("inputs", call.inputs, function.body.inputs),
        ("outputs", call.outputs, function.body.outputs),
    ):
        if len(given) > len(formal):
            raise InvalidModel(
                f"{describe(call)} has {len(given)} {kind}; "
                f"the function {function.name!r} has {len(formal)}"
            )


def _name_outputs(
    body: Graph, call: Node, made: Collection[str], values: dict[str, str | None]
) -> list[tuple[str, str]]:
    """Let what nodes of *body* make for *call* have its names, in *values*.

    Args:
        made: what nodes of *body* make.

    Returns:
        pairs of an output of *body* that is something else, such as an input, or is
        named already, and of the name that *call* gives it.
    """
    passed_on: list[tuple[str, str]] = []
    for formal, actual in zip(body.outputs, call.outputs, strict=False):
        if actual is None:
            continue
        if formal in made and formal not in values:
            values[formal] = actual
        else:
            passed_on.append((formal, actual))
    return passed_on


def _identity(
    source: str | None, target: str, name: str, made_of: tuple[Node, ...] = ()
) -> Node:
    return Node("Identity", (source,), (target,), name=name, made_of=made_of)


class _Copy:
    """Copies nodes with new names for what they make."""

    def __init__(
        self,
        graph: Graph,
        names: Names,
        prefix: str,
        attributes: Mapping[str, Attribute],
        budget: Budget | None = None,
        made_of: tuple[Node, ...] = (),
    ) -> None:
        self._made_of = made_of
        self._opset_imports = graph.opset_imports
        self._names = names
        self._prefix = prefix
        self._attributes = attributes
        self._budget = budget
        self._depth = 0

    def nodes(self, body: Graph, values: dict[str, str | None]) -> list[Node]:
        """Copies of *body*'s nodes; *values* grows by the names given.

        Raises:
            UnsupportedModel: there are more nodes than the budget allows.
        """
        # a body that is an attribute is copied wherever the function refers to it
        budget = self._budget
        if budget is not None and not budget.make_nodes(len(body.nodes)):
            raise UnsupportedModel(
                f"inlining the call {self._prefix.rstrip('/')!r} makes more nodes than "
                "onnxplug allows all functions of a model together, "
                f"{budget.limits.nodes:,}"
            )
        for node in body.nodes:
            for name in filter(None, node.outputs):
                if name not in values:
                    values[name] = self._new(name)
        return [self._node(node, values) for node in body.nodes]

    def _new(self, name: str) -> str:
        return self._names.fresh(self._prefix + shortened(name))

    def _node(self, node: Node, values: Mapping[str, str | None]) -> Node:
        attributes: dict[str, Attribute] = {}
        for name, attribute in node.typed_attributes.items():
            if attribute.reference:
                given = self._attributes.get(attribute.reference)
                if given is not None:
                    # a body given by the caller sees the caller's values
                    attributes[name] = self._attribute(given, {})
            else:
                attributes[name] = self._attribute(attribute, values)
        return Node(
            node.op_type,
            tuple(values.get(name, name) if name else None for name in node.inputs),
            tuple(values.get(name, name) if name else None for name in node.outputs),
            attributes,
            domain=node.domain,
            name=self._prefix + shortened(label(node)),
            overload=node.overload,
            made_of=(node, *self._made_of),
        )

    def _attribute(
        self, attribute: Attribute, values: Mapping[str, str | None]
    ) -> Attribute:
        if attribute.type is AttributeType.GRAPH:
            return attribute._replace(value=self._graph(attribute.value, values))
        if attribute.type is AttributeType.GRAPHS:
            bodies = tuple(self._graph(body, values) for body in attribute.value)
            return attribute._replace(value=bodies)
        return attribute

    def _graph(self, graph: Graph, outer: Mapping[str, str | None]) -> Graph:
        # what a call gives as an attribute may hold what its own caller gave
        if self._budget is not None and self._depth == self._budget.limits.depth:
            raise too_deep(graph.name, self._depth)
        self._depth += 1
        copy = self._copied(graph, outer)
        self._depth -= 1
        return copy

    def _copied(self, graph: Graph, outer: Mapping[str, str | None]) -> Graph:
        values = dict(outer)
        own = (*graph.inputs, *graph.defaults, *graph.constants)
        for name in dict.fromkeys(own):
            values[name] = self._new(name)
        for node in graph.nodes:  # what the body makes hides what is around it
            for name in filter(None, node.outputs):
                values[name] = self._new(name)
        nodes = self.nodes(graph, values)

        def renamed(name: str) -> str:
            new = values.get(name, name)
            if new is None:
                raise InvalidModel(
                    f"body {graph.name!r} of the call {self._prefix.rstrip('/')!r} "
                    f"gives out {name!r}, an input that the call leaves out"
                )
            return new

        return Graph(
            graph.name,
            inputs=[renamed(name) for name in graph.inputs],
            outputs=[renamed(name) for name in graph.outputs],
            nodes=nodes,
            constants={renamed(n): weight for n, weight in graph.constants.items()},
            defaults={renamed(n): weight for n, weight in graph.defaults.items()},
            types={
                new: without_names(type)
                for name, type in graph.types.items()
                if (new := values.get(name, name)) is not None
            },
            opset_imports=self._opset_imports,
            doc_string=graph.doc_string,
        )
