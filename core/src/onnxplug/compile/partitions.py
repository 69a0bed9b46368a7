"""Asks EPs to compile the partitions of one graph, each only once.

Partitions that come out the same when the graph is divided anew are not compiled again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from onnxplug.authoring.nodes import describe
from onnxplug.compile.decisions import Claim
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.ep import CompiledPartition, Declined, Reason
from onnxplug.guard import close_all
from onnxplug.partition import Cut, GraphPartition
from onnxplug.partition.compile_partition import (
    compile_partition,
    declined_nodes,
    declined_reason,
)
from onnxplug.run.compiled import CompiledUnit
from onnxplug.run.concurrency_limit import ConcurrencyLimit
from onnxplug.run.profiling import stage

_Key: TypeAlias = "tuple[int, *tuple[object, ...]]"


class Partitions:
    """The compiled partitions of one graph.

    Attributes:
        cached: what was done with the cache, by the identity of what was compiled.
    """

    def __init__(self, request: GraphRequest) -> None:
        self._request = request
        self._compiled: dict[_Key, CompiledPartition] = {}
        self.cached: dict[int, str] = {}

    def compile(
        self, cuts: Sequence[Cut], excluded: Collection[Claim]
    ) -> tuple[list[CompiledUnit], dict[Claim, Reason]]:
        """The units of *cuts*, and the claims that EPs declined to compile.

        All are compiled although one was declined: most of them come out the same when
        the graph is cut anew, and EPs are asked once for all that is declined.
        """
        request, graph = self._request, self._request.graph
        uses, given = graph.uses(), frozenset(graph.outputs)
        options = request.options  # which partitions keep, and not all that is here
        declined: dict[Claim, Reason] = {}
        units = []
        make_partition: Callable[..., GraphPartition] = GraphPartition
        if request.restorer is not None:
            make_partition = request.restorer.partition
        for part in cuts:
            options.check_load()
            partition = make_partition(
                graph,
                [graph.nodes[index] for index in part.nodes],
                label=part.label,
                covers_model=len(cuts) == 1 and graph.parent is None,
                uses=uses,
                given=given,
                is_cancelled=lambda: options.is_load_cancelled,
            )
            if part.ep is None:
                units.append(CompiledUnit(partition, None, None, None, {}))
                continue
            candidate = request.candidates[part.ep]
            try:
                compiled = self._compiled_once(part.ep, partition, excluded)
            except Declined as error:
                reason = declined_reason(error.reason)
                nodes = declined_nodes(error, candidate, partition)
                declined |= {(part.ep, node): reason for node in nodes}
                continue
            most = compiled.max_concurrent_runs
            limit = None if most is None else ConcurrencyLimit(most)
            units.append(CompiledUnit(partition, candidate, compiled, limit, {}))
        return units, declined

    def close_unused(self, units: Collection[CompiledUnit]) -> None:
        """Close what was compiled on the way and is in none of *units*."""
        used = {id(unit.compiled) for unit in units}
        close_all(
            (self._request.candidates[ep].name, compiled.close)
            for (ep, *_), compiled in self._compiled.items()
            if id(compiled) not in used
        )

    def _compiled_once(
        self, position: int, partition: GraphPartition, excluded: Collection[Claim]
    ) -> CompiledPartition:
        key = (position, partition.nodes, partition.inputs, partition.outputs)
        if key not in self._compiled:
            with stage(
                self._request.profile,
                f"compile from {describe(partition.nodes[0])} on",
                {
                    "provider": self._request.candidates[position].name,
                    "nodes": len(partition.nodes),
                },
            ):
                self._compiled[key] = self._compile(position, partition, excluded)
        return self._compiled[key]

    def _compile(
        self, position: int, partition: GraphPartition, excluded: Collection[Claim]
    ) -> CompiledPartition:
        request = self._request
        candidate = request.candidates[position]
        if request.restorer is not None:
            restored = request.restorer.restore(candidate, partition)
            if restored is not None:
                return restored
        if candidate.provider.specialiser is None:
            said: list[str] = []
            compiled = compile_partition(candidate, partition, said.append)
            self.cached[id(compiled)] = "".join(said)
            return compiled
        from onnxplug.specialise.specialised import specialised  # which few EPs ask for

        others = [
            request.candidates[number]
            for number in range(position + 1, len(request.candidates))
            if not any((number, node) in excluded for node in partition.nodes)
        ]
        return specialised(
            candidate, partition, others, request.options.config, request.profile
        )
