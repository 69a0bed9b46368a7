"""Another EP that runs a partition while its own compiles it for new shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HOST, CompiledPartition, Declined, MemoryLocation, Reason
from onnxplug.guard import guarded
from onnxplug.partition import Candidate, GraphPartition, ask
from onnxplug.partition.compile_partition import compile_partition, declined_reason
from onnxplug.run.context import Context
from onnxplug.specialise.cache_entry import CacheEntry

if TYPE_CHECKING:
    from onnxplug.ep import RunContext
    from onnxplug.run.run import Run

Places = Sequence[MemoryLocation]


def find_fallback(
    partition: GraphPartition,
    others: Sequence[Candidate],
    inputs_at: Places,
    outputs_at: Places,
) -> tuple[Fallback | None, str]:
    """The first EP that runs all of *partition* for any shapes, compiled.

    Args:
        others: the EPs to ask, best first.
        inputs_at, outputs_at: where values are for the partition's own EP.

    Returns:
        It, or ``None``; and why none of *others* can, each in words.

    Raises:
        SessionRefused, LoadCancelled: an EP says so.
        EpError, OutOfMemory: an EP failed.
    """
    reasons = []
    is_on_host = all(place == HOST for place in (*inputs_at, *outputs_at))
    for other in others:
        why: object = _why_not(partition, other)
        if why is None:
            try:
                compiled = compile_partition(other, partition)
            except Declined as error:
                why = declined_reason(error.reason)
            else:
                found = Fallback(partition, other, compiled, inputs_at, outputs_at)
                # a run that needs no copies has nothing to copy with
                if not is_on_host or found.needs_no_copies:
                    return found, ""
                found.close()
                why = "it has values elsewhere than on the host"
        reasons.append(f"{other.name}: {why}")
    text = "; ".join(reasons) or "there is none"
    return None, f"no other EP serves while it compiles: {text}"


def _why_not(partition: GraphPartition, other: Candidate) -> str | Reason | None:
    """Why *other* cannot run all of *partition*; ``None`` if it can."""
    if other.provider.specialiser is not None:
        return "it compiles by input shapes, too"
    graph = partition.graph
    wanted = {node.index for node in partition.nodes}
    report = ask(graph, other)
    for refusal in report.refusals:
        if refusal.node in wanted:
            return refusal.reason
    for claim in report.claims:
        nodes = claim.nodes
        if claim.atomic and not (wanted.issuperset(nodes) or wanted.isdisjoint(nodes)):
            return "it takes some nodes only together with others"
    for node in partition.nodes:
        reason = other.veto(graph, node)
        if reason is not None:
            return reason
    return None


class Fallback:
    """A partition compiled by another EP than its own.

    Attributes:
        ep: the other EP.
        needs_no_copies: values are where the partition's own EP has them.
        runs: how many it ran.
    """

    def __init__(
        self,
        partition: GraphPartition,
        other: Candidate,
        compiled: CompiledPartition,
        inputs_at: Places,
        outputs_at: Places,
    ) -> None:
        self.ep = other.name
        self._location = home = other.provider.location
        wanted = compiled.input_locations or [home] * len(partition.inputs)
        left = compiled.output_locations or [home] * len(partition.outputs)
        self._inputs = list(zip(inputs_at, wanted, strict=True))
        self._outputs = list(zip(left, outputs_at, strict=True))
        self.needs_no_copies = all(
            source == target for source, target in (*self._inputs, *self._outputs)
        )
        self._kept = CacheEntry(compiled, other.name)
        self._run = guarded(
            other.name, self._kept.run, len(left), _unchecked, partition.nodes[0]
        )

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Run it on values that are where the partition's own EP has them."""
        if context is None:
            return self._run(inputs, outputs, None)
        assert isinstance(context, Context)
        run = context.run
        own = Context(run, run.stream(self._location), self.ep)
        if self.needs_no_copies:
            return self._run(inputs, outputs, own)
        fed = [
            _along(run, value, source, target)
            for value, (source, target) in zip(inputs, self._inputs, strict=True)
        ]
        direct = [
            bound if source == target else None
            for bound, (source, target) in zip(outputs, self._outputs, strict=True)
        ]
        results = self._run([run.wait_for(value) for value in fed], direct, own)
        return [
            _along(run, value, source, target, bound)
            for value, bound, (source, target) in zip(
                results, outputs, self._outputs, strict=True
            )
        ]

    def close(self) -> None:
        """Release what was compiled, once."""
        self._kept.close_once()


def _along(
    run: Run,
    value: Any,
    source: MemoryLocation,
    target: MemoryLocation,
    into: Any = None,
) -> Any:
    if source == target:
        return value
    for hop in run.memory.route(source, target):
        value = run.copy(value, hop, into if hop.target == target else None)
    return value


def _unchecked(*of_a_run: object) -> None:
    """What comes of it is looked at as what the partition's own EP gives."""
