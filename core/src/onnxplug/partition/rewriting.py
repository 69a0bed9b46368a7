"""Lets an EP rewrite nodes that it gets, and checks what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.authoring.nodes import describe
from onnxplug.ep import TensorType, ValueType
from onnxplug.errors import EpError, InvalidModel
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs, made_in, outermost
from onnxplug.guard import blaming
from onnxplug.partition.assign import Candidate
from onnxplug.prepare import Budget, infer_types
from onnxplug.shapes.stated import is_known


def rewrite(
    candidate: Candidate, graph: Graph, nodes: Sequence[Node], budget: Budget
) -> Sequence[str]:
    """Ask an EP to rewrite *nodes* of *graph*, which it gets.

    Returns:
        What it says that it replaced; nothing, if the graph is as it was.

    Raises:
        EpError: it failed, or left a graph that is not valid, or not the same function.
        UnsupportedModel: it wants more nodes than *budget* allows.
    """
    from onnxplug.prepare.editor import GraphEditor

    before = _Before(graph, nodes)
    try:
        with blaming(candidate.name, "rewrite"):
            replace = candidate.provider.preferences.rewrite
            assert replace is not None
            said = replace(GraphEditor(graph, budget), nodes)
            if isinstance(said, str) or not all(isinstance(each, str) for each in said):
                raise TypeError(f"it returned {said!r}; expected texts")
            said = list(said)
    except InvalidModel as error:
        raise _broken(candidate, f"it left no valid graph: {error}") from error
    if not before.is_changed():
        return []
    try:
        before.check()
    except InvalidModel as error:
        raise _broken(candidate, str(error)) from error
    return said or ["nodes that it does not name"]


class _Before:
    """A graph as it is before it is rewritten."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._graph = graph
        self._forms = {node: _form(node) for node in graph.nodes}
        self._may_go = frozenset(nodes)
        self._outputs = list(graph.outputs)
        self._inputs = list(graph.inputs)
        self._constants = dict(graph.constants)
        self._types = dict(graph.types)

    def is_changed(self) -> bool:
        return list(self._forms) != self._graph.nodes or any(
            _form(node) != form for node, form in self._forms.items()
        )

    def check(self) -> None:
        """Check what the graph is now.

        Raises:
            InvalidModel: it has other borders, nodes that were not to be touched are
                changed or gone, values are made never or twice, or are of other types.
        """
        graph = self._graph
        if self._outputs != graph.outputs or self._inputs != graph.inputs:
            raise InvalidModel("the graph has other inputs or outputs")
        there = set(graph.nodes)
        for node, form in self._forms.items():
            if node in there and _form(node) != form:
                raise InvalidModel(f"{describe(node)} was changed, not replaced")
            if node not in there and node not in self._may_go:
                raise InvalidModel(
                    f"{describe(node)} is gone, and was not among the nodes it was "
                    "given"
                )
        for name, weight in self._constants.items():
            if graph.constants.get(name) is not weight:
                raise InvalidModel(f"the constant {name!r} is gone, or another one")
        _check_names(graph)
        self._import_domains()
        self._check_types()

    def _import_domains(self) -> None:
        """Let the model import what new nodes are of."""
        imported = self._graph.opset_imports
        new = {node.domain: 1 for node in self._graph.nodes}
        new = {domain: 1 for domain in new if domain not in imported}
        if new:
            for each in all_graphs(outermost(self._graph)):
                each.opset_imports.update(new)

    def _check_types(self) -> None:
        """Check that what was there is of the type that it was."""
        graph = self._graph
        there = set(graph.nodes)
        gone = [node for node in self._forms if node not in there]
        for name in (name for node in gone for name in node.outputs if name):
            graph.types.pop(name, None)
        infer_types(outermost(graph), every_size=True)
        made = graph.producers()
        for name in (name for node in gone for name in node.outputs if name in made):
            old, found = self._types.get(name), graph.types.get(name)
            if not _agree(old, found):
                raise InvalidModel(
                    f"{name!r} was {old}, and is {found} after it was rewritten"
                )
            if not is_known(found):
                graph.types[name] = old


def _check_names(graph: Graph) -> None:
    """Check that each value is made once, before it is read.

    Raises:
        InvalidModel: one is not.
    """
    outer: set[str] = set()
    around = graph.parent
    while around is not None:
        outer |= made_in(around)
        around = around.parent
    made = {*graph.inputs, *graph.defaults, *graph.constants}
    for node in graph.nodes:
        for name in (*node.inputs, *node.captures):
            if name and name not in made and name not in outer:
                raise InvalidModel(
                    f"{describe(node)} reads {name!r}, which nothing makes"
                )
        for name in filter(None, node.outputs):
            if name in made:
                raise InvalidModel(f"{name!r} is made twice, once by {describe(node)}")
            made.add(name)
    for name in graph.outputs:
        if name not in made and name not in outer:
            raise InvalidModel(f"the output {name!r} is not made any more")


def _agree(old: ValueType | None, new: ValueType | None) -> bool:
    """Whether what is known of a value before and after can both be true."""
    if not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return old is None or new is None or old == new
    if None not in (old.dtype, new.dtype) and old.dtype is not new.dtype:
        return False
    if old.shape is None or new.shape is None:
        return True
    return len(old.shape) == len(new.shape) and not any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(old.shape, new.shape, strict=True)
    )


def _form(node: Node) -> tuple[Any, ...]:
    """What of a node is not to be changed."""
    return (
        *(node.op_type, node.domain, node.inputs, node.outputs),
        tuple(node.typed_attributes.items()),
    )


def _broken(candidate: Candidate, what: str) -> EpError:
    return EpError(
        f"{candidate.name} broke the contract of rewrite: {what}",
        ep=candidate.name,
        stage="rewrite",
    )
