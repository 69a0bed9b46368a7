"""Nodes that change nothing, and whatever nobody uses, go.

Inputs and outputs of the main graph keep their names; outputs of bodies may take
another name, but stay values that the body itself makes.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.ep import ValueType
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs, made_in, made_in_bodies
from onnxplug.prepare.constants import make_constant
from onnxplug.shapes.stated import Contradiction, merged


def eliminate(graph: Graph) -> list[str]:
    """Remove what *graph* and bodies within can do without.

    Returns:
        The nodes that were removed, described in words.
    """
    removed: list[str] = []
    for each in list(all_graphs(graph)):
        removed += _bypass(each)
    removed += _sweep(graph)
    return removed


# nodes that hand their input on


def _bypass(graph: Graph) -> list[str]:
    """Let the users of nodes that change nothing read these nodes' inputs."""
    outputs = set(graph.outputs)
    inner = made_in_bodies(graph)
    constants = graph.constants
    made = {name for node in graph.nodes for name in node.outputs if name}
    own = made_in(graph)
    renamed: dict[str, str] = {}
    gone: list[Node] = []
    for node in graph.nodes:
        if not _changes_nothing(graph, node):
            continue
        source, target = node.inputs[0], node.outputs[0]
        assert source is not None and target is not None
        source = renamed.get(source, source)
        if source in inner or target in inner:  # a body's value would hide the other
            continue
        if target not in outputs:
            renamed[target] = source
        elif source in constants:
            make_constant(graph, target, constants[source])
        elif source in made and source not in outputs:
            # the output's own name wins; who was to read source now reads target
            for old, new in renamed.items():
                if new == source:
                    renamed[old] = target
            renamed[source] = target
            made.add(target)
        else:  # an input, a value from around, or an output twice: it has to be made
            continue
        if source in own:
            known = _agreed(graph.types.get(source), graph.types.get(target))
            graph.types[source] = graph.types[target] = known
        gone.append(node)
    if not gone:
        return []
    dropped = {id(node) for node in gone}
    kept = [node for node in graph.nodes if id(node) not in dropped]
    for node in kept:
        node.outputs = tuple(
            renamed.get(name, name) if name else None for name in node.outputs
        )
    graph.replace_nodes(kept)
    graph.rename(renamed)
    return [describe(node) for node in gone]


def _agreed(source: ValueType | None, target: ValueType | None) -> ValueType | None:
    """What is known of a value by both of its names."""
    try:
        return merged(source, target)
    except Contradiction:  # for inference to find, which is switched off
        return source


def _changes_nothing(graph: Graph, node: Node) -> bool:
    """Whether the first output is always the first input, and the only one wanted."""
    if node.domain or not node.inputs or not node.outputs:
        return False
    if node.inputs[0] is None or node.outputs[0] is None or any(node.outputs[1:]):
        return False
    test = _TESTS.get(node.op_type)
    return test is not None and test(graph, node)


def _identity(graph: Graph, node: Node) -> bool:
    return True


def _dropout(graph: Graph, node: Node) -> bool:
    """Whether a Dropout is in inference mode (versions 1, 6, 7, 10, 12, 13, 22)."""
    opset = graph.opset()
    if opset < 7:
        return bool(node.attributes.get("is_test", 0))
    if opset < 12 or len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = graph.constant(node.inputs[2])
    return training is not None and not training.any()


def _cast(graph: Graph, node: Node) -> bool:
    to = node.attributes.get("to")
    dtype = graph.value(node.inputs[0] or "").dtype
    return dtype is not None and to == dtype.onnx


def _cast_like(graph: Graph, node: Node) -> bool:
    if len(node.inputs) != 2:
        return False
    have, want = (graph.value(name or "").dtype for name in node.inputs)
    return have is not None and have == want


def _transpose(graph: Graph, node: Node) -> bool:
    shape = graph.value(node.inputs[0] or "").shape
    if shape is None:  # the axes may not be those that there are
        return False
    axes = tuple(range(len(shape)))
    return tuple(node.attributes.get("perm", axes[::-1])) == axes


def _reshape(graph: Graph, node: Node) -> bool:
    """Whether the target is a constant that names the input's own shape."""
    have = graph.value(node.inputs[0] or "").shape
    if have is None or len(node.inputs) != 2 or node.inputs[1] is None:
        return False
    want = graph.constant(node.inputs[1])
    if want is None or want.shape != (len(have),):
        return False
    copies = not node.attributes.get("allowzero", 0)
    # at most one -1 is what is left over, and what is empty leaves nothing over
    return want.tolist().count(-1) <= 1 and all(
        size == -1
        or (size == 0 and copies)
        or (isinstance(own, int) and 0 < own == size)
        for size, own in zip(want.tolist(), have, strict=True)
    )


_TESTS: Final = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Dropout": _dropout,
    "Identity": _identity,
    "Reshape": _reshape,
    "Transpose": _transpose,
}


# what nobody uses


def _sweep(graph: Graph) -> list[str]:
    """Remove unused nodes and constants here and in bodies, last first."""
    removed: list[str] = []
    used = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if used.isdisjoint(filter(None, node.outputs)):
            removed.append(describe(node))
            continue
        for body in node.subgraphs.values():
            removed += _sweep(body)
        _forget_outputs(node, used)
        used.update(filter(None, node.inputs))
        used.update(node.captures)
        kept.append(node)
    if len(kept) != len(graph.nodes):
        graph.replace_nodes(reversed(kept))
    graph.constants = {
        name: weight for name, weight in graph.constants.items() if name in used
    }
    own = made_in(graph)
    graph.types = {name: type for name, type in graph.types.items() if name in own}
    return removed


def _forget_outputs(node: Node, used: set[str]) -> None:
    """Set outputs that nobody uses to ``None``, where the operator lets them be."""
    if all(name is None or name in used for name in node.outputs):
        return
    optional = _optional_outputs(node)
    node.outputs = tuple(
        None if name not in used and position in optional else name
        for position, name in enumerate(node.outputs)
    )


def _optional_outputs(node: Node) -> frozenset[int]:
    """Positions of outputs that may be left out; those of unknown operators may not.

    Only nodes with an output that is not used come here, so that onnx is not imported
    for most models.
    """
    import onnx.defs

    opset = node.graph.opset(node.domain) if node.graph else 0
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return frozenset()
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return frozenset(
        position
        for position, output in enumerate(schema.outputs)
        if output.option == optional
    )
