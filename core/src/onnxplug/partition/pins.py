"""Which nodes the user wants on which EP.

A pattern is compared with a node and with all that the node was made of: the call of a
function whose body it is of, its twins, what an EP fused.  So what becomes of a pinned
node is pinned as it was; one that is computed ahead, or removed, runs nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.entries import PLACE, REQUIRE, pins
from onnxplug.ep import Reason, RefusalCode
from onnxplug.errors import OptionError
from onnxplug.graph.scopes import all_graphs
from onnxplug.operators import is_ep_context
from onnxplug.partition.report import Pinned

if TYPE_CHECKING:
    from onnxplug import ep as spi
    from onnxplug.graph import Graph, Model, Node
    from onnxplug.selection import ChosenEp, FailedEp
    from onnxplug.selection.choose import Veto

_MOST_NEAR: Final = 3
"""Patterns that an error suggests."""


class Pin(Record):
    """Nodes that match are for one EP.

    Attributes:
        entry: the config entry that says so.
        pattern: which nodes.
        ep: the EP's name.
    """

    entry: str
    pattern: str
    ep: str

    @property
    def is_required(self) -> bool:
        """The EP has to run the nodes, rather than only none but it may."""
        return self.entry == REQUIRE

    def matches(self, node: spi.Node) -> bool:
        """Whether *node*, by itself, is one of them."""
        kind, _, written = self.pattern.partition(":")
        if kind == "name":
            return _fits(node.name, written)
        domain, _, op_type = written.rpartition(".")
        if domain == "ai.onnx":
            domain = ""
        return _fits(node.domain, domain) and _fits(node.op_type, op_type)

    def __str__(self) -> str:
        return f"{self.entry} {self.pattern}={self.ep}"


class Pins:
    """The pins of one session.

    Args:
        config: the session's config entries.
        canonical: gives an EP's own name for what a user writes.
        model: as it is loaded.
    """

    def __init__(
        self, config: Mapping[str, str], canonical: Callable[[str], str], model: Model
    ) -> None:
        self._pins: Final = [
            Pin(entry, pattern, canonical(written))
            for entry in (PLACE, REQUIRE)
            for pattern, written in pins(config[entry]) or ()
        ]
        bodies = [function.body for function in model.functions.values()]
        self._loaded: Final = [*_nodes((model.graph, *bodies))]
        self._functions: Final = {*_nodes(bodies)}
        self._known: Final[dict[tuple[str, str, str], list[Pin]]] = {}

    # before EPs are asked

    def check(self, graph: Graph) -> None:
        """Check the pins with *graph*, which is prepared.

        Raises:
            OptionError: a pattern matches no node, or a node is pinned to two EPs.
        """
        nodes = [*self._loaded, *_nodes((graph,))]
        for node in nodes:
            of_node = self.of(node)
            for pin in of_node[1:]:
                if pin.ep != of_node[0].ep:
                    raise OptionError(
                        f"{of_node[0]} and {pin} contradict each other: both match "
                        f"{describe(node)}, which one EP runs; narrow one of the "
                        "patterns, or leave it out"
                    )
        for pin in self._pins:
            if not any(map(pin.matches, nodes)):
                raise OptionError(
                    f"{pin.entry} has the pattern {pin.pattern!r}, which matches no "
                    f"node of the model{_suggestion(pin.pattern, nodes)}"
                )

    def check_eps(self, chosen: Sequence[ChosenEp], failed: Sequence[FailedEp]) -> None:
        """Check that the session has the EPs that nodes are pinned to.

        Raises:
            OptionError: it has one not.
        """
        names = [ep.name for ep in chosen]
        for pin in self._pins:
            if pin.ep in names:
                continue
            why = "; add it to providers, or leave the pin out"
            for failure in failed:
                if failure.request.name == pin.ep:
                    why = f": it failed: {failure.error}"
            raise OptionError(
                f"{pin} pins nodes to an EP that is not in the session, which has "
                f"{', '.join(names)}{why}"
            )

    # while they are

    def of(self, node: spi.Node) -> list[Pin]:
        """The pins that match *node*, or what it was made of."""
        found = [pin for each in lineage(node) for pin in self._matching(each)]
        return [pin for pin in self._pins if pin in found] if found else found

    def _matching(self, node: spi.Node) -> list[Pin]:
        """The pins that match *node* by itself."""
        key = node.domain, node.op_type, node.name
        if key not in self._known:
            self._known[key] = [pin for pin in self._pins if pin.matches(node)]
        return self._known[key]

    def veto(self, name: str, other: Veto) -> Veto:
        """The veto of nodes that the EP *name* is not to have by pins or by *other*."""

        def why_not(graph: spi.Graph, node: spi.Node) -> Reason | None:
            return other(graph, node) or self._why_not(name, node)

        return why_not

    def elsewhere(self, graph: Graph, name: str) -> dict[int, str]:
        """The EPs of nodes of *graph* that are pinned to another than the EP *name*."""
        return {
            node.index: pin.ep
            for node in graph.nodes
            for pin in self.of(node)
            if pin.ep != name
        }

    def required(self, graph: Graph, owners: Sequence[str]) -> dict[Node, Pin]:
        """Nodes of *graph* that others have than those that have to run them.

        Args:
            owners: the EP that has each node; empty if none has.
        """
        return {
            node: pin
            for node in graph.nodes
            for pin in self.of(node)
            if pin.is_required and owners[node.index] != pin.ep
        }

    def _why_not(self, name: str, node: spi.Node) -> Reason | None:
        for pin in self.of(node):
            if pin.ep != name:
                return Reason(RefusalCode.OTHER, f"{pin} pins it")
        for body in node.subgraphs.values():
            for inner in body.nodes:
                if reason := self._why_not(name, inner):
                    text = f"in its body is {describe(inner)}, and {reason.detail}"
                    return Reason(RefusalCode.OTHER, text)
        return None

    # afterwards

    def in_words(self, node: spi.Node) -> str:
        """The pins that match *node*, or what it was made of."""
        return ", ".join(map(str, self.of(node)))

    def report(self, graph: Graph) -> list[Pinned]:
        """What became of the nodes of each pin in *graph*, as EPs run it."""
        there = [*_nodes((graph,))]
        left = {made for node in there for made in lineage(node)} | self._functions
        gone = [node for node in self._loaded if node not in left]
        return [
            Pinned(
                pin.entry,
                pin.pattern,
                pin.ep,
                tuple(describe(node) for node in there if pin in self.of(node)),
                tuple(describe(node) for node in gone if pin.matches(node)),
            )
            for pin in self._pins
        ]


def _nodes(graphs: Iterable[Graph]) -> Iterator[Node]:
    for graph in graphs:
        for each in all_graphs(graph):
            yield from each.nodes


def lineage(node: spi.Node) -> Iterator[spi.Node]:
    """*node*, and all that it was made of."""
    waiting, seen = [node], {id(node)}
    while waiting:
        yield (each := waiting.pop())
        for made in getattr(each, "made_of", ()):
            if id(made) not in seen:
                seen.add(id(made))
                waiting.append(made)


def _operator(node: spi.Node) -> str:
    """The operator as a pattern has it."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _fits(text: str, pattern: str) -> bool:
    """Whether *text* is like *pattern*, where ``*`` is any characters and ``?`` one.

    It goes back to the last ``*`` only, so it takes at most their lengths' product.
    """
    at = within = 0
    star, held = -1, 0
    while at < len(text):
        if within < len(pattern) and pattern[within] == "*":
            star, held = within, at
            within += 1
        elif within < len(pattern) and pattern[within] in ("?", text[at]):
            at, within = at + 1, within + 1
        elif star >= 0:
            held += 1
            at, within = held, star + 1
        else:
            return False
    return not pattern[within:].strip("*")


def _suggestion(pattern: str, nodes: Iterable[Node]) -> str:
    """What may have been meant by *pattern*, and why there may be no such node."""
    import difflib  # which is slow to import

    known: dict[str, None] = {}
    compiled = False
    for node in nodes:
        known[f"op:{_operator(node)}"] = None
        known[f"name:{node.name}"] = None
        compiled = compiled or is_ep_context(node)
    kind, _, written = pattern.partition(":")
    near = difflib.get_close_matches(pattern, known, n=_MOST_NEAR)
    other = f"{'name' if kind == 'op' else 'op'}:{written}"
    if other in known:
        near = [other, *(each for each in near if each != other)]
    text = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    if compiled:
        text += (
            "  The model has partitions that are compiled already (EPContext), whose "
            "nodes nobody sees; pin nodes when it is compiled"
        )
    return text
