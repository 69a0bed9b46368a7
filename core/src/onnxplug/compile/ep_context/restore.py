"""Gives compiled partitions back to the EPs that compiled them.

Nothing of a blob reaches an EP before header, name, types, options, what the EP says of
its compatibility, and the checksum are found to be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.nodes import describe
from onnxplug.compile.ep_context.container import Entry
from onnxplug.compile.ep_context.contexts import REMEDY, Contexts, FoundContext, damaged
from onnxplug.compile.ep_context.node import ContextNode
from onnxplug.compile.ep_context.partition import ContextPartition
from onnxplug.compile.ep_context.signature import difference
from onnxplug.ep import (
    CapabilityReport,
    Compatibility,
    CompiledPartition,
    ComputeCapability,
    Declined,
    Reason,
    Refusal,
    RefusalCode,
)
from onnxplug.errors import (
    ContextError,
    ContextMismatch,
    ModelRequiresCompilation,
    UnassignedNode,
)
from onnxplug.graph.scopes import outermost
from onnxplug.hardware import discover
from onnxplug.operators import is_ep_context
from onnxplug.partition import Candidate, GraphPartition
from onnxplug.partition.compile_partition import checked, declined_reason
from onnxplug.plugins import registry as registry_of_process
from onnxplug.selection.compatibility import check_compatibility
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.graph import Graph, Node
    from onnxplug.options import SessionOptions
    from onnxplug.selection import ChosenEp


class Restorer:
    """What a session does with EPContext nodes, and instead of compiling.

    Args:
        contexts: those of the model; ``None`` if it has none.
        chosen: the EPs of the session.
    """

    def __init__(
        self,
        contexts: Contexts | None,
        chosen: Sequence[ChosenEp],
        options: SessionOptions,
    ) -> None:
        self._contexts: Final = contexts
        self._chosen: Final = chosen
        config = options.config
        self._forbidden = config["session.disable_model_compile"] == "1"
        self._strict = config["session.fail_on_suboptimal_compiled_model"] == "1"
        self._warned: set[str] = set()

    # who gets which node

    def claims(
        self, graph: Graph, candidate: Candidate, report: CapabilityReport
    ) -> CapabilityReport:
        """*report* with every EPContext node claimed for the EP that compiled it, and
        refused for all others, whatever they say."""
        nodes = {node.index: node for node in graph.nodes if is_ep_context(node)}
        if self._contexts is None or not nodes:
            return report
        claims, refusals = list(report.claims), list(report.refusals)
        for index, node in nodes.items():
            found = self._contexts.find(node)
            if found.entry is None and any(index in each.nodes for each in claims):
                continue  # it is another's, and the EP knows what to do with it
            claims = [_without(each, index) for each in claims]
            refusals = [each for each in refusals if each.node != index]
            why = self._why_not(found, candidate)
            if why is not None:
                refusals.append(Refusal(node=index, reason=why))
            else:
                label = found.node.partition
                claims.append(
                    ComputeCapability(nodes=(index,), atomic=True, label=label)
                )
        return CapabilityReport(
            claims=tuple(each for each in claims if each.nodes),
            refusals=tuple(refusals),
        )

    def _why_not(self, found: FoundContext, candidate: Candidate) -> Reason | None:
        if found.node.source != candidate.name:
            why = f"it was compiled by {found.node.source}"
            return Reason(RefusalCode.TAKEN, why)
        if found.entry is None:
            return Reason(
                RefusalCode.OTHER,
                "onnxplug did not write its ep_cache_context, or the first bytes of "
                f"that are damaged; {REMEDY}",
            )
        return None

    def require_eps(self, graph: Graph) -> None:
        """Refuse a graph with EPContext nodes of EPs that the session does not use.

        Raises:
            UnassignedNode: it has some; the error says which EP is needed.
        """
        if self._contexts is None:
            return
        names = [ep.name for ep in self._chosen]
        for node in filter(is_ep_context, graph.nodes):
            source = ContextNode.read(node).source
            if source not in names:
                raise _missing(graph, node, source, names)

    # compiling

    def partition(
        self, graph: Graph, nodes: Sequence[Node], **more: Any
    ) -> GraphPartition:
        """A partition of *nodes*; as ``GraphPartition``."""
        if self._contexts is not None and len(nodes) == 1 and is_ep_context(nodes[0]):
            found = self._contexts.find(nodes[0])
            if found.entry is not None:
                origin = found.node.where
                return ContextPartition(graph, nodes, origin=origin, **more)
        return GraphPartition(graph, nodes, **more)

    def restore(
        self, candidate: Candidate, partition: GraphPartition
    ) -> CompiledPartition | None:
        """What the EP restores; ``None`` if it has to compile.

        Raises:
            ContextError: what was compiled is damaged.
            ContextMismatch: it was compiled by another EP or engine, for another
                device, or with other options.
            ModelRequiresCompilation: the EP has to compile, and may not.
            SessionRefused, LoadCancelled: the EP says so.
            EpError, OutOfMemory: it failed, or what it made is malformed.
        """
        if self._contexts is not None and isinstance(partition, ContextPartition):
            found = self._contexts.find(partition.nodes[0])
            assert found.entry is not None, "claimed by its EP"
            self._check(candidate, partition, found.node, found.entry)
            self._contexts.verify(found)
            return self._restored(candidate, partition, found.node, found.entry)
        if self._forbidden and candidate.provider.serialiser is not None:
            raise ModelRequiresCompilation(
                f"User disabled EP compilation but EP {candidate.name!r} needs to "
                f"compile one or more nodes: {len(partition.nodes)} from "
                f"{describe(partition.nodes[0])} on.  Compile the model ahead, by "
                "`onnxplug compile`, or leave out session.disable_model_compile"
            )
        return None

    def _check(
        self,
        candidate: Candidate,
        partition: ContextPartition,
        node: ContextNode,
        entry: Entry,
    ) -> None:
        """Whether the entry is the EP's, is what the node says, and is of use here."""
        if entry.ep != candidate.name:
            raise damaged(node, f"it was compiled by {entry.ep}")
        why = difference(entry.signature, partition)
        if why:
            raise ContextError(
                f"{node.in_words} of {candidate.name} is not what was compiled: "
                f"{why}; {REMEDY}"
            )
        chosen = next(ep for ep in self._chosen if ep.name == candidate.name)
        self._judge(chosen, node, entry)

    def _restored(
        self,
        candidate: Candidate,
        partition: ContextPartition,
        node: ContextNode,
        entry: Entry,
    ) -> CompiledPartition:
        serialiser = candidate.provider.serialiser
        try:
            if serialiser is None:
                raise Declined(
                    Reason(RefusalCode.OTHER, "it restores no compiled partitions")
                )
            return checked(
                candidate,
                partition,
                lambda: serialiser.restore(partition, entry.data),
                "restore",
            )
        except Declined as error:
            raise ContextMismatch(
                f"{candidate.name} cannot restore {node.in_words}, {node.where}: "
                f"{declined_reason(error.reason).detail}; compile the model anew"
            ) from error

    def _judge(self, ep: ChosenEp, node: ContextNode, entry: Entry) -> None:
        """Ask whether what was compiled can be restored for *ep*."""
        verdict, reason = judge(ep, entry)
        if verdict is Compatibility.OPTIMAL:
            return
        what = f"{node.in_words}, {node.where}, was compiled for {ep.name}"
        if verdict is not Compatibility.RECOMPILE:
            raise ContextMismatch(
                f"{what}, and cannot be used here: {reason}; compile the model anew"
            )
        if self._strict:
            raise ContextMismatch(
                f"{what}, and would be better compiled anew: {reason}; do so, or leave "
                "out session.fail_on_suboptimal_compiled_model"
            )
        if reason not in self._warned:
            self._warned.add(reason)
            warn_user(
                f"{what}, and would be better compiled anew: {reason}; it is used as "
                "it is, since the nodes that it was compiled from are not in the model"
            )


def judge(ep: ChosenEp, entry: Entry) -> tuple[Compatibility, str]:
    """Whether *entry* can be restored by *ep*, and why not.

    Raises:
        EpError: the EP failed to say.
    """
    if len(entry.info) != len(ep.devices):
        return (
            Compatibility.UNSUPPORTED,
            f"it was compiled for {len(entry.info)} devices, and here the EP has "
            f"{len(ep.devices)}",
        )
    options = ep.compiled_in
    for name in sorted({*options, *entry.options}):
        there, here = entry.options.get(name), options.get(name)
        if there != here or type(there) is not type(here):
            return (
                Compatibility.UNSUPPORTED,
                f"it was compiled with option {name!r} as {there!r:.200}, and here it "
                f"is {here!r:.200}",
            )
    suboptimal = ""
    for device, info in zip(ep.devices, entry.info, strict=True):
        verdict, reason = check_compatibility(ep.factory, device, info)
        if verdict is Compatibility.RECOMPILE:
            suboptimal = suboptimal or reason
        elif verdict is not Compatibility.OPTIMAL:
            return verdict, reason
    if suboptimal:
        return Compatibility.RECOMPILE, suboptimal
    return Compatibility.OPTIMAL, ""


def _without(claim: ComputeCapability, index: int) -> ComputeCapability:
    if index not in claim.nodes:
        return claim
    nodes = tuple(node for node in claim.nodes if node != index)
    return ComputeCapability(
        nodes=nodes,
        atomic=claim.atomic,
        keeps_constants=claim.keeps_constants,
        label=claim.label,
    )


def _missing(
    graph: Graph, node: Node, source: str, names: Sequence[str]
) -> UnassignedNode:
    """The error for an EP that a session would need."""
    from onnxplug.selection.available import availability

    registry = outermost(graph).plugins or registry_of_process
    why = f"the session uses {', '.join(names) or 'no EP'}"
    if not source:
        todo = "it does not say which (attribute 'source')"
    elif found := availability(source, registry, discover()):
        todo = f"choose it: providers=[{found.name!r}, …]"
    else:
        todo = f"{found.reason}; {found.remedy}"
    return UnassignedNode(
        f"EPContext node generated by {source!r} is not compatible with any execution "
        f"provider added to the session.  {describe(node)} can be run by that EP only, "
        f"and {why}; {todo}",
        reasons={describe(node): [f"it was compiled by {source!r}; {todo}"]},
    )
