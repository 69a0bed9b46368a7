"""Computes nodes of constants ahead of runs, by an EP: the core computes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from onnxplug.ep import HOST, Reason
from onnxplug.graph import Graph, Node
from onnxplug.graph.single_node import single_node_graph
from onnxplug.guard import FAILURES, in_words
from onnxplug.interruption import raise_interruption
from onnxplug.partition import Candidate, GraphPartition


class Evaluator:
    """Computes a node of constants by the last of some EPs that works on the host.

    Args:
        candidate: the EP.
    """

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def __call__(self, graph: Graph, node: Node) -> Sequence[Any]:
        """One array for each output.

        Raises:
            NotFolded: for whatever goes wrong: folding is an improvement, never a need.
                What cannot be computed now is left to fail, or not, when the model
                runs, and the session's report has it.
        """
        from onnxplug.prepare.fold import NotFolded

        provider = self._candidate.provider
        own = _alone(graph, node)
        try:
            reason = self._refusal(own, graph, node)
            if reason is None:
                partition = GraphPartition(own, own.nodes)
                with contextlib.closing(provider.compile(partition)) as compiled:
                    nothing_bound = [None] * len(partition.outputs)
                    return list(compiled.run([], nothing_bound, None))
        except FAILURES as error:
            raise_interruption(error)
            raise NotFolded(in_words(error)) from error
        raise NotFolded(f"no EP on the host computes it: {reason}")

    def computes(self, graph: Graph, node: Node) -> bool:
        """Whether the EP takes *node*."""
        try:
            return self._refusal(_alone(graph, node), graph, node) is None
        except FAILURES as error:
            raise_interruption(error)
            return False

    def _refusal(self, own: Graph, graph: Graph, node: Node) -> Reason | None:
        refusals = self._candidate.provider.get_capability(own).refusals
        return refusals[0].reason if refusals else self._candidate.veto(graph, node)


def evaluator(candidates: Sequence[Candidate]) -> Evaluator | None:
    """What computes nodes of constants; ``None`` if no EP works on the host."""
    host = [each for each in candidates if each.provider.location == HOST]
    return Evaluator(host[-1]) if host else None


def _alone(graph: Graph, node: Node) -> Graph:
    weights = {name: graph.weight(name) for name in node.inputs if name}
    return single_node_graph(graph, node, {name: w for name, w in weights.items() if w})
