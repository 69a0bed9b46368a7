"""Which nodes of a graph a library takes, and in which groups it may have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_native.functions.capability import Group, SupportInfo
from onnxplug_native.functions.graph import GraphView
from onnxplug_native.regions import Region, regions

if TYPE_CHECKING:
    from onnxplug_native.functions.kernel_registry import KernelRegistry
    from onnxplug_native.interface.structure import Structure
    from onnxplug_native.layout import Layout
    from onnxplug_native.measured import Judge


class Claims:
    """Asks a library, and asks again about parts of groups that cannot be as they are.

    These are groups of which nodes are refused, and those that a path leaves and comes
    back to, which nobody could run as one.
    """

    def __init__(
        self,
        who: str,
        structure: Structure,
        registry: KernelRegistry | None,
        judge: Judge,
        layout: Layout,
    ) -> None:
        self._who = who
        self._structure = structure
        self._registry = registry
        self._judge = judge
        self._layout = layout

    def find(self, view: GraphView) -> tuple[list[Group], dict[int, ep.Reason]]:
        """The groups, and why nodes that the library takes are in none of them.

        Raises:
            OnnxplugError: the library fails, and says why, or takes a node twice or one
                that it was not asked about.
        """
        graph = view.source
        groups = self._ask(view)
        taken = {index for group in groups for index in group.nodes}
        wrong = self._layout.refusals(graph, taken)
        wrong = {**self._judge.refusals(graph, taken), **wrong}
        wrong = {**wrong, **_with_bodies(graph, groups)}
        alone = ep.Reason(
            ep.RefusalCode.OP,
            f"{self._who} does not take it without the nodes beside it that it is not "
            "to have",
        )
        found = [made for group in groups for made in self._whole(view, group, wrong)]
        kept = {index for group in found for index in group.nodes}
        reasons = dict.fromkeys(taken - kept, alone) | wrong
        return found, reasons

    def _whole(
        self, view: GraphView, group: Group, wrong: dict[int, ep.Reason]
    ) -> Iterator[Group]:
        """*group*, or what the library takes of its parts."""
        own = set(group.nodes) - wrong.keys()
        span = range(min(group.nodes), max(group.nodes) + 1)
        if len(span) == len(own):
            yield group
            return
        parts = list(regions(view.source, span, set(span) - own))
        if len(parts) == 1 and len(own) == len(group.nodes):
            yield group
            return
        for part in parts:
            with self._region(view, part) as smaller:
                for each in self._ask(smaller):
                    yield from self._whole(view, each, wrong)

    def _ask(self, view: GraphView) -> list[Group]:
        """The groups that the library takes of a graph, or of a part of one."""
        info = SupportInfo(view, self._registry)
        try:
            self._structure.call("GetCapability", view.address, info.address)
            groups = info.groups
        finally:
            info.release()
        asked = {each.node.index: each.node for each in view.nodes}
        taken: set[int] = set()
        for index in (index for group in groups for index in group.nodes):
            if index not in asked:
                node = view.source.nodes[index]
                raise ep.EPFail(
                    f"{self._who} takes {describe(node)}, about which it was not asked"
                )
            if index in taken:
                raise ep.EPFail(
                    f"{self._who} takes {describe(asked[index])} in two groups"
                )
            taken.add(index)
        return groups

    @contextmanager
    def _region(self, around: GraphView, region: Region) -> Iterator[GraphView]:
        """The view of a part of a graph."""
        view = GraphView(
            around.source,
            around.model,
            parent=around.parent,
            nodes=region.nodes,
            inputs=region.inputs,
            outputs=region.outputs,
        )
        try:
            yield view
        finally:
            view.release()


def _with_bodies(graph: ep.Graph, groups: list[Group]) -> dict[int, ep.Reason]:
    """Why nodes with bodies are not left to kernels.

    In ONNX Runtime their kernels are the host's own, made with what a library gives for
    its memory: here the host runs bodies itself.
    """
    reason = ep.Reason(
        ep.RefusalCode.OTHER,
        "the host runs its bodies; the library may have what is in them",
    )
    return {
        index: reason
        for group in groups
        if not group.is_fused
        for index in group.nodes
        if graph.nodes[index].subgraphs
    }
