"""Element types and shapes of values that the model does not state.

They follow by the rules of :mod:`~onnxplug.prepare.symbolic`.  Only when these leave an
element type or a rank open, ``onnx.shape_inference`` is asked, once, on the graph
without its weights: its import costs more than most sessions.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from onnxplug.ep import ValueType
from onnxplug.errors import InvalidModel, ModelError, OptionError
from onnxplug.graph import Graph
from onnxplug.prepare.agreement import check_agreement
from onnxplug.prepare.scopes import all_graphs, made_in
from onnxplug.prepare.symbolic.declared import contradict, warn_of_declaration
from onnxplug.prepare.symbolic.inference import infer_symbolically
from onnxplug.prepare.types import (
    GENERATED,
    Contradiction,
    has_sizes,
    is_known,
    merged,
    names_of_sizes,
    with_sizes,
    without_names,
)

_log = logging.getLogger("onnxplug.prepare")

INLINE_UP_TO: Final = 1024
"""Bytes of a constant that inference may look at: shapes, axes and the like."""

_ONNX_DOMAINS: Final = frozenset({"", "ai.onnx.ml", "ai.onnx.preview"})


def infer_types(graph: Graph, *, every_size: bool = False) -> list[str]:
    """Complete ``Graph.types`` of *graph* and of bodies within.

    Args:
        graph: a main graph.
        every_size: infer also when only sizes are unknown; otherwise element types
            and ranks that are all known are enough.

    Returns:
        Names of the values of which more is known now.

    Raises:
        InvalidModel: an operator cannot take what it is given, or a value is declared
            with another element type than it gets.
    """
    graphs = list(all_graphs(graph))
    if _is_complete(graphs, has_sizes if every_size else is_known):
        return []
    before = [each.types for each in graphs]
    for each in graphs:
        each.types = dict(each.types)
    infer_symbolically(graph)
    if _is_complete(graphs, is_known):
        check_agreement(graph)
    else:
        _complete_by_onnx(graph)
    for name in graph.outputs:  # made-up names are no business of the model's users
        if name in graph.types:
            graph.types[name] = without_names(graph.types[name], GENERATED)
    return [
        name
        for each, old in zip(graphs, before, strict=True)
        for name, type in each.types.items()
        if type != old.get(name)
    ]


def _is_complete(
    graphs: Iterable[Graph], enough: Callable[[ValueType | None], bool]
) -> bool:
    return all(
        enough(each.types.get(name))
        for each in graphs
        for node in each.nodes
        for name in node.outputs
        if name
    )


def _complete_by_onnx(graph: Graph) -> None:
    """Ask ONNX, and follow what it knows more of."""
    try:
        _ask_onnx(graph)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        _log.warning(
            "onnx.shape_inference failed on graph %r, so types that the model does "
            "not state stay unknown: %s",
            graph.name,
            error,
        )
        return
    infer_symbolically(graph)


def fix_free_dimensions(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Put *sizes* in place of the names of dimensions, in bodies too.

    Raises:
        OptionError: a name is not in the model.
    """
    graphs = list(all_graphs(graph))
    known = {
        name: None
        for each in graphs
        for type in each.types.values()
        for name in names_of_sizes(type)
    }
    for name in sizes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(
                f"the model has no free dimension {name!r}{hint}; "
                f"it has {', '.join(map(repr, known)) or 'none'}"
            )
    for each in graphs:
        each.types = {n: with_sizes(type, sizes) for n, type in each.types.items()}


# onnx.shape_inference


def _ask_onnx(graph: Graph) -> None:
    """Merge what ONNX infers into the types of *graph* and of bodies within.

    Raises:
        RuntimeError, ValueError: its inference does not manage the graph.
    """
    model = _exported(graph)
    asked = _leave_open(model.graph)
    inferred = _inferred(model)
    stale = asked & _still_open(inferred.graph)
    if stale:
        # what the model declares for these stopped inference: ask without it
        _forget(model.graph, stale)
        inferred = _inferred(model)
    _read_back(graph, inferred.graph, stale)
    for body in all_graphs(graph):
        if body is not graph:
            # ONNX checks types in main graphs only; names that it makes up here are
            # not those made up above, so the result is not used
            _inferred(_exported(body))


def _exported(graph: Graph) -> Any:
    """*graph* as a model without weights that imports all domains it uses."""
    from onnxplug.graph.export import export_graph

    model = export_graph(graph, weights_up_to=INLINE_UP_TO).model
    imported = {entry.domain for entry in model.opset_import}
    used = {node.domain for node in _nodes(model.graph)}
    for domain in sorted(used - imported):
        model.opset_import.add(domain=domain, version=1)
    return model


def _inferred(model: Any) -> Any:
    import onnx.shape_inference

    try:
        return onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        message = str(error)
    # name the nodes, so that the message finds the one that is wrong
    for node in _nodes(model.graph):
        node.name = node.name or f"(unnamed, makes {', '.join(node.output)})"
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        message = str(error)
    raise InvalidModel(
        f"the model's types do not fit its operators: {message}; "
        "onnx.checker.check_model(model, full_check=True) shows it too"
    )


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a ``GraphProto`` and of bodies within."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _leave_open(graph: Any) -> set[str]:
    """Take declared element types, and all that outputs declare, out of *graph*.

    ONNX prefers what is declared to what it infers and says nothing if they differ,
    so it must not know.  Operators that it does not know keep theirs.

    Returns:
        Names of values whose element type is asked for.
    """
    made = {
        name
        for node in _nodes(graph)
        if node.domain in _ONNX_DOMAINS
        for name in node.output
    }
    asked: set[str] = set()
    for value in graph.value_info:
        if value.name in made and value.type.tensor_type.elem_type:
            value.type.tensor_type.elem_type = 0
            asked.add(value.name)
    for value in graph.output:
        if value.name in made:
            value.ClearField("type")
    return asked


def _still_open(graph: Any) -> set[str]:
    return {
        value.name
        for value in graph.value_info
        if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type
    }


def _forget(graph: Any, names: set[str]) -> None:
    kept = [value for value in graph.value_info if value.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def _read_back(graph: Graph, proto: Any, stale: set[str]) -> None:
    """Merge the types in *proto*, the export of *graph* with inferred types."""
    from onnxplug.graph.export import type_from_proto

    inputs = () if graph.parent is None else proto.input
    values = (*inputs, *proto.value_info, *proto.output)  # outputs are listed twice
    own = made_in(graph) - graph.constants.keys()
    for name, value in {value.name: value for value in values}.items():
        if name not in own or not value.type.WhichOneof("value"):
            continue
        theirs = type_from_proto(value.type)
        ours = graph.types.get(name)
        if name in stale and is_known(theirs):
            warn_of_declaration(graph, name, theirs)
            ours = None
        try:
            graph.types[name] = merged(ours, theirs)
        except Contradiction:
            contradict(graph, name, theirs)
    for node, other in zip(graph.nodes, proto.node, strict=True):
        bodies = {a.name: a.g for a in other.attribute if a.HasField("g")}
        for key, body in node.subgraphs.items():
            _read_back(body, bodies[key], stale)
