"""The model's graph, and the few ways in which it is rewritten.

Invariant: nodes are in topological order and ``nodes[i].index == i``; every value has
one producer (an input, a constant or a node).
"""

from __future__ import annotations

import functools
import heapq
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring import operators
from onnxplug.authoring.record import Record
from onnxplug.ep import SparseTensor, ValueInfo, ValueType
from onnxplug.ep import TensorType as Tensor
from onnxplug.errors import InvalidModel
from onnxplug.escape import escape
from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.weight import Weight

if TYPE_CHECKING:
    from onnxplug.authoring.files import Identity
    from onnxplug.ep import Domain
    from onnxplug.graph.folder import ModelFolder
    from onnxplug.plugins import PluginRegistry

_ONNX_DOMAINS: Final = frozenset(
    ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
)


# asked for at every node, and looking an enum's member up is slow
_GRAPH: Final = AttributeType.GRAPH
_GRAPHS: Final = AttributeType.GRAPHS


class Node:
    """One operator call; see :class:`onnxplug.ep.Node`.

    Attributes:
        typed_attributes: the attributes with their ONNX types.
        overload: which overload of a model-local function is called; usually empty.
        made_of: the nodes in whose place it is, where it is not the model's own; these
            may be so, too.
    """

    __slots__ = (
        "_attributes",
        "_since_version",
        "domain",
        "graph",
        "index",
        "inputs",
        "made_of",
        "name",
        "op_type",
        "outputs",
        "overload",
        "typed_attributes",
    )

    def __init__(
        self,
        op_type: str,
        inputs: tuple[str | None, ...],
        outputs: tuple[str | None, ...],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        domain: str = "",
        name: str = "",
        overload: str = "",
        made_of: tuple[Node, ...] = (),
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.name = name
        self.overload = overload
        self.made_of = made_of
        self.inputs = inputs
        self.outputs = outputs
        self.typed_attributes: dict[str, Attribute] = dict(attributes or {})
        self.index = -1
        self.graph: Graph | None = None
        self._attributes: dict[str, Any] | None = None
        self._since_version: int | None = None

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The values of the attributes, tensors as read-only arrays."""
        if self._attributes is None:
            self._attributes = {
                name: _plain(attribute.value)
                for name, attribute in self.typed_attributes.items()
            }
        return self._attributes

    @property
    def subgraphs(self) -> Mapping[str, Graph]:
        """The attributes that are graphs; those in a list as ``name[index]``."""
        bodies: dict[str, Graph] = {}
        if not self.typed_attributes:
            return bodies
        for name, attribute in self.typed_attributes.items():
            if attribute.value is None:
                continue  # given by the function that is called
            # compared, as the hash of an enum's member is computed in Python
            if attribute.type is _GRAPH:
                bodies[name] = attribute.value
            elif attribute.type is _GRAPHS:
                for index, body in enumerate(attribute.value):
                    bodies[f"{name}[{index}]"] = body
        return bodies

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that the node's subgraphs take from outside, in order of first use."""
        if not self.typed_attributes or not (bodies := self.subgraphs):
            return ()
        names: dict[str, None] = {}
        for body in bodies.values():
            names.update(dict.fromkeys(body.captures()))
        return tuple(names)

    @property
    def since_version(self) -> int:
        """The opset version at which the operator last changed; 0 when not ONNX's."""
        if self._since_version is None:
            version = self.graph.opset(self.domain) if self.graph else 0
            # of other domains ONNX knows what a program has registered with it
            if self.domain in _ONNX_DOMAINS or "onnx" in sys.modules:
                found = _since_version(self.domain, self.op_type, version)
            else:
                found = 0
            self._since_version = found
        return self._since_version

    def __repr__(self) -> str:
        return (
            f"Node({escape(self.op_type)} {self.name!r} {self.inputs} -> "
            f"{self.outputs})"
        )


class Graph:
    """A graph; EPs see it as :class:`onnxplug.ep.Graph`.

    Attributes:
        name: may be empty.
        inputs: names fed by the caller, without those of constants.
        outputs: names given to the caller.
        defaults: inputs that have a default: initializers that are also inputs.
        constants: weights by name, initializers that cannot be overridden.
        types: what is known of values, by name.
        parent: the graph around a control-flow body.
        opset_imports: domain to opset version (``""`` for ONNX's own).
        doc_string: the model's description of the graph.
        plugins: of a main graph, where operators of other domains are looked up;
            ``None``: in the process's registry.
        domains: of a main graph, those that are looked up first.
        entries: of a main graph, the session's config entries.
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        nodes: Iterable[Node],
        constants: Mapping[str, Weight] | None = None,
        defaults: Mapping[str, Weight] | None = None,
        types: Mapping[str, ValueType | None] | None = None,
        opset_imports: Mapping[str, int] | None = None,
        doc_string: str = "",
    ) -> None:
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.constants: dict[str, Weight] = dict(constants or {})
        self.defaults: dict[str, Weight] = dict(defaults or {})
        self.types: dict[str, ValueType | None] = dict(types or {})
        self.parent: Graph | None = None
        self.opset_imports: dict[str, int] = dict(opset_imports or {})
        self.doc_string = doc_string
        self.plugins: PluginRegistry | None = None
        self.domains: Sequence[Domain] = ()
        self.entries: Mapping[str, str] = {}
        self.assignments: dict[int, str] = {}
        self.nodes: list[Node] = []
        self.replace_nodes(nodes)

    # reading

    def opset(self, domain: str = "") -> int:
        """The version of *domain*'s operators; 0 when not imported."""
        return self.opset_imports.get(domain, 0)

    def value(self, name: str) -> ValueInfo:
        """What is known of *name*, here or in a graph around."""
        graph: Graph | None = self
        while graph is not None:
            weight = graph.constants.get(name)
            if weight is not None:
                tensor = Tensor(weight.dtype, weight.shape)
                return ValueInfo(name=name, type=tensor, is_constant=True)
            if name in graph.types:
                return ValueInfo(name=name, type=graph.types[name])
            graph = graph.parent
        return ValueInfo(name=name)

    def input_types(self) -> dict[str, ValueType | None]:
        """What is known of the inputs, those with a default after the others."""
        return {name: self.types.get(name) for name in (*self.inputs, *self.defaults)}

    def weight(self, name: str) -> Weight | None:
        """The constant *name*, here or in a graph around."""
        graph: Graph | None = self
        while graph is not None:
            if name in graph.constants:
                return graph.constants[name]
            if name in graph.types:  # a value of this graph hides outer constants
                return None
            graph = graph.parent
        return None

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The content of the constant *name*, here or in a graph around."""
        weight = self.weight(name)
        return None if weight is None else weight.array

    def assigned_to(self, node: ep.Node) -> str | None:
        """The EP that took *node* so far, while capabilities are asked for."""
        return self.assignments.get(node.index)

    def captures(self) -> tuple[str, ...]:
        """Names that are used here or in bodies within, but made around this graph."""
        made = {*self.inputs, *self.defaults, *self.constants}
        names: dict[str, None] = {}
        for node in self.nodes:
            used = (*filter(None, node.inputs), *node.captures)
            names.update((name, None) for name in used if name not in made)
            made.update(filter(None, node.outputs))
        names.update((name, None) for name in self.outputs if name not in made)
        return tuple(names)

    def producers(self) -> dict[str, Node]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def uses(self) -> dict[str, list[Node]]:
        """The nodes that read each value, bodies' captures included, in order."""
        table: dict[str, list[Node]] = {}
        for node in self.nodes:
            names = dict.fromkeys((*filter(None, node.inputs), *node.captures))
            for name in names:
                table.setdefault(name, []).append(node)
        return table

    # rewriting

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take *nodes*, sorted topologically (stable), as the graph's nodes.

        Raises:
            InvalidModel: the nodes form a cycle.
        """
        self.nodes = _in_topological_order(list(nodes), self.name)
        for index, node in enumerate(self.nodes):
            node.index = index
            node.graph = self
            node._since_version = None
            for body in node.subgraphs.values():
                body.parent = self
        self.assignments.clear()

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename uses of values here and, as captures, in bodies within."""
        self.outputs = [names.get(name, name) for name in self.outputs]
        for node in self.nodes:
            node.inputs = tuple(
                names.get(name, name) if name else name for name in node.inputs
            )
            for body in node.subgraphs.values():
                own = {*body.inputs, *body.defaults, *body.constants}
                for inner in body.nodes:
                    own.update(filter(None, inner.outputs))
                outer = {old: new for old, new in names.items() if old not in own}
                if outer:
                    body.rename(outer)

    def add_constant(self, name: str, weight: Weight) -> None:
        """Let *name* be a constant."""
        self.constants[name] = weight
        self.types[name] = Tensor(weight.dtype, weight.shape)


def _in_topological_order(nodes: list[Node], graph_name: str) -> list[Node]:
    producer = {
        name: position
        for position, node in enumerate(nodes)
        for name in node.outputs
        if name
    }
    needs: list[set[int]] = []
    sorted_already = True
    for position, node in enumerate(nodes):
        sources = {
            producer[name]
            for name in (*node.inputs, *node.captures)
            if name in producer
        }
        needs.append(sources)
        sorted_already = sorted_already and all(s < position for s in sources)
    if sorted_already:
        return nodes
    # Kahn's algorithm with a heap, so that the order is the model's where it can be
    waiting = [len(sources) for sources in needs]
    users: list[list[int]] = [[] for _ in nodes]
    for position, sources in enumerate(needs):
        for source in sources:
            users[source].append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order: list[Node] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(nodes[position])
        for user in users[position]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) != len(nodes):
        stuck = next(node for node, count in zip(nodes, waiting, strict=True) if count)
        raise InvalidModel(
            f"graph {graph_name!r} has a cycle through {escape(stuck.op_type)} "
            f"{stuck.name!r}; "
            "ONNX graphs are acyclic"
        )
    return order


class Function(Record):
    """A model-local function.

    Attributes:
        attributes: names of attributes that a call must set.
        attribute_defaults: attributes with defaults.
        body: inputs, outputs and nodes; attributes refer by name.
    """

    domain: str
    name: str
    overload: str
    attributes: tuple[str, ...]
    attribute_defaults: Mapping[str, Any]
    body: Graph


class Model(Record):
    """A loaded model.

    Attributes:
        graph: the main graph.
        functions: model-local functions by (domain, name, overload).
        path: the file it came from; ``None`` when from memory.
        folder: the files beside it.
        metadata: custom ``metadata_props``.
    """

    graph: Graph
    ir_version: int
    functions: dict[tuple[str, str, str], Function]
    path: str | None
    producer_name: str
    producer_version: str
    domain: str
    model_version: int
    doc_string: str
    metadata: dict[str, str]
    folder: ModelFolder

    @property
    def files(self) -> Mapping[str, Identity]:
        """What each file that it is in was when it was opened."""
        return self.folder.contents.files


def densify(sparse: SparseTensor) -> np.ndarray[Any, Any]:
    """The dense array of *sparse*, whose indices all lie in its shape."""
    shape, indices = sparse.shape, sparse.indices
    if indices.ndim == 2:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        indices = indices @ np.array(strides, np.int64)
    is_text = sparse.values.dtype == object
    dense = (
        np.full(shape, "", object) if is_text else np.zeros(shape, sparse.values.dtype)
    )
    dense.reshape(-1)[indices] = sparse.values
    return dense


def outside(indices: np.ndarray[Any, Any], shape: Sequence[int]) -> Any:
    """Which of the indices of a sparse tensor, as it has them, lie outside *shape*."""
    linear = indices.ndim == 1
    bounds = math.prod(shape) if linear else np.array(shape, np.int64)
    return (indices < 0) | (indices >= bounds)


def _plain(value: Any) -> Any:
    if isinstance(value, Weight):
        return value.array
    if isinstance(value, tuple) and value and isinstance(value[0], Weight):
        return tuple(weight.array for weight in value)
    return value


@functools.cache
def _since_version(domain: str, op_type: str, version: int) -> int:
    if "onnx" not in sys.modules:  # which takes long to import
        known = operators.since_version(domain, op_type, version)
        if known is not None:
            return known
    import onnx.defs

    try:
        return int(onnx.defs.get_schema(op_type, version, domain).since_version)
    except onnx.defs.SchemaError:
        return 0
