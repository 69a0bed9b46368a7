"""How long nodes and partitions took, from the trace of a session."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxplug.errors import InvalidArgument

if TYPE_CHECKING:
    from onnxplug.partition.placements import NodePlacement


@dataclass(frozen=True, slots=True)
class Times:
    """Of a run, on average, in µs.

    Attributes:
        runs: how many were recorded.
        run: a whole run.
        nodes: by the place of a node; of several nodes in one kernel, each has its
            share.
        together: by the place of a node, with how many others it was one kernel.
        partitions: by the number of a partition.
        copies: all of them.
    """

    runs: int = 0
    run: float = 0.0
    nodes: Mapping[int, float] = field(default_factory=dict)
    together: Mapping[int, int] = field(default_factory=dict)
    partitions: Mapping[int, float] = field(default_factory=dict)
    copies: float = 0.0


def read_times(path: str | Path, nodes: Sequence[NodePlacement]) -> Times:
    """The times of *nodes* in the trace at *path*.

    The first run is left out if there are others: it is that in which plans are made.
    An event is of a node if it has the node's name, or its words, and the EP that runs
    it; of nodes of one name none has a time.

    Raises:
        InvalidArgument: it is no trace, or has no run.
        OSError: it cannot be read.
    """
    try:
        events = json.loads(Path(path).read_text(encoding="utf-8"))
        events = [each for each in events if each["ph"] == "X"]
        runs = sorted(e["ts"] for e in events if e["name"] == "model_run")
        wholes = [e for e in events if e["name"] == "model_run"]
        if len(runs) > 1:
            events = [event for event in events if event["ts"] >= runs[1]]
            wholes = [event for event in wholes if event["ts"] >= runs[1]]
        if not wholes:
            raise InvalidArgument(f"{path} is the trace of no run")
        return _averaged(events, wholes, _places(nodes))
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            f"{path} is no trace of a session: {type(error).__name__}: {error}"
        ) from error


def _places(nodes: Sequence[NodePlacement]) -> dict[str, int]:
    """Where nodes are, by what events call them."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for place, node in enumerate(nodes):
        found[node.name or node.node].add(place)
    return {name: places.pop() for name, places in found.items() if len(places) == 1}


def _averaged(
    events: Sequence[Mapping[str, Any]],
    wholes: Sequence[Mapping[str, Any]],
    places: Mapping[str, int],
) -> Times:
    count = len(wholes)
    nodes: defaultdict[int, float] = defaultdict(float)
    partitions: defaultdict[int, float] = defaultdict(float)
    together: dict[int, int] = {}
    copies = 0.0
    for event in events:
        taken = event["dur"] / count
        match event["cat"]:
            case "Copy":
                copies += taken
            case "Partition":
                partitions[int(event["name"].rsplit(maxsplit=1)[-1])] += taken
            case "Node":
                own = event["name"].removesuffix("_kernel_time")
                names = event["args"].get("nodes") or [own]
                for name in names:
                    if name in places:
                        nodes[places[name]] += taken / len(names)
                        together[places[name]] = len(names)
    run = sum(event["dur"] for event in wholes) / count
    return Times(count, run, nodes, together, partitions, copies)
