"""Operators that ONNX defines by other operators become these.

Used for nodes that no EP takes.  The bodies are those of the operator schemas
(``OpSchema`` with a function body, fixed or made for the types of a call), and for
operators that ONNX does not define those of :mod:`~onnxplug.domains`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onnxplug import domains, ep
from onnxplug.ep import Reason, RefusalCode
from onnxplug.errors import ModelError, PluginError
from onnxplug.graph import Function, Graph, Node
from onnxplug.graph.load import parse_function
from onnxplug.graph.scopes import Names
from onnxplug.graph.value_type import type_to_proto
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.domains import SuppliedOperator
from onnxplug.prepare.budget import Budget
from onnxplug.prepare.built import built
from onnxplug.prepare.constants import lift_constants
from onnxplug.prepare.inline import adopt_imports, find_conflict
from onnxplug.prepare.instantiate import instantiate


def expand_node(graph: Graph, node: Node, budget: Budget | None = None) -> bool:
    """Replace *node* of *graph*, which may be a body, by its function body, in place.

    The new nodes' constants are lifted; types of new values are unknown until
    :func:`~onnxplug.prepare.infer.infer_types` is called.

    Returns:
        Whether it was replaced; ``False`` when the operator has no function body for
        this opset, or one that needs types which are not known.
    """
    return bool(expand_nodes(graph, (node,), budget))


def expand_nodes(
    graph: Graph, nodes: Iterable[Node], budget: Budget | None = None
) -> list[Node]:
    """As :func:`expand_node` for several nodes of one graph, in one go.

    Args:
        budget: how many nodes may be made; ``None``: as many as the bodies have.

    Returns:
        Those of *nodes* that were replaced.

    Raises:
        PluginError: who supplies an operator failed to make its function.
        UnsupportedModel: there are more nodes than *budget* allows.
    """
    names = Names(graph)
    bodies: dict[int, list[Node]] = {}
    expanded: list[Node] = []
    for node in nodes:
        body = _body(graph, node, names, budget)
        if body is not None:
            bodies[node.index] = body
            expanded.append(node)
    if expanded:
        graph.replace_nodes(
            [new for node in graph.nodes for new in bodies.get(node.index, (node,))]
        )
        lift_constants(graph)
    return expanded


def why_not_expanded(graph: Graph, node: Node) -> str | None:
    """What keeps :func:`expand_nodes` from replacing *node*, where more is known than
    that the operator has no function body."""
    found = domains.find(graph, node)
    if found is None:
        return domains.why_not(graph, node)
    if found.operator.refused:
        why = found.operator.refused
    else:
        made = _supplied(graph, node, found)
        if made is None and found.operator.rewrite is not None:
            return f"{found.supplier} replaces it in the pass 'rewrite' only"
        if made is None:
            return f"{found.supplier} supplies it without a function"
        if isinstance(made, Function):
            return None
        why = made.detail
    return f"it cannot be replaced by a function: {why}"


def _body(
    graph: Graph, node: Node, names: Names, budget: Budget | None
) -> list[Node] | None:
    for function in _functions(graph, node):
        if find_conflict(function, graph) is None:
            adopt_imports(function, graph)
            return instantiate(function, node, graph, names, budget)
    return None


def _functions(graph: Graph, node: Node) -> Iterator[Function]:
    """The bodies of *node*'s operator for *graph*'s opset, newest first."""
    found = domains.find(graph, node)
    if found is not None:
        supplied = _supplied(graph, node, found)
        if isinstance(supplied, Function):
            yield supplied
        if supplied is not None:
            return
    import onnx.defs

    opset = graph.opset(node.domain)
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return
    if not node.typed_attributes.keys() <= schema.attributes.keys():
        return  # what the attribute would mean, the body does not say
    for version in sorted(schema.function_opset_versions, reverse=True):
        if version <= opset:
            data = schema.get_function_with_opset_version(version)
            yield from _complete(data, schema, node)
    made = sorted(schema.context_dependent_function_opset_versions, reverse=True)
    call = _call(graph, node, schema) if made else None
    if call is None:
        return
    for version in made:
        if version <= opset:
            try:
                data = schema.get_context_dependent_function_with_opset_version(
                    version, *call
                )
            except (RuntimeError, ValueError) as error:
                raise_interruption(error)
                continue  # for inputs that are no such types, ONNX has no body
            yield from _complete(data, schema, node)


def _supplied(
    graph: Graph, node: Node, found: SuppliedOperator
) -> Function | Reason | None:
    """The function that is supplied for *node*, or why there is none in this form;
    ``None`` if there is none in any."""
    made = found.operator.function
    if callable(made):
        made = found.ask("function", made, graph, node)
    if made is None or isinstance(made, Function | Reason):
        return made
    if isinstance(made, ep.Function):
        ready: Function = found.ask("function", built, made, graph, node)
        return ready
    function: Function = found.ask("function", _read, made, found)
    unknown = sorted(
        node.typed_attributes.keys()
        - {*function.attributes, *function.attribute_defaults}
    )
    if unknown:
        names = ", ".join(map(repr, unknown))
        return Reason(RefusalCode.ATTRIBUTE, f"its function knows no attribute {names}")
    conflict = find_conflict(function, graph)
    if conflict is not None:
        domain = conflict.domain
        return Reason(
            RefusalCode.OTHER,
            f"its function is written for opset {function.body.opset(domain)} of "
            f"{domain or 'ai.onnx'}, and {conflict.op_type} means something else in "
            f"opset {graph.opset(domain)}, which the model imports",
        )
    return function


def _read(made: Any, found: SuppliedOperator) -> Function:
    """A function as it is supplied: a text, or a ``FunctionProto``."""
    import onnx.parser

    proto = onnx.parser.parse_function(made) if isinstance(made, str) else made
    if not isinstance(proto, onnx.FunctionProto):
        raise TypeError(
            f"it is {made!r:.200}; expected an onnx.FunctionProto, text, or what "
            "onnxplug.ep.Function is"
        )
    try:
        return parse_function(proto.SerializeToString())
    except ModelError as error:
        raise PluginError(
            f"the function of {found.operator.op_type} that {found.supplier} supplies "
            f"is not valid: {error}"
        ) from error


def _complete(data: bytes, schema: Any, node: Node) -> Iterator[Function]:
    """The function in *data*, if there is one that makes all that *node* wants.

    The defaults of the operator's attributes become the function's.  A body may leave
    out outputs, such as ``Mean`` of LayerNormalization-17, which no node may want then.
    """
    import onnx

    if not data:
        return
    proto = onnx.FunctionProto.FromString(data)
    made = dict.fromkeys([*proto.input, *(n for o in proto.node for n in o.output)])
    for position, name in enumerate(proto.output):
        if name in made:
            continue
        if node.outputs[position : position + 1] not in ((), (None,)):
            return
        proto.output[position] = next(iter(made))  # any value will do
    present = {attribute.name for attribute in proto.attribute_proto}
    for name, attribute in sorted(schema.attributes.items()):
        if attribute.default_value.type and name not in present:
            proto.attribute_proto.append(attribute.default_value)
            if name in proto.attribute:
                proto.attribute.remove(name)
    yield parse_function(proto.SerializeToString())


def _call(graph: Graph, node: Node, schema: Any) -> tuple[bytes, list[bytes]] | None:
    """The node and its input types as ONNX wants them; None if a type is unknown."""
    import onnx

    from onnxplug.graph.export import node_to_proto

    types: list[bytes] = []
    for name in node.inputs:
        proto = onnx.TypeProto()
        if name is not None:
            type = graph.value(name).type
            if type is None or getattr(type, "dtype", ...) is None:
                return None
            proto = type_to_proto(type)
        types.append(proto.SerializeToString())
    call = node_to_proto(node)
    given = {attribute.name for attribute in call.attribute}
    for name, attribute in sorted(schema.attributes.items()):
        if attribute.default_value.type and name not in given:
            call.attribute.append(attribute.default_value)
    return call.SerializeToString(), types
