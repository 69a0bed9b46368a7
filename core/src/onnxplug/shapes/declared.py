"""What follows for a value, and what the model declares of it, put together.

What follows from the inputs is believed before what is declared: declarations are
often those of a trace with other inputs.  Where nothing follows they are all there is.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.sizes import Extent
from onnxplug.ep import Dimension, TensorType, ValueType
from onnxplug.errors import InvalidModel
from onnxplug.escape import escape
from onnxplug.graph import Graph
from onnxplug.shapes.facts import UNKNOWN, Fact, Scope, Shape, Value
from onnxplug.shapes.stated import Contradiction, merged, without_names

_log = logging.getLogger("onnxplug.prepare")


def reconciled(
    graph: Graph,
    name: str,
    follows: Fact,
    scope: Scope,
    *,
    believes_names: bool = True,
) -> Fact:
    """What to believe of the value *name* of *graph*, of which *follows* follows.

    Args:
        believes_names: whether names of sizes mean the same as elsewhere in the model.

    Raises:
        InvalidModel: it is declared to be of another kind or element type.
    """
    declared = graph.types.get(name)
    if declared is None:
        return follows
    if not (isinstance(declared, TensorType) and isinstance(follows, Value)):
        stated = declared if believes_names else without_names(declared)
        return _other(graph, name, follows, stated, scope)
    dtype = follows.dtype or declared.dtype
    if declared.dtype not in (None, dtype):
        contradict(graph, name, follows)
    stated_shape = declared.shape
    if stated_shape is None:
        return Value(dtype, follows.shape)
    if follows.shape is None:
        sizes = (_read(size, None, scope, believes_names) for size in stated_shape)
        return Value(dtype, tuple(sizes))
    if tuple(map(scope.write, follows.shape)) == stated_shape:
        return Value(dtype, follows.shape)
    if _contradicts(follows.shape, stated_shape):
        believed = Value(dtype, follows.shape)
        if name not in graph.outputs:
            warn_of_declaration(graph, name, scope.stated(believed))
        return believed
    return Value(
        dtype,
        tuple(
            _read(size, found, scope, believes_names)
            if scope.is_made_up(found)
            else found
            for found, size in zip(follows.shape, stated_shape, strict=True)
        ),
    )


def _other(
    graph: Graph, name: str, follows: Fact, stated: ValueType | None, scope: Scope
) -> Fact:
    """What to believe of what is no dense tensor, or is said not to be one."""
    if follows == UNKNOWN:
        return scope.fact(stated)
    try:
        return scope.fact(merged(scope.stated(follows), stated))
    except Contradiction:
        contradict(graph, name, follows)


def _read(
    stated: Dimension, found: Extent | None, scope: Scope, believes_names: bool
) -> Extent:
    """The size that a declaration states, or else *found*, or else a new one."""
    if isinstance(stated, int) or (stated is not None and believes_names):
        return scope.read(stated)
    return scope.fresh() if found is None else found


def _contradicts(follows: Shape, stated: tuple[Dimension, ...]) -> bool:
    """Whether two shapes cannot both be right."""
    return len(follows) != len(stated) or any(
        isinstance(found, int) and isinstance(size, int) and found != size
        for found, size in zip(follows, stated, strict=True)
    )


def shown(declared: ValueType | None, follows: ValueType) -> ValueType | None:
    """The type of an output of the main graph.

    It keeps what is declared, and has no names that nobody but inference knows.
    """
    return merged(declared, without_names(follows, GENERATED))


def warn_of_declaration(graph: Graph, name: str, follows: ValueType | None) -> None:
    """Log that what *graph* declares of *name* is not believed."""
    _log.warning(
        "%s of graph %r is declared as %s, but is inferred as %s; "
        "the declaration is ignored",
        escape(name),
        graph.name,
        graph.types.get(name),
        follows,
    )


def contradict(graph: Graph, name: str, follows: Fact) -> NoReturn:
    """Complain of what is declared of *name*.

    Raises:
        InvalidModel: always.
    """
    node = graph.producers().get(name)
    makes = describe(node) if node is not None else "its graph"
    raise InvalidModel(
        f"{name!r} of graph {graph.name!r} is declared as "
        f"{_in_words(graph.types.get(name))}, but {makes} makes {_in_words(follows)}; "
        "correct the declaration in the model"
    ) from None


def _in_words(type: Fact | ValueType | None) -> str:
    if isinstance(type, TensorType | Value):
        return f"a tensor of {type.dtype}"
    return str(type)
