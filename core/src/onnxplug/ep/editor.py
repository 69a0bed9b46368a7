"""A graph as whoever replaces an operator's nodes by others may change it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from onnxplug.ep.function import Function
from onnxplug.ep.graph import AttributeValue, Graph, Node


class GraphEditor(Protocol):
    """A model's main graph, or the body of a control-flow node, to be changed.

    Nodes are made and replaced, and never changed.  A graph may grow as long as the
    host's limit for nodes allows it: beyond, a method raises ``UnsupportedModel``.
    """

    @property
    def graph(self) -> Graph:
        """The graph as it is now."""

    @property
    def shared(self) -> MutableMapping[str, Any]:
        """What rewrites keep from one graph of a model to the next: its bodies come
        after the graphs around them."""

    def entry(self, key: str) -> str:
        """What the session's config entry *key* says; empty if it is not set."""

    def names(self, graph: Graph) -> Collection[str]:
        """Names of all values that *graph*, this one or one around it, itself has:
        inputs, constants, and what its nodes make."""

    def fresh_name(self, name: str) -> str:
        """*name*, or what follows from it, that no value of the model has."""

    def make_node(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        domain: str = "",
        name: str = "",
    ) -> Node:
        """A node, for :meth:`replace_nodes`.

        Attributes are int, float, text, array, or a tuple of int or of float.
        """

    def add_constant(self, name: str, array: Any) -> str:
        """Add a constant that holds *array*, under a fresh name like *name*; which."""

    def copy_nodes(
        self,
        nodes: Sequence[Node],
        reads: Mapping[str, str],
        makes: Mapping[str, str],
        prefix: str,
    ) -> Sequence[Node]:
        """Copies of *nodes* of the graph, their bodies included.

        They read, where the originals read a value of *reads*, the one that it is
        mapped to, and make the values of *makes* under the names these are mapped to.
        Whatever else they make gets a fresh name that begins with *prefix*.
        """

    def nodes_of(self, function: Function, node: Node) -> Sequence[Node]:
        """The nodes that *function* stands for *node* with, for :meth:`replace_nodes`.

        What they make has fresh names, but the outputs of *node*.
        """

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Let *nodes*, in any order, be the graph's."""

    def expand_node(self, node: Node) -> bool:
        """Replace *node* by the body of the function that its operator is; whether
        there was one."""

    def infer_types(self) -> None:
        """Complete what :attr:`graph` says of types and shapes of new values."""
