"""What a page shows of a session's report, as plain data for its script."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.duration import duration
from onnxplug.escape import escape
from onnxplug.partition.borders import HOST, Producers
from onnxplug_cli.page.layout import lay_out
from onnxplug_cli.page.times import Times
from onnxplug_cli.text import data_size, plural

if TYPE_CHECKING:
    from onnxplug.partition.borders import Border
    from onnxplug.partition.placements import NodePlacement
    from onnxplug.partition.report import Explanation, PartitionPlacement


def content(explanation: Explanation, title: str, times: Times) -> dict[str, Any]:
    """The data of the page.

    Raises:
        RequirementMissing: what lays graphs out is not installed.
    """
    nodes = explanation.nodes
    named = [outcome.ep for outcome in explanation.eps]
    eps = list(dict.fromkeys([*named, *(node.ep for node in nodes)]))
    strings = _Strings()
    producers = Producers(nodes)
    borders = explanation.borders
    copied = {copy.value for copy in explanation.copies}
    return {
        "title": title,
        "headline": explanation.headline,
        "report": str(explanation),
        "eps": _eps(explanation, eps),
        "partitions": [_partition(part, eps, times) for part in explanation.partitions],
        "borders": [_border(border) for border in borders],
        "copies": [
            [escape(copy.value), copy.source, copy.target, _size(copy.nbytes)]
            for copy in explanation.copies
        ],
        "times": _times(times),
        "nodes": [
            _node(node, place, eps, strings, times) for place, node in enumerate(nodes)
        ],
        "graphs": _graphs(nodes, producers, borders, copied),
        "strings": strings.all,
    }


_OF_HOST: Final = 7
"""The last colour of the page, which is grey; the others are EPs' in turn."""


class _Strings:
    """Texts that many nodes have, each once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]


def _size(nbytes: int | None) -> str:
    return "size not known" if nbytes is None else data_size(nbytes)


def _eps(explanation: Explanation, eps: Sequence[str]) -> list[dict[str, Any]]:
    """Each EP: its name, how many nodes it runs, and what became of it."""
    counts = Counter(node.ep for node in explanation.nodes)
    outcomes = {outcome.ep: outcome for outcome in explanation.eps}
    found = []
    for place, ep in enumerate(eps):
        outcome = outcomes.get(ep)
        state = "" if outcome is None or outcome.state == "used" else outcome.state
        reason = "" if outcome is None else outcome.reason
        found.append(
            {
                "name": ep,
                "colour": _OF_HOST if ep == "host" else place % _OF_HOST,
                "nodes": counts[ep],
                "device": "" if outcome is None else outcome.device,
                "state": f"{state}: {reason}" if state and reason else state,
            }
        )
    return found


def _partition(
    part: PartitionPlacement, eps: Sequence[str], times: Times
) -> dict[str, Any]:
    """A partition, with what is to be said of it in lines."""
    lines = [f"{plural(part.nodes, 'node')} on {part.device}"]
    if part.graph:
        lines.append(f"in {part.graph}")
    if part.label:
        lines.append(part.label)
    if part.serialised:
        lines.append("runs wait for each other")
    if part.cache:
        lines.append(part.cache)
    if part.origin:
        lines.append(f"restored from what is {part.origin}")
    lines += [f"{count} in the {tier} tier" for tier, count in part.tiers.items()]
    if max(part.counts.values(), default=0) > 1:
        made = ", ".join(f"{count} {what}" for what, count in part.counts.items())
        lines.append(f"made for shapes: {made}")
    if part.specialisations is not None:
        from onnxplug.partition.specialisations import in_lines

        lines += in_lines(part.specialisations)
    if part.number in times.partitions:
        lines.append(f"{_taken(times.partitions[part.number])} a run")
    return {
        "number": part.number,
        "ep": eps.index(part.ep),
        "lines": list(map(escape, lines)),
    }


def _border(border: Border) -> list[Any]:
    def name(number: int) -> str:
        return "host" if number == HOST else str(number)

    return [
        escape(border.value),
        name(border.source),
        ", ".join(map(name, border.targets)),
        _size(border.nbytes),
        border.is_copied,
    ]


def _taken(microseconds: float) -> str:
    return duration(microseconds / 1e6)


def _times(times: Times) -> str:
    if not times.runs:
        return ""
    copies = f", of which copies take {_taken(times.copies)}" if times.copies else ""
    runs = plural(times.runs, "run")
    return f"a run takes {_taken(times.run)}{copies} (mean of {runs} while recorded)"


def _node(
    node: NodePlacement,
    place: int,
    eps: Sequence[str],
    strings: _Strings,
    times: Times,
) -> list[Any]:
    """Operator, name, EP, partition, and the places of lines of text: what is said of
    it, and what it makes; then its time in words and its share of the run."""
    said = [node.tier and f"{node.tier} tier", node.note]
    said.append(node.pin and f"decided by {node.pin}")
    said += [f"not on {passed}" for passed in node.passed_over]
    makes = [
        f"{escape(name)}: {escape(kind or 'type not known')}"
        + ("" if nbytes is None else f", {data_size(nbytes)}")
        for name, kind, nbytes in zip(
            node.outputs, node.types, node.nbytes, strict=False
        )
        if name
    ]
    taken = times.nodes.get(place)
    words = "" if taken is None else _taken(taken)
    if times.together.get(place, 1) > 1:
        words += f" (its share of one kernel of {times.together[place]} nodes)"
    return [
        escape(f"{node.domain}.{node.op_type}" if node.domain else node.op_type),
        escape(node.name),
        eps.index(node.ep),
        node.partition,
        [strings.place(escape(text)) for text in said if text],
        makes,
        words,
        0.0 if taken is None or not times.run else round(taken / times.run, 4),
    ]


def _graphs(
    nodes: Sequence[NodePlacement],
    producers: Producers,
    borders: Sequence[Border],
    copied: set[str],
) -> list[dict[str, Any]]:
    """The main graph and all bodies: their nodes, where these are, and the edges."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        members[node.graph].append(place)
    edges = _edges(nodes, producers)
    crossing = {(each.graph, each.value): n for n, each in enumerate(borders)}
    found = []
    for way, places in members.items():
        position = {place: n for n, place in enumerate(places)}
        here = edges.get(way, {})
        ends = [(position[source], position[target]) for source, target in here]
        layout = lay_out(len(places), ends)
        found.append(
            {
                "way": escape(way),
                "owner": producers.owners.get(way, -1),
                "nodes": places,
                "at": [
                    [round(column, 2), row]
                    for column, row in zip(layout.columns, layout.rows, strict=True)
                ],
                "width": round(layout.width, 2),
                "height": layout.height,
                "edges": [
                    [
                        source,
                        target,
                        None if turns is None else [round(turn, 2) for turn in turns],
                        *_of_values(
                            way,
                            names,
                            crossing if _crosses(nodes, *ends_of) else {},
                            copied,
                        ),
                    ]
                    for (source, target), (ends_of, names), turns in zip(
                        ends, here.items(), layout.ways, strict=True
                    )
                ],
            }
        )
    return found


def _crosses(nodes: Sequence[NodePlacement], source: int, target: int) -> bool:
    return nodes[source].partition != nodes[target].partition


def _of_values(
    way: str,
    names: Sequence[str],
    crossing: Mapping[tuple[str, str], int],
    copied: set[str],
) -> list[Any]:
    """Of an edge: the names of its values, the borders that they cross, and whether one
    is copied."""
    crossed = [crossing[way, name] for name in names if (way, name) in crossing]
    is_copied = bool(crossed) and any(name in copied for name in names)
    return [list(map(escape, names)), crossed, is_copied]


def _edges(
    nodes: Sequence[NodePlacement], producers: Producers
) -> dict[str, dict[tuple[int, int], list[str]]]:
    """By the way to a graph, its edges and the names of values that go there.

    What a body takes from outside goes to the node that has the body.
    """
    edges: defaultdict[str, dict[tuple[int, int], list[str]]] = defaultdict(dict)
    for place, node in enumerate(nodes):
        for name in filter(None, node.inputs):
            source = producers.of(node.graph, name)
            if source is None:
                continue
            target, graph = place, node.graph
            while graph != nodes[source].graph:
                target = producers.owners[graph]
                graph = nodes[target].graph
            if source == target:
                continue
            names = edges[graph].setdefault((source, target), [])
            if name not in names:
                names.append(name)
    return edges
