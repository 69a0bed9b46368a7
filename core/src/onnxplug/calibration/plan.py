"""Plans: which EPs a session has, best first, and which nodes each is kept from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.ep import Reason, RefusalCode
from onnxplug.partition.pins import lineage
from onnxplug.selection import CPU, Origin, ProviderRequest
from onnxplug.selection.request import Span

if TYPE_CHECKING:
    from onnxplug import ep as spi
    from onnxplug.graph import Graph
    from onnxplug.selection import ChosenEp

Spans: TypeAlias = tuple[Span, ...]


class Share(Record):
    """An EP, and the nodes of the loaded model's graph that it is not to have."""

    ep: str
    kept_from: Spans = ()


class Plan(Record):
    """The EPs of a session, best first; the CPU EP is the last, if it is there."""

    shares: tuple[Share, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether an EP is kept from nodes."""
        return any(share.kept_from for share in self.shares)

    @property
    def first(self) -> str:
        """The EP that is preferred to the others."""
        return self.shares[0].ep

    def requests(
        self, candidates: Mapping[str, ProviderRequest]
    ) -> list[ProviderRequest]:
        """What to ask for; the CPU EP need not be among the *candidates*."""
        implied = ProviderRequest(CPU, origin=Origin.POLICY)
        return [
            candidates.get(share.ep, implied)._replace(kept_from=share.kept_from)
            for share in self.shares
        ]

    def __str__(self) -> str:
        words = []
        for share in self.shares if self.is_mixed else self.shares[:1]:
            spans = ", ".join(f"{first}–{last - 1}" for first, last in share.kept_from)
            words.append(f"{share.ep} (not nodes {spans})" if spans else share.ep)
        return " + ".join(words)

    def to_json(self) -> Any:
        """The plan as plain data."""
        return [[share.ep, [list(s) for s in share.kept_from]] for share in self.shares]

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """The plan that :meth:`to_json` gave.

        Raises:
            ValueError, TypeError: it did not.
        """
        shares = []
        for name, spans in data:
            if not isinstance(name, str):
                raise TypeError(f"an EP is named {name!r}")
            pairs = tuple((int(first), int(last)) for first, last in spans)
            if any(not 0 <= first < last for first, last in pairs):
                raise ValueError(f"{pairs} are no spans of nodes")
            shares.append(Share(name, pairs))
        if not shares:
            raise ValueError("a plan has no EP")
        return cls(tuple(shares))


def alone(ep: str, *, with_cpu: bool) -> Plan:
    """*ep* has all that it claims, and the CPU EP what is left."""
    rest = (Share(CPU),) if with_cpu and ep != CPU else ()
    return Plan((Share(ep), *rest))


def mixed(
    base: str, other: str, spans: Iterable[Span], count: int, *, with_cpu: bool
) -> Plan:
    """*base* and, for the nodes in *spans* of *count*, *other*.

    The CPU EP, which is among the two or has what both leave over, claims last.
    """
    given = joined(spans)
    rest = complement(given, count)
    if base == CPU:
        return Plan((Share(other, rest), Share(CPU)))
    if other == CPU:
        return Plan((Share(base, given), Share(CPU)))
    last = (Share(CPU),) if with_cpu else ()
    return Plan((Share(base, given), Share(other, rest), *last))


def joined(spans: Iterable[Span]) -> Spans:
    """*spans* in order, those that touch as one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def complement(spans: Sequence[Span], count: int) -> Spans:
    """What is left of *count* nodes without the *spans*, which are in order."""
    edges = [0, *(edge for span in spans for edge in span), count]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((first, last) for first, last in pairs if first < last)


def keep(chosen: Sequence[ChosenEp], graph: Graph) -> list[ChosenEp]:
    """*chosen* with vetoes of what their requests keep them from.

    Args:
        graph: the model's as it was loaded, which nothing has changed yet.
    """
    if not any(ep.request is not None and ep.request.kept_from for ep in chosen):
        return [*chosen]
    places = {id(node): node.index for node in graph.nodes}
    held = tuple(graph.nodes)  # which keeps their identities theirs
    return [
        ep
        if ep.request is None or not ep.request.kept_from
        else ep._replace(veto=_Kept(ep, ep.request.kept_from, places, held))
        for ep in chosen
    ]


class _Kept:
    """The veto of nodes that are, or are made of, nodes in spans of a loaded graph."""

    def __init__(
        self,
        ep: ChosenEp,
        spans: Spans,
        places: Mapping[int, int],
        held: Sequence[object],
    ) -> None:
        self._other = ep.veto
        self._spans = spans
        self._places = places
        self._held = held

    def __call__(self, graph: spi.Graph, node: spi.Node) -> Reason | None:
        reason = self._other(graph, node)
        if reason is not None:
            return reason
        found = [
            self._places[id(each)] for each in lineage(node) if id(each) in self._places
        ]
        # what was made of nodes of several spans goes with the first of them
        place = min(found, default=-1)
        for first, last in self._spans:
            if first <= place < last:
                return Reason(
                    RefusalCode.COST,
                    f"nodes {first}–{last - 1} of the model were measured to be "
                    "faster elsewhere",
                )
        return None
