"""How long nodes take at rates that an EP was measured at.

For EPs that state what nodes cost (:class:`onnxplug.ep.CostModel`).  Making it takes no
time, as each session does so, and few ask.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from onnxplug.ep.costs import CostModel
from onnxplug.ep.graph import Graph, Node


class Rates(CostModel):
    """Tells how long work takes at rates that were measured.

    Args:
        rates: how much of each kind of work one thread does in a second, by the names
            in :class:`onnxplug.authoring.work.Work`; of others it is not known.
        entry: seconds that entering a partition takes.
        threads: that share all but the work of nodes themselves; 0 for one for each
            core that this process may use.
    """

    def __init__(self, rates: Mapping[str, float], entry: float, threads: int) -> None:
        self._rates = rates
        self._entry = entry
        self._threads = threads

    def estimate(self, graph: Graph, nodes: Sequence[Node]) -> float | None:
        """See :class:`onnxplug.ep.CostModel`."""
        from onnxplug.authoring.work import work_of  # see above

        threads = self._threads or _cores()
        seconds = self._entry
        for node in nodes:
            work = work_of(graph, node)
            if work is None:
                return None
            for kind, much in work._asdict().items():
                if not much:
                    continue
                if kind not in self._rates:
                    return None
                shares = 1 if kind == "nodes" else threads
                seconds += much / self._rates[kind] / shares
        return seconds


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
