"""Model-local functions become nodes of the graphs that call them.

Source: ONNX IR specification, *Functions*.  After this pass no EP has to know that
functions exist.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import Function, Graph, Model, Node
from onnxplug.prepare.compatible import means_the_same
from onnxplug.prepare.instantiate import describe, instantiate
from onnxplug.prepare.scopes import Names, all_graphs, outermost

MAX_NODES: Final = 1_000_000
"""A few functions that call each other twice can stand for any number of nodes."""

_Key: TypeAlias = tuple[str, str, str]


def inline_functions(model: Model) -> list[str]:
    """Replace all calls of *model*'s functions; the functions are gone then.

    Returns:
        The calls that were replaced, described in words.

    Raises:
        InvalidModel: a function calls itself, or a call does not fit its function.
        UnsupportedModel: a function was written for another version of an operator
            that has another meaning in the model's opset.
    """
    if not model.functions:
        return []
    run = _Inlining(model)
    run.graph(model.graph, ())
    model.functions.clear()
    return run.replaced


class _Inlining:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._names = Names(model.graph)
        self._made = 0
        self.replaced: list[str] = []

    def graph(self, graph: Graph, within: tuple[_Key, ...]) -> None:
        """Replace the calls in *graph*, which stems from the functions *within*."""
        nodes: list[Node] = []
        for node in graph.nodes:
            nodes += self._node(node, graph, within)
        if len(nodes) != len(graph.nodes) or any(
            new is not old for new, old in zip(nodes, graph.nodes, strict=True)
        ):
            graph.replace_nodes(nodes)

    def _node(self, node: Node, graph: Graph, within: tuple[_Key, ...]) -> list[Node]:
        key = (node.domain, node.op_type, node.overload)
        function = self._model.functions.get(key)
        if function is None:
            for body in node.subgraphs.values():
                body.parent = graph
                self.graph(body, within)
            return [node]
        if key in within:
            chain = " -> ".join(name for _, name, _ in (*within, key))
            raise InvalidModel(
                f"the function {function.name!r} of domain {function.domain!r} calls "
                f"itself ({chain}); ONNX functions may not be recursive"
            )
        self._adopt_opsets(function, node)
        self.replaced.append(describe(node))
        nodes: list[Node] = []
        for new in instantiate(function, node, graph, self._names):
            self._made += 1
            if self._made > MAX_NODES:
                raise UnsupportedModel(
                    f"inlining the model's functions makes more than {MAX_NODES:,} "
                    f"nodes (while inlining {function.name!r}); the model is taken to "
                    "be malicious"
                )
            nodes += self._node(new, graph, (*within, key))
        return nodes

    def _adopt_opsets(self, function: Function, call: Node) -> None:
        """Let the model import what *function* imports.

        Raises:
            UnsupportedModel: the model imports a version that means something else.
        """
        adopt_imports(function, self._model.graph)
        theirs, ours = function.body.opset_imports, self._model.graph.opset_imports
        found = find_conflict(function, self._model.graph, self._model.functions.keys())
        if found is not None:
            domain = found.domain
            raise UnsupportedModel(
                f"{describe(call)} cannot be inlined: the function "
                f"{function.name!r} is written for opset {theirs.get(domain, 0)} of "
                f"domain {domain!r}, the model imports {ours.get(domain, 0)}, and "
                f"{describe(found)} means something else there; convert the model with "
                "onnx.version_converter, or export it with one opset version"
            )


def adopt_imports(function: Function, graph: Graph) -> None:
    """Let *graph* and all graphs around and within import what *function* does.

    Domains that *graph* imports already keep their version.
    """
    new = {
        domain: version
        for domain, version in function.body.opset_imports.items()
        if domain not in graph.opset_imports
    }
    if new:
        for each in all_graphs(outermost(graph)):
            each.opset_imports.update(new)


def find_conflict(
    function: Function, graph: Graph, calls: object = frozenset()
) -> Node | None:
    """A node of *function* that has another meaning under *graph*'s opsets.

    Args:
        calls: a container of (domain, name, overload) that are not operators.
    """
    theirs = function.body.opset_imports
    differing = {
        domain
        for domain, version in theirs.items()
        if graph.opset(domain) not in (0, version)
    }
    if not differing:
        return None
    for body in all_graphs(function.body):
        for node in body.nodes:
            if node.domain not in differing:
                continue
            if (node.domain, node.op_type, node.overload) in calls:  # type: ignore[operator]
                continue
            if not means_the_same(node, theirs[node.domain], graph.opset(node.domain)):
                return node
    return None
