"""Quantised weights become constants that are computed when somebody asks for them.

That is ``DequantizeLinear`` of constants, and what only passes its result on.  Nodes
of EPs that run integers and their scale keep it; see ``Preferences.keeps_qdq``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from onnxplug.authoring.arrays import usual_form
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, NodeError
from onnxplug.graph import Graph, Node, Weight
from onnxplug.graph.scopes import Names
from onnxplug.graph.single_node import single_node_graph
from onnxplug.graph.weight import Maker
from onnxplug.interruption import raise_interruption
from onnxplug.operators import dequantizes

if TYPE_CHECKING:
    import numpy as np

_PASSED: Final = having("reshapes") | {"Cast", "Concat", "Identity", "Transpose"}
"""Operators between a weight's DequantizeLinear and what computes with it."""

_MOST_PASSED: Final = 8
"""How many of these one after the other: a chain is computed from its end."""

_PLAIN: Final = (int, float, str, tuple)
"""Attributes that are what their text says."""


class Computes(Protocol):
    """What computes nodes of constants."""

    def __call__(self, graph: Graph, node: Node) -> Sequence[Any]:
        """The outputs; raises why there are none."""

    def computes(self, graph: Graph, node: Node) -> bool:
        """Whether it takes the node."""


Keeps: TypeAlias = Callable[[Node, Node], bool]
"""Whether a node keeps one that it reads, which is one of quantised weights."""


class Settled(Record):
    """A node that is a constant now.

    Attributes:
        node: it.
        is_kept: it is also still there, for EPs that keep it.
    """

    node: Node
    is_kept: bool


def dequantize(
    graph: Graph,
    computes: Callable[[], Computes | None],
    keeps: Keeps = lambda reader, node: False,
) -> list[Settled]:
    """Make constants of the quantised weights of *graph*, without bodies within.

    Left as they are: outputs of the graph, what would be larger than all weights
    together, and what nothing computes.

    Args:
        computes: what computes now, asked again whenever a constant is wanted.

    Returns:
        The nodes that are constants now, in order.
    """
    found = _found(graph, computes())
    if not found:
        return []
    makers = {_made_by(node): node for node in found}
    kept = _kept(graph, makers, keeps)
    names = _named(graph, makers, kept)
    weights = _weights(graph, found, names, computes)
    nodes = [node for node in graph.nodes if node not in found or node in kept]
    if kept:
        for node in nodes:
            if node not in kept:
                node.inputs = tuple(
                    names[name]
                    if name in makers and not keeps(node, makers[name])
                    else name
                    for name in node.inputs
                )
    read = {name for node in nodes for name in (*node.inputs, *node.captures)}
    settled: list[Settled] = []
    for node in found:
        name = names[_made_by(node)]
        if name in read:
            graph.add_constant(name, weights[name])
        elif node not in kept:
            del graph.types[name]
        if name in read or node not in kept:
            settled.append(Settled(node, node in kept))
    graph.replace_nodes([*nodes, *_copies(graph, nodes, kept)])
    return settled


# which nodes


def _found(graph: Graph, computes: Computes | None) -> dict[Node, None]:
    if computes is None:
        return {}
    found: dict[Node, None] = {}
    # how many nodes each value has been passed on by
    passed: dict[str, int] = {}
    outputs = set(graph.outputs)
    weights = 0
    for node in graph.nodes:
        if not outputs.isdisjoint(node.outputs) or not _is_settled(graph, node, passed):
            continue
        size = math.prod(_sizes(graph, node) or ())
        count = 0
        if dequantizes(node):
            weights += size
        else:
            count = 1 + max(passed.get(name or "", 0) for name in node.inputs)
        if size <= weights and count <= _MOST_PASSED and computes.computes(graph, node):
            found[node] = None
            passed[_made_by(node)] = count
    return found


def _is_settled(graph: Graph, node: Node, passed: Mapping[str, int]) -> bool:
    read = [name for name in node.inputs if name is not None]
    if dequantizes(node):
        settled = all(graph.weight(name) is not None for name in read)
    elif not node.domain and node.op_type in _PASSED:
        settled = not passed.keys().isdisjoint(read) and all(
            name in passed or graph.weight(name) is not None for name in read
        )
    else:
        return False
    return (
        settled
        and _sizes(graph, node) is not None
        and all(isinstance(value, _PLAIN) for value in node.attributes.values())
    )


def _sizes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The shape of what *node* makes, if that is one tensor of a certain size."""
    if len(node.outputs) != 1 or not node.outputs[0]:
        return None
    value = graph.value(node.outputs[0])
    if value.dtype is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) else None


def _made_by(node: Node) -> str:
    """The one value that a node of these operators makes."""
    (name,) = node.outputs
    assert name is not None
    return name


def _kept(graph: Graph, makers: Mapping[str, Node], keeps: Keeps) -> set[Node]:
    """Those that somebody keeps who reads what they make, or passes it on."""
    kept: set[Node] = set()
    members = set(makers.values())
    for node in reversed(graph.nodes):
        if node in members and node not in kept:
            continue
        for name in filter(None, (*node.inputs, *node.captures)):
            maker = makers.get(name)
            if maker is not None and (node in kept or keeps(node, maker)):
                kept.add(maker)
    return kept


def _named(graph: Graph, makers: Mapping[str, Node], kept: Set[Node]) -> dict[str, str]:
    """The names of the constants, by those of the nodes' results."""
    new = Names(graph) if kept else None
    return {
        name: new.fresh(f"{name}_constant") if new and node in kept else name
        for name, node in makers.items()
    }


def _copies(graph: Graph, nodes: Sequence[Node], kept: Set[Node]) -> list[Node]:
    """Copies of *kept*, so that each is read by one node, which reads these then.

    The two are to be in one partition, wherever the reader is.
    """
    if not kept:
        return []
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(filter(None, node.inputs)):
            readers.setdefault(name, []).append(node)
    captured = {name for node in nodes for name in node.captures}
    new = Names(graph)
    copies: list[Node] = []
    for node in reversed(nodes):
        if node not in kept:
            continue
        target = _made_by(node)
        # the first reads the original, unless a body does
        for reader in readers.get(target, [])[0 if target in captured else 1 :]:
            name = new.fresh(target)
            graph.types[name] = graph.types[target]
            copy = Node(
                node.op_type,
                node.inputs,
                (name,),
                node.typed_attributes,
                domain=node.domain,
                name=node.name,
                made_of=(node,),
            )
            reader.inputs = tuple(
                name if each == target else each for each in reader.inputs
            )
            copies.append(copy)
            for each in dict.fromkeys(filter(None, node.inputs)):
                readers.setdefault(each, []).append(copy)
    return copies


# their results


def _weights(
    graph: Graph,
    nodes: Iterable[Node],
    names: Mapping[str, str],
    computes: Callable[[], Computes | None],
) -> dict[str, Weight]:
    """The constants, by name."""
    weights: dict[str, Weight] = {}
    for node in nodes:
        copy = Node(
            node.op_type,
            tuple(name and names.get(name, name) for name in node.inputs),
            (names[_made_by(node)],),
            node.typed_attributes,
            domain=node.domain,
            name=node.name,
        )
        read = {
            name: weights.get(name) or graph.weight(name)
            for name in filter(None, copy.inputs)
        }
        maker = single_node_graph(
            graph, copy, {n: w for n, w in read.items() if w is not None}
        )
        sizes, dtype = _sizes(graph, node), graph.value(_made_by(node)).dtype
        assert sizes is not None and dtype is not None
        weights[_made_by(copy)] = _weight(maker, dtype, sizes, computes)
    return weights


def _weight(
    maker: Graph,
    dtype: DataType,
    sizes: tuple[int, ...],
    computes: Callable[[], Computes | None],
) -> Weight:
    (node,) = maker.nodes

    def compute() -> np.ndarray[Any, Any]:
        try:
            now = computes()
            if now is None:
                raise RuntimeError("no EP on the host computes it any more")
            (result,) = now(maker, node)
            array = usual_form(result, dtype.numpy)
            if array.shape != sizes:
                raise ValueError(f"it gave {array.shape}; expected {sizes}")
        except MemoryError:
            raise
        except Exception as error:
            raise_interruption(error)
            said = f"{describe(node)} cannot be computed: {error}"
            raise NodeError(said, node=node.name or describe(node)) from error
        return array

    return Weight.computed(
        dtype,
        sizes,
        compute,
        method=(
            *(node.domain, node.op_type, maker.opset(node.domain)),
            repr(sorted(node.attributes.items())),
            tuple(name is not None for name in node.inputs),
        ),
        of=[maker.constants[name] for name in node.inputs if name is not None],
        maker=Maker(node, maker.constants),
    )
