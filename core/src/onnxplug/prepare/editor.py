"""A graph as whoever supplies an operator may change it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, cast

from onnxplug import ep
from onnxplug.errors import UnsupportedModel
from onnxplug.graph import Function, Graph, Node, Weight
from onnxplug.graph.attribute import Attribute
from onnxplug.graph.scopes import Names, made_in, outermost
from onnxplug.graph.typed import typed
from onnxplug.prepare.budget import Budget
from onnxplug.prepare.built import built
from onnxplug.prepare.expand import expand_node
from onnxplug.prepare.infer import infer_types
from onnxplug.prepare.instantiate import instantiate
from onnxplug.prepare.lineage import trace


class GraphEditor:
    """See :class:`onnxplug.ep.GraphEditor`."""

    def __init__(
        self,
        graph: Graph,
        budget: Budget,
        shared: MutableMapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.shared = {} if shared is None else shared
        self._budget = budget
        self._names = Names(graph)

    def entry(self, key: str) -> str:
        """What the session's config entry says."""
        return outermost(self.graph).entries.get(key, "")

    def names(self, graph: ep.Graph) -> Collection[str]:
        """What *graph* itself has."""
        return made_in(cast(Graph, graph))

    def fresh_name(self, name: str) -> str:
        """A name that no value of the model has."""
        return self._names.fresh(name)

    def make_node(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        name: str = "",
    ) -> Node:
        """A node that the graph does not have yet."""
        made: dict[str, Attribute] = {
            key: typed(value) for key, value in (attributes or {}).items()
        }
        return Node(
            op_type, tuple(inputs), tuple(outputs), made, domain=domain, name=name
        )

    def add_constant(self, name: str, array: Any) -> str:
        """Add a constant under a fresh name."""
        fresh = self.fresh_name(name)
        self.graph.add_constant(fresh, Weight.from_array(array))
        return fresh

    def copy_nodes(
        self,
        nodes: Sequence[ep.Node],
        reads: Mapping[str, str],
        makes: Mapping[str, str],
        prefix: str,
    ) -> list[Node]:
        """Copies of *nodes*, as if they were a function that is called."""
        originals = cast(Sequence[Node], nodes)
        # what is given stays what is given, also where a copy makes it beside the rest
        copies = [
            Node(
                node.op_type,
                node.inputs,
                tuple(
                    self.fresh_name(name) if name and name in reads else name
                    for name in node.outputs
                ),
                node.typed_attributes,
                domain=node.domain,
                name=node.name,
                overload=node.overload,
                made_of=(node,),
            )
            for node in originals
        ]
        body = Graph(
            prefix,
            inputs=[*reads],
            outputs=[*makes],
            nodes=copies,
            opset_imports=self.graph.opset_imports,
        )
        function = Function("", prefix, "", (), {}, body)
        call = Node(prefix, tuple(reads.values()), tuple(makes.values()), name=prefix)
        made = instantiate(function, call, self.graph, self._names, self._budget)
        for node in originals:  # whose bodies the copies shared for a while
            for within in node.subgraphs.values():
                within.parent = self.graph
        return made

    def nodes_of(self, function: ep.Function, node: ep.Node) -> list[Node]:
        """The nodes that *function* stands for *node* with."""
        call = cast(Node, node)
        made = built(function, self.graph, call)
        return instantiate(made, call, self.graph, self._names, self._budget)

    def replace_nodes(self, nodes: Iterable[ep.Node]) -> None:
        """Let *nodes* be the graph's.

        Raises:
            UnsupportedModel: they are more than the budget allows.
        """
        self._budget.check()
        before = list(self.graph.nodes)
        self.graph.replace_nodes(cast(Iterable[Node], nodes))
        trace(before, self.graph.nodes)
        count = len(self.graph.nodes)
        if not self._budget.make_nodes(count):
            raise UnsupportedModel(
                "replacing operators takes more nodes than onnxplug allows all "
                f"replacements together, {self._budget.limits.nodes:,}; the graph "
                f"{self.graph.name!r} has become {count:,}"
            )

    def expand_node(self, node: ep.Node) -> bool:
        """Replace *node* by its function body."""
        if not expand_node(self.graph, cast(Node, node), self._budget):
            return False
        self._names = Names(self.graph)
        return True

    def infer_types(self) -> None:
        """Complete what is known of values in the whole model."""
        infer_types(outermost(self.graph), every_size=True)
