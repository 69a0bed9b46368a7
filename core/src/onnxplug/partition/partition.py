"""A partition as its EP sees it; see :class:`onnxplug.ep.Partition`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Literal

from onnxplug.authoring.locks import new_lock
from onnxplug.ep import ExportedModel, TensorFacts, ValueInfo
from onnxplug.shapes.concrete import infer

if TYPE_CHECKING:
    from onnxplug import ep
    from onnxplug.ep import WeightSource
    from onnxplug.graph import Graph, Node
    from onnxplug.graph.export import ExportedGraph

_MOST_SPECIALISED: Final = 16
"""Sets of shapes for which a partition keeps what it is with them."""

_specialising: Final = new_lock()


class GraphPartition:
    """A convex group of nodes of one graph.

    *uses* and *given*, the graph's uses and outputs, are passed by who makes many;
    *is_cancelled* says whether the session is not wanted any more.

    Attributes:
        graph: the graph the nodes belong to.
        nodes: in topological order.
        inputs: values made outside, constants excluded, in order of first use.
        outputs: values that are used outside, in the order they are made.
        label: the label of the claim, if the partition is one claim.
        covers_model: nothing of the model runs outside.
        origin: where it was restored from; empty if it is compiled.
    """

    origin = ""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        *,
        label: str = "",
        covers_model: bool = False,
        uses: Mapping[str, Sequence[Node]] | None = None,
        given: Set[str] | None = None,
        is_cancelled: Callable[[], bool] = bool,
    ) -> None:
        self.graph = graph
        self.nodes = tuple(nodes)
        self.label = label
        self.covers_model = covers_model
        self._is_cancelled = is_cancelled
        if uses is None:
            uses = graph.uses()
        if given is None:
            given = set(graph.outputs)
        self.inputs, self.outputs = _border(graph, self.nodes, uses, given)
        self._specialised: dict[object, GraphPartition] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the session is not wanted any more."""
        return self._is_cancelled()

    def value(self, name: str) -> ValueInfo:
        """What is known of *name*."""
        return self.graph.value(name)

    def constant(self, name: str) -> Any | None:
        """The content of a constant; ``None`` if *name* is not one."""
        return self.graph.constant(name)

    def weight(self, name: str) -> WeightSource | None:
        """Where the bytes of a constant are from, if that can be said."""
        weight = self.graph.weight(name)
        return None if weight is None else weight.source()

    def infer(
        self, node: ep.Node, inputs: Sequence[TensorFacts | None]
    ) -> Sequence[TensorFacts | None]:
        """What follows for the outputs of *node* from *inputs* in numbers.

        Raises:
            OutOfBounds: the node cannot run; the error names it.
        """
        return _rules()(node, inputs, self.graph.opset())

    def bodies(self, node: ep.Node) -> Mapping[str, GraphPartition]:
        """The bodies of control flow of *node*, by the attributes that hold them."""
        (member,) = [each for each in self.nodes if each is node]
        return {
            attribute: GraphPartition(body, body.nodes, is_cancelled=self._is_cancelled)
            for attribute, body in member.subgraphs.items()
        }

    def specialise(self, shapes: Mapping[str, tuple[int, ...]]) -> GraphPartition:
        """The partition where inputs have these *shapes*, with static types.

        Raises:
            ValueError: an input has no such shape.
            InvalidModel: a node cannot run with these shapes; the error names it.
        """
        from onnxplug.shapes.specialise import check_shapes

        shapes = {name: tuple(shape) for name, shape in shapes.items()}
        types = {name: self.value(name).type for name in self.inputs}
        check_shapes(types, shapes)
        return self.for_shapes(shapes)

    def for_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> GraphPartition:
        """As :meth:`specialise`, for shapes that inputs do have, whatever is stated."""
        key = tuple(map(shapes.get, self.inputs))
        with _specialising:
            if self._specialised is None:
                self._specialised = {}
            found = self._specialised.pop(key, None)
            if found is not None:
                self._specialised[key] = found
                return found
        made = self._made_for(shapes)
        with _specialising:
            self._specialised[key] = made
            if len(self._specialised) > _MOST_SPECIALISED:
                del self._specialised[next(iter(self._specialised))]
        return made

    def _made_for(self, shapes: Mapping[str, tuple[int, ...]]) -> GraphPartition:
        from onnxplug.shapes.specialise import specialised

        graph = specialised(
            self.graph,
            self.nodes,
            inputs=self.inputs,
            outputs=self.outputs,
            shapes=shapes,
        )
        return GraphPartition(
            graph,
            graph.nodes,
            label=self.label,
            covers_model=self.covers_model,
            uses={},
            given=frozenset(self.outputs),
            is_cancelled=self._is_cancelled,
        )

    def cancelled_by(self, is_cancelled: Callable[[], bool]) -> GraphPartition:
        """The same partition, whose session is not wanted when *is_cancelled* says."""
        other = copy.copy(self)
        other._is_cancelled = is_cancelled
        return other

    def to_model(
        self, weights: Literal["inline", "external"] = "inline"
    ) -> ExportedModel:
        """The partition as a self-contained model."""
        exported = self._export(weights)
        buffers = {name: weight.raw() for name, weight in exported.weights.items()}
        return ExportedModel(exported.model, buffers)

    def _export(self, weights: Literal["inline", "external"]) -> ExportedGraph:
        from onnxplug.graph.export import export_graph

        return export_graph(
            self.graph,
            nodes=self.nodes,
            inputs=self.inputs,
            outputs=self.outputs,
            weights=weights,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the partition's model and what tells its weights from others."""
        import hashlib

        model, weights = self._export("external")
        digest = hashlib.sha256(model.SerializeToString(deterministic=True))
        # an EP may compile it otherwise for these
        digest.update(repr((self.label, self.covers_model)).encode())
        for location, weight in weights.items():
            digest.update(repr((location, weight.lasting_key())).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"GraphPartition({len(self.nodes)} nodes of {self.graph.name!r})"


@functools.cache
def _rules() -> Callable[..., Sequence[TensorFacts | None]]:
    """What a partition asks for shapes; of use to few EPs, so imported when asked."""
    return infer


def _border(
    graph: Graph,
    nodes: Sequence[Node],
    uses: Mapping[str, Sequence[Node]],
    given: Set[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    members = {node.index for node in nodes}
    made = [name for node in nodes for name in node.outputs if name]
    inside = set(made)
    inputs = {
        name: None
        for node in nodes
        for name in (*node.inputs, *node.captures)
        if name and name not in inside and graph.weight(name) is None
    }
    outputs = (
        name
        for name in made
        if name in given
        or any(user.index not in members for user in uses.get(name, ()))
    )
    return tuple(inputs), tuple(outputs)
