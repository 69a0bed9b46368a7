"""Computes nodes of constants ahead of runs, by an EP: the core computes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug.ep import HOST
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import outermost
from onnxplug.guard import FAILURES
from onnxplug.run.partition import Candidate, GraphPartition


def evaluator(
    candidates: Sequence[Candidate],
) -> Callable[[Graph, Node], Sequence[Any]] | None:
    """Computes a node of constants by the last of *candidates* that works on the host.

    It raises :class:`~onnxplug.prepare.fold.NotFolded` for whatever goes wrong: folding
    is an improvement, never a need.  What cannot be computed now is left to fail, or
    not, when the model runs, and the session's report has it.
    """
    host = [each for each in candidates if each.provider.location == HOST]
    if not host:
        return None
    provider, veto = host[-1].provider, host[-1].veto

    def evaluate(graph: Graph, node: Node) -> Sequence[Any]:
        from onnxplug.prepare.fold import NotFolded

        alone = _alone(graph, node)
        try:
            refusals = provider.get_capability(alone).refusals
            reason = refusals[0].reason if refusals else veto(graph, node)
            if reason is None:
                partition = GraphPartition(alone, alone.nodes)
                with contextlib.closing(provider.compile(partition)) as compiled:
                    nothing_bound = [None] * len(partition.outputs)
                    return list(compiled.run([], nothing_bound, None))
        except FAILURES as error:
            raise NotFolded(f"{type(error).__name__}: {error}") from error
        raise NotFolded(f"no EP on the host computes it: {reason}")

    return evaluate


def _alone(graph: Graph, node: Node) -> Graph:
    """A graph of *node* alone, whose inputs are constants of *graph*."""
    copy = Node(
        node.op_type,
        node.inputs,
        node.outputs,
        node.typed_attributes,
        domain=node.domain,
        name=node.name,
    )
    weights = {name: graph.weight(name) for name in node.inputs if name}
    alone = Graph(
        graph.name,
        inputs=(),
        outputs=[name for name in node.outputs if name],
        nodes=[copy],
        constants={name: weight for name, weight in weights.items() if weight},
        opset_imports=graph.opset_imports,
    )
    alone.plugins = outermost(graph).plugins
    return alone
