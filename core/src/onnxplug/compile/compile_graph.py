"""Compiles a graph: assign, cut, and ask each EP to compile its partitions.

An EP that declines a partition, or whose partition is not worth its copies, loses the
nodes to the next EP that claims them, and the graph is cut anew; partitions that come
out the same are not compiled twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug import domains
from onnxplug.ep import (
    CompiledPartition,
    Declined,
    Reason,
    describe,
)
from onnxplug.errors import (
    ModelError,
    UnassignedNode,
    UnknownOperator,
    UnsupportedModel,
)
from onnxplug.graph import Graph, Node
from onnxplug.guard import close_after, close_all
from onnxplug.operators import is_control_flow, is_defined, why_unknown
from onnxplug.options import SessionOptions
from onnxplug.partition import (
    Assignment,
    Candidate,
    Cut,
    GraphPartition,
    assign,
    cut,
    find_unprofitable,
)
from onnxplug.partition.assign import ask
from onnxplug.partition.changes import Changes
from onnxplug.partition.compile_partition import (
    compile_partition,
    declined_nodes,
    declined_reason,
)
from onnxplug.partition.preferences import Preferred
from onnxplug.partition.report import (
    Expanded,
    Explanation,
    GivenBack,
    NodePlacement,
    PartitionPlacement,
    PassedOver,
)
from onnxplug.prepare import why_not_expanded
from onnxplug.run.compiled import CompiledGraph, CompiledUnit
from onnxplug.run.concurrency_limit import ConcurrencyLimit
from onnxplug.run.profiling import Profile, stage

if TYPE_CHECKING:
    from onnxplug.compile.ep_context.restore import Restorer
    from onnxplug.ep import CapabilityReport
    from onnxplug.partition.survey import Answers

_DEEPEST: Final = 64
"""How often what came of functions may be replaced by functions again."""


def compile_graph(
    graph: Graph,
    candidates: Sequence[Candidate],
    explanation: Explanation,
    *,
    changes: Changes,
    options: SessionOptions,
    where: str = "",
    profile: Profile | None = None,
    answers: Answers | None = None,
    restorer: Restorer | None = None,
) -> CompiledGraph:
    """Compile *graph* and the bodies within, noting each decision in *explanation*.

    Args:
        answers: what the EPs said of these graphs before, if they were asked.
        restorer: restores what was compiled before.

    Raises:
        LoadCancelled: *options* say so.
        UnassignedNode: no EP runs some node, and it is not a function either.
        EpError: an EP failed in ``get_capability`` or ``compile``.
        SessionRefused: an EP does not want the session to exist.
    """
    compiler = _Compiler(
        graph,
        candidates,
        explanation,
        changes,
        options,
        where,
        profile,
        answers,
        restorer,
    )
    try:
        compiled = compiler.compile()
    except BaseException as error:
        close_after(error, compiler.close_unused)
        raise
    try:
        compiler.close_unused()
    except BaseException as error:
        close_after(error, lambda: close_all(compiled.closers()))
        raise
    return compiled


class _Compiler:
    def __init__(
        self,
        graph: Graph,
        candidates: Sequence[Candidate],
        explanation: Explanation,
        changes: Changes,
        options: SessionOptions,
        where: str,
        profile: Profile | None,
        answers: Answers | None,
        restorer: Restorer | None,
    ) -> None:
        self.graph = graph
        self.candidates = candidates
        self.explanation = explanation
        self.changes = changes
        self.options = options
        self.where = where
        self.profile = profile
        self.answers = answers
        self.restorer = restorer
        self.excluded: dict[tuple[int, Node], Reason] = {}
        self.done: dict[tuple[int, *tuple[object, ...]], CompiledPartition] = {}
        # what was done with the cache, by the identity of what is in `done`
        self.cached: dict[int, str] = {}
        self.given_back: list[tuple[int, list[Node], Reason]] = []
        self.unprofitable: set[tuple[int, Node]] = set()
        self.kept: set[Node] = set()
        self.used: set[int] = set()
        self.expansions = 0

    def compile(self) -> CompiledGraph:
        """Divide the graph until all of its partitions are compiled.

        Each time round, nodes have other EPs to go to, or are other nodes.
        """
        preferred = Preferred(
            self.graph,
            self.candidates,
            self.explanation,
            self.changes,
            self._assigned,
            self.where,
        )
        try:
            return self._divided(preferred)
        except BaseException as error:
            # whoever goes on without the EP that failed needs what it rewrote
            preferred.undo(f"{type(error).__name__}: {error}")
            raise

    def _divided(self, preferred: Preferred) -> CompiledGraph:
        while True:
            assignment = preferred.assigned()
            cuts = cut(self.graph, assignment)
            if self._unprofitable_given_back(assignment, cuts):
                continue
            units = self._compile_all(cuts)
            if units is not None:
                return self._finished(assignment, cuts, units)

    def _assigned(self) -> Assignment:
        """All nodes assigned, functions expanded where no EP takes them.

        Raises:
            UnassignedNode, UnsupportedModel: some node cannot be.
        """
        expansions = self.expansions
        try:
            while True:
                self.options.check_load()
                assignment = self._assign()
                if not (self._kept_after_all(assignment) or self._expanded(assignment)):
                    return assignment
        except (ModelError, UnassignedNode):
            self.expansions = expansions  # who asked for them takes them back
            raise

    def _assign(self) -> Assignment:
        answers = self.answers
        if self.restorer is not None:
            self.restorer.require_eps(self.graph)
        with stage(self.profile, "assign nodes", {"graph": self.where}):
            assignment = assign(
                self.graph,
                self.candidates,
                where=self.where,
                excluded=self.excluded,
                refused=answers.refused if answers is not None else None,
                get_report=self._report_of,
            )
        if answers is not None:
            answers.forget()  # EPs are asked again when nodes have gone elsewhere
        return assignment

    def _report_of(self, graph: Graph, candidate: Candidate) -> CapabilityReport:
        get_report = ask if self.answers is None else self.answers.ask
        report = get_report(graph, candidate)
        if self.restorer is None:
            return report
        return self.restorer.claims(graph, candidate, report)

    def _finished(
        self, assignment: Assignment, cuts: Sequence[Cut], units: list[CompiledUnit]
    ) -> CompiledGraph:
        """The compiled graph, reported, with the bodies of the host's nodes."""
        result = CompiledGraph(self.graph, units, self.where)
        self.used = {id(unit.compiled) for unit in units}
        try:
            self._report(assignment, cuts, units)
            for unit in units:
                if unit.candidate is None:
                    self._compile_bodies(unit)
        except BaseException as error:
            close_after(error, lambda: close_all(result.closers()))
            raise
        return result

    def close_unused(self) -> None:
        """Close what was compiled on the way and is in no unit."""
        close_all(
            (self.candidates[ep].name, compiled.close)
            for (ep, *_), compiled in self.done.items()
            if id(compiled) not in self.used
        )

    def _unprofitable_given_back(
        self, assignment: Assignment, cuts: Sequence[Cut]
    ) -> bool:
        """Give back partitions that are not worth their copies, if there are any."""
        found = find_unprofitable(self.graph, assignment, cuts, self.candidates)
        found = {key: why for key, why in found.items() if key[1] not in self.kept}
        self.unprofitable.update(found)
        self._give_back(found)
        return bool(found)

    def _kept_after_all(self, assignment: Assignment) -> bool:
        """Whether nodes given back for their copies' sake go to no other EP after all.

        The EP that claimed them cannot take them alone, say.  They stay where they
        were.
        """
        unassigned = {self.graph.nodes[index] for index in assignment.unassigned}
        kept = {key for key in self.unprofitable if key[1] in unassigned}
        if not kept:
            return False
        self.unprofitable -= kept
        self.kept |= {node for _, node in kept}
        for key in kept:
            del self.excluded[key]
        self.given_back = [
            (position, left, reason)
            for position, nodes, reason in self.given_back
            if (left := [node for node in nodes if (position, node) in self.excluded])
        ]
        return True

    def _expanded(self, assignment: Assignment) -> bool:
        """Expand the functions among the unassigned nodes, if there are any."""
        nodes = [
            self.graph.nodes[index]
            for index in assignment.unassigned
            if not is_control_flow(self.graph.nodes[index])
        ]
        if not nodes:
            return False
        refusals = {node: tuple(assignment.passed_over[node.index]) for node in nodes}
        self.expansions += 1
        if self.expansions > _DEEPEST:
            raise UnsupportedModel(
                f"{describe(nodes[0])} came of operators whose functions are made of "
                f"each other, more than {_DEEPEST} deep, which is onnxplug's limit; "
                "does a function call itself?"
            )
        if self.changes.expand(self.graph, nodes):
            left = set(self.graph.nodes)
            self.explanation.expanded.extend(
                Expanded(self.where, describe(node), refusals[node])
                for node in nodes
                if node not in left
            )
            return True
        raise self._unassigned(nodes, refusals)

    def _unassigned(
        self,
        nodes: Sequence[Node],
        refusals: Mapping[Node, Sequence[PassedOver]],
    ) -> UnassignedNode:
        where = f" in {self.where}" if self.where else ""
        kind: type[UnassignedNode] = UnassignedNode
        lines = []
        for node in nodes[:5]:
            lines.append(f"no EP runs {describe(node)}{where}:")
            lines += [f"  {passed}" for passed in refusals[node]]
            if domains.find(self.graph, node) is None and not is_defined(node):
                kind = UnknownOperator
            unknown = why_unknown(node)
            if unknown:
                lines.append(f"  and {unknown}")
            if not self.graph.opset(node.domain):
                lines.append(
                    f"  and the model imports no version of the domain "
                    f"{node.domain or 'ai.onnx'!r}, which its opset_import should have"
                )
            reason = why_not_expanded(self.graph, node)
            if reason is not None:
                lines.append(f"  and {reason}")
        if len(nodes) > 5:
            lines.append(f"and {len(nodes) - 5} more nodes")
        refused = [each for each in self.explanation.expanded if each.refusals]
        for expanded in refused[:5]:
            lines.append(f"{expanded.node} was replaced by its function body, since:")
            lines += [f"  {passed}" for passed in expanded.refusals]
        return kind(
            "\n".join(lines),
            reasons={
                describe(node): [str(passed) for passed in refusals[node]]
                for node in nodes
            },
        )

    def _give_back(self, nodes: Mapping[tuple[int, Node], Reason]) -> None:
        self.excluded.update(nodes)
        groups: dict[tuple[int, Reason], list[Node]] = {}
        for (position, node), reason in nodes.items():
            groups.setdefault((position, reason), []).append(node)
        self.given_back.extend(
            (position, members, reason)
            for (position, reason), members in groups.items()
        )

    def _compile_all(self, cuts: Sequence[Cut]) -> list[CompiledUnit] | None:
        """The units of *cuts*; ``None`` when an EP declined one of them.

        The others are compiled all the same: most of them come out the same when the
        graph is cut anew, and EPs are asked once for all that is declined.
        """
        uses, given = self.graph.uses(), frozenset(self.graph.outputs)
        options = self.options  # which partitions keep, and not all that is held here
        declined = False
        units = []
        make_partition: Callable[..., GraphPartition] = GraphPartition
        if self.restorer is not None:
            make_partition = self.restorer.partition
        for part in cuts:
            self.options.check_load()
            partition = make_partition(
                self.graph,
                [self.graph.nodes[index] for index in part.nodes],
                label=part.label,
                covers_model=len(cuts) == 1 and self.graph.parent is None,
                uses=uses,
                given=given,
                is_cancelled=lambda: options.is_load_cancelled,
            )
            if part.ep is None:
                units.append(CompiledUnit(partition, None, None, None, {}))
                continue
            candidate = self.candidates[part.ep]
            key = (part.ep, partition.nodes, partition.inputs, partition.outputs)
            if key not in self.done:
                try:
                    with stage(
                        self.profile,
                        f"compile from {describe(partition.nodes[0])} on",
                        {"provider": candidate.name, "nodes": len(partition.nodes)},
                    ):
                        self.done[key] = self._compile_one(part.ep, partition)
                except Declined as error:
                    reason = declined_reason(error.reason)
                    nodes = declined_nodes(error, candidate, partition)
                    self._give_back({(part.ep, node): reason for node in nodes})
                    declined = True
                    continue
            compiled = self.done[key]
            limit = compiled.max_concurrent_runs
            shared = None if limit is None else ConcurrencyLimit(limit)
            units.append(CompiledUnit(partition, candidate, compiled, shared, {}))
        return None if declined else units

    def _compile_one(
        self, position: int, partition: GraphPartition
    ) -> CompiledPartition:
        candidate = self.candidates[position]
        if self.restorer is not None:
            restored = self.restorer.restore(candidate, partition)
            if restored is not None:
                return restored
        if not candidate.provider.specialises:
            said: list[str] = []
            compiled = compile_partition(candidate, partition, said.append)
            self.cached[id(compiled)] = "".join(said)
            return compiled
        from onnxplug.specialise.specialised import specialised  # which few EPs ask for

        nodes = partition.nodes
        others = [
            self.candidates[number]
            for number in range(position + 1, len(self.candidates))
            if not any((number, node) in self.excluded for node in nodes)
        ]
        return specialised(
            candidate, partition, others, self.options.config, self.profile
        )

    def _compile_bodies(self, unit: CompiledUnit) -> None:
        node = unit.partition.nodes[0]
        for attribute, body in node.subgraphs.items():
            where = f"{describe(node)}.{attribute}"
            unit.bodies[attribute] = compile_graph(
                body,
                self.candidates,
                self.explanation,
                changes=self.changes,
                options=self.options,
                where=f"{self.where}/{where}" if self.where else where,
                profile=self.profile,
                answers=self.answers,
                restorer=self.restorer,
            )

    def _report(
        self,
        assignment: Assignment,
        cuts: Sequence[Cut],
        units: list[CompiledUnit],
    ) -> None:
        explanation = self.explanation
        for candidate, count in zip(self.candidates, assignment.claimed, strict=True):
            explanation.claimed[candidate.name] += count
        explanation.given_back.extend(
            GivenBack(
                self.where,
                self.candidates[position].name,
                tuple(describe(node) for node in nodes),
                reason,
            )
            for position, nodes, reason in self.given_back
        )
        explanation.given_back.extend(assignment.given_back)
        number_of: dict[int, int] = {}
        first = len(explanation.nodes)
        places = {node: first + n for n, node in enumerate(self.graph.nodes)}
        for position, (part, unit) in enumerate(zip(cuts, units, strict=True)):
            if unit.candidate is None or unit.compiled is None:
                continue
            number = len(explanation.partitions)
            units[position] = unit._replace(number=number)
            explanation.ask_again(
                number, unit.compiled, [places[node] for node in unit.partition.nodes]
            )
            number_of |= dict.fromkeys(part.nodes, number)
            explanation.partitions.append(
                PartitionPlacement(
                    number=number,
                    graph=self.where,
                    ep=unit.candidate.name,
                    device=unit.candidate.device,
                    nodes=len(part.nodes),
                    operators=dict(Counter(n.op_type for n in unit.partition.nodes)),
                    tiers={},  # as refresh() finds them
                    inputs=unit.partition.inputs,
                    outputs=unit.partition.outputs,
                    label=part.label,
                    serialised=unit.compiled.max_concurrent_runs is not None,
                    cache=self.cached.get(id(unit.compiled), ""),
                    origin=unit.partition.origin,
                )
            )
        for node in self.graph.nodes:
            owner = assignment.owner[node.index]
            explanation.nodes.append(
                NodePlacement(  # by position, as there is one for each node
                    self.where,
                    describe(node),
                    node.op_type,
                    node.domain,
                    node.name,
                    "host" if owner is None else self.candidates[owner].name,
                    number_of.get(node.index, -1),
                    tuple(assignment.passed_over[node.index]),
                    "",  # the tier and the note, as refresh() finds them
                    "",
                )
            )
