"""Why each node runs where it runs, as data that prints well.

Every stage adds what it decided; nothing here decides anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.record import Record
from onnxplug.ep import CompiledPartition, Reason, RefusalCode
from onnxplug.escape import escape
from onnxplug.graph.size import value_nbytes
from onnxplug.guard import blaming
from onnxplug.partition.borders import (
    Border,
    copies_in_words,
    find_borders,
    largest_in_lines,
)
from onnxplug.partition.placements import CopyPlacement, NodePlacement, PassedOver
from onnxplug.partition.specialisations import (
    Specialisations,
    in_lines,
    plural,
    specialisations,
)
from onnxplug.prepare.report import Skipped

if TYPE_CHECKING:
    from onnxplug.ep import PartitionReport
    from onnxplug.graph import Graph
    from onnxplug.partition.difference import PlanDifference


_MOST_NOTES = 5
"""Of a partition in a summary."""


class Pinned(Record):
    """What became of the nodes that a pin matches.

    Attributes:
        entry: the config entry, ``session.place`` or ``session.require``.
        pattern: which nodes.
        ep: the EP's name.
        nodes: those that run, in words.
        gone: those that were computed ahead, or removed, and that nothing runs.
    """

    entry: str
    pattern: str
    ep: str
    nodes: tuple[str, ...]
    gone: tuple[str, ...]


class Places(Record):
    """Where the nodes of a partition are in :attr:`Explanation.nodes`.

    Attributes:
        own: its nodes, in order.
        bodies: those of bodies of control flow that its EP took whole, by the position
            of the node and the attribute.
    """

    own: Sequence[int]
    bodies: Mapping[int, Mapping[str, Places]] = MappingProxyType({})


class PartitionPlacement(Record):
    """One partition.

    Attributes:
        number: from 0 in the order of execution, counted through all graphs.
        graph: as in :class:`NodePlacement`.
        ep, device: who runs it and on what.
        nodes: how many nodes it has.
        operators: how many nodes of each operator.
        tiers: how many nodes run in which of the EP's tiers, if the EP reports it.
        inputs, outputs: values that come in and go out.
        label: the EP's word for it.
        serialised: the EP states how often it runs at once, so concurrent runs wait;
            of what is compiled by input shapes, in what was compiled until now.
        cache: whether it was restored from the cache on disk, or is in it now; empty if
            the EP does not ask for that.
        specialisations: what was compiled by input shapes; ``None`` where one compiled
            partition is for all shapes.
        origin: where it was restored from, as it was compiled before; else empty.
        counts: how many of what the EP has made for shapes that it met, by a word.
    """

    number: int
    graph: str
    ep: str
    device: str
    nodes: int
    operators: dict[str, int]
    tiers: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    label: str = ""
    serialised: bool = False
    cache: str = ""
    specialisations: Specialisations | None = None
    origin: str = ""
    counts: Mapping[str, int] = MappingProxyType({})


class GivenBack(Record):
    """Nodes that an EP claimed and does not run.

    Attributes:
        graph: as in :class:`NodePlacement`.
        ep: the EP that claimed them.
        nodes: the nodes in words.
        reason: why.
    """

    graph: str
    ep: str
    nodes: tuple[str, ...]
    reason: Reason


class NotWritten(Record):
    """A partition whose nodes are nodes in the compiled model that was written.

    Attributes:
        number: the partition's.
        ep: the EP that runs it.
        reason: why the EP did not serialise it.
    """

    number: int
    ep: str
    reason: Reason


class Expanded(Record):
    """A node that was replaced by its operator's function body.

    Attributes:
        graph: as in :class:`NodePlacement`.
        node: the node in words.
        refusals: why no EP took it; empty when one did.
        preferred_by: the EP that would have got it, and would rather have the body.
    """

    graph: str
    node: str
    refusals: tuple[PassedOver, ...]
    preferred_by: str = ""


class Rewritten(Record):
    """What an EP replaced among the nodes that it got.

    Attributes:
        graph: as in :class:`NodePlacement`.
        ep: the EP's name.
        what: what it says that it replaced.
        undone: why all is as it was before; empty when it is not.
    """

    graph: str
    ep: str
    what: tuple[str, ...]
    undone: str = ""


class LaidOut(Record):
    """Nodes that have another layout of data for the EP that gets them.

    Attributes:
        graph: as in :class:`NodePlacement`.
        ep: the EP's name.
        layout: which.
        nodes: how many nodes it is.
        transposes: how many more ``Transpose`` there are for that; less than 0 where
            some of the model's own went.
        undone: why all is as it was before; empty when it is not.
    """

    graph: str
    ep: str
    layout: str
    nodes: int
    transposes: int
    undone: str = ""


class ComputedOnce(Record):
    """A node of quantised weights whose result is a constant for EPs that run floats.

    Attributes:
        graph: as in :class:`NodePlacement`.
        node: the node in words.
        is_kept: it is in a partition, too, of an EP that keeps it.
    """

    graph: str
    node: str
    is_kept: bool


class EpOutcome(Record):
    """What became of an EP that was asked for, or added by default.

    Attributes:
        ep: the EP's name.
        device: the device it drives, in words.
        state: ``used``; ``not needed``, as nothing was left for it; ``claimed
            nothing``; ``given back``, when it claimed nodes and runs none; or
            ``failed``.  Of what a policy was offered also ``passed over``, when it
            would run nothing and the session does without it; and ``not chosen``.
        reason: why, when it failed or runs nothing.
        claimed: how many nodes it claimed, whoever runs them.
    """

    ep: str
    device: str
    state: str
    reason: str = ""
    claimed: int = 0


class Explanation:
    """All decisions of one session; ``str()`` of it is for people.

    Attributes:
        policy: the name of the policy that chose the EPs; empty if none did.
        calibration: what was measured for the policy, or why its static rule chose, in
            words; empty of other policies.
        eps: what became of each EP, in the order of preference.
        claimed: how many nodes each of the session's EPs claimed, by its name.
        partitions, nodes, copies: where everything runs, in order of execution.
        pinned: what became of the nodes that pins match.
        given_back: what EPs claimed and do not run.
        expanded: nodes that became their operators' function bodies.
        computed_once: nodes of quantised weights that became constants, which are
            computed when an EP asks for them.
        rewritten: what EPs replaced among the nodes that they got.
        laid_out: what has another layout for the EP that got it.
        passes: for each pass over the graph, what it changed.
        not_folded: nodes of constants that are computed in each run, and why.
        not_written: partitions that are nodes in the compiled model that was written.
    """

    def __init__(self) -> None:
        self.policy = ""
        self.calibration = ""
        self.eps: list[EpOutcome] = []
        self.claimed: Counter[str] = Counter()
        self.partitions: list[PartitionPlacement] = []
        self.nodes: list[NodePlacement] = []
        self.copies: list[CopyPlacement] = []
        self.pinned: list[Pinned] = []
        self.given_back: list[GivenBack] = []
        self.expanded: list[Expanded] = []
        self.computed_once: list[ComputedOnce] = []
        self.rewritten: list[Rewritten] = []
        self.laid_out: list[LaidOut] = []
        self.passes: dict[str, list[str]] = {}
        self.not_folded: list[Skipped] = []
        self.not_written: list[NotWritten] = []
        self._sources: list[tuple[int, CompiledPartition, Places]] = []
        self._unread: list[tuple[int, Graph]] = []

    def of_changes(self) -> Explanation:
        """What is said here of how graphs were changed, and nothing else."""
        explanation = Explanation()
        explanation.expanded = self.expanded
        explanation.computed_once = self.computed_once
        explanation.rewritten = self.rewritten
        explanation.laid_out = self.laid_out
        return explanation

    def ask_again(
        self, number: int, compiled: CompiledPartition, places: Places
    ) -> None:
        """Let :meth:`refresh` ask *compiled*.

        Args:
            number: the partition's.
            places: of its nodes.
        """
        self._sources.append((number, compiled, places))

    def read_later(self, graph: Graph, first: int) -> None:
        """Let :meth:`refresh` read what the nodes of *graph* read and make, which are
        in order in :attr:`nodes` from *first* on."""
        self._unread.append((first, graph))

    def refresh(self) -> None:
        """Ask for what may have changed in runs: tiers, and what is said of nodes."""
        from onnxplug.ep import PartitionReport

        while self._unread:
            first, graph = self._unread.pop()
            self._read(graph, first)
        for number, compiled, places in self._sources:
            with blaming(self.partitions[number].ep, "explain"):
                report = compiled.report or PartitionReport()
                placed, made = self.partitions[number], specialisations(compiled)
                self.partitions[number] = placed._replace(
                    tiers=dict(Counter(report.tiers.values()).most_common()),
                    specialisations=made,
                    counts=dict(report.counts),
                    serialised=placed.serialised if made is None else made.serialised,
                )
                self._take(report, places)

    def _read(self, graph: Graph, first: int) -> None:
        for place, node in enumerate(graph.nodes, first):
            values = [graph.value(name) if name else None for name in node.outputs]
            self.nodes[place] = self.nodes[place]._replace(
                inputs=(*node.inputs, *node.captures),
                outputs=node.outputs,
                types=tuple(
                    "" if value is None or value.type is None else str(value.type)
                    for value in values
                ),
                nbytes=tuple(
                    None if value is None else value_nbytes(value) for value in values
                ),
            )

    def _take(self, report: PartitionReport, places: Places) -> None:
        """Note what an EP says of nodes."""
        for position, place in enumerate(places.own):
            self.nodes[place] = self.nodes[place]._replace(
                tier=report.tiers.get(position, ""),
                note=report.notes.get(position, ""),
            )
        for position, bodies in report.bodies.items():
            for attribute, body in bodies.items():
                found = places.bodies.get(position, {}).get(attribute)
                if found is not None:
                    self._take(body, found)

    @property
    def borders(self) -> list[Border]:
        """The values that cross from one partition to another, in order."""
        return find_borders(self.nodes, self.copies)

    @property
    def refusals(self) -> list[tuple[NodePlacement, PassedOver]]:
        """Every node with each EP that did not take it."""
        return [(node, passed) for node in self.nodes for passed in node.passed_over]

    def to_html(self, title: str = "", trace: str | None = None) -> str:
        """A page that shows the graph, in colours of EPs, and all that is said here.

        It is whole in itself and fetches nothing.

        Args:
            title: such as the name of the model.
            trace: the path of a trace of the session, for times; see
                ``SessionOptions.enable_profiling``.

        Raises:
            RequirementMissing: onnxplug-cli, or its extra html, is not installed.
            InvalidArgument: *trace* is no trace of a run.
            OSError: *trace* cannot be read.
        """
        from onnxplug.page import page_maker  # which few programs need

        return page_maker()(self, title, trace)

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame, or else the text and the remedy."""
        from onnxplug.page import in_frame

        return in_frame(self.to_html, str(self))

    def difference(self, before: Explanation | Mapping[str, Any]) -> PlanDifference:
        """What is otherwise here than in *before*, an explanation or its dict.

        Raises:
            InvalidArgument: it is neither.
        """
        from onnxplug.partition.difference import difference  # seldom asked for

        if isinstance(before, Explanation):
            before = before.to_dict()
        return difference(before, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {
            "policy": self.policy,
            "calibration": self.calibration,
            "eps": [item._asdict() for item in self.eps],
            "partitions": [_partition(item) for item in self.partitions],
            "nodes": [
                item._asdict() | {"passed_over": _reasons(item.passed_over)}
                for item in self.nodes
            ],
            "borders": [item._asdict() for item in self.borders],
            "copies": [item._asdict() for item in self.copies],
            "pinned": [item._asdict() for item in self.pinned],
            "given_back": [
                item._asdict() | {"reason": _reason(item.reason)}
                for item in self.given_back
            ],
            "expanded": [
                item._asdict() | {"refusals": _reasons(item.refusals)}
                for item in self.expanded
            ],
            "computed_once": [item._asdict() for item in self.computed_once],
            "rewritten": [item._asdict() for item in self.rewritten],
            "laid_out": [item._asdict() for item in self.laid_out],
            "passes": self.passes,
            "not_folded": [item._asdict() for item in self.not_folded],
            "not_written": [
                item._asdict() | {"reason": _reason(item.reason)}
                for item in self.not_written
            ],
        }

    def __str__(self) -> str:
        """A summary: EPs, partitions, copies, and the commonest reasons.

        Each is in one line, whatever names are in it.
        """
        lines = [self.headline]
        if self.policy:
            lines.append(f"  EPs by the policy {self.policy}:")
        if self.calibration:
            lines.append(f"  chosen by {self.calibration}")
        for outcome in self.eps:
            reason = f": {outcome.reason}" if outcome.reason else ""
            if self.policy and outcome.state == "used":
                reason = f": claims {plural(outcome.claimed, 'node')}"
            if self.policy or outcome.state != "used":
                lines.append(f"  {outcome.ep} {outcome.state}{reason}")
        notes = self._notes()
        for part in self.partitions:
            operators = ", ".join(
                f"{op}×{count}" if count > 1 else op
                for op, count in Counter(part.operators).most_common(6)
            )
            more = ", …" if len(part.operators) > 6 else ""
            where = f" in {part.graph}" if part.graph else ""
            cache = f", {part.cache}" if part.cache else ""
            lines.append(
                f"  partition {part.number}{where}: {part.ep} on {part.device}, "
                f"{plural(part.nodes, 'node')} ({operators}{more}){cache}"
                + (", runs wait for each other" if part.serialised else "")
                + (f", restored from what is {part.origin}" if part.origin else "")
            )
            if max(part.counts.values(), default=0) > 1:
                made = ", ".join(f"{n} {what}" for what, n in part.counts.items())
                lines.append(f"    made for shapes: {made}")
            lines += [f"    {line}" for line in notes.get(part.number, ())]
            if part.specialisations is not None:
                lines += [f"    {line}" for line in in_lines(part.specialisations)]
        lines += largest_in_lines(self.borders)
        for copy in self.copies:
            size = "" if copy.nbytes is None else f", {copy.nbytes} bytes"
            lines.append(f"  copy {copy.value}: {copy.source} → {copy.target}{size}")
        for pin in self.pinned:
            gone = f", {len(pin.gone)} computed ahead or removed" if pin.gone else ""
            lines.append(
                f"  {pin.entry} {pin.pattern}={pin.ep}: "
                f"{plural(len(pin.nodes), 'node')}{gone}"
            )
        for back in self.given_back:
            lines.append(
                f"  given back by {back.ep}: {', '.join(back.nodes)} ({back.reason})"
            )
        counts = Counter(
            (passed.ep, node.op_type, str(passed.reason))
            for node, passed in self.refusals
            if passed.reason.code is not RefusalCode.TAKEN
        )
        for (ep, op_type, reason), count in counts.most_common(10):
            lines.append(f"  not on {ep}: {op_type}×{count} ({reason})")
        for each in self.rewritten:
            what = ", ".join(each.what)
            undone = f"; undone: {each.undone}" if each.undone else ""
            lines.append(f"  rewritten by {each.ep}: {what}{undone}")
        for laid in self.laid_out:
            undone = f"; undone: {laid.undone}" if laid.undone else ""
            lines.append(
                f"  {laid.layout} for {laid.ep}: {plural(laid.nodes, 'node')}, "
                f"{laid.transposes:+} Transpose{undone}"
            )
        if self.computed_once:
            others = len(self.computed_once) - 1
            more = f" and {others} more" if others else ""
            first = self.computed_once[0].node
            lines.append(f"  computed once: {first}{more} (quantised weights)")
        reasons = Counter(left.reason for left in self.not_folded)
        for reason, count in reasons.most_common(5):
            first = next(x.node for x in self.not_folded if x.reason == reason)
            more = f" and {count - 1} more" if count > 1 else ""
            lines.append(f"  not computed ahead: {first}{more} ({reason})")
        for left in self.not_written:
            lines.append(
                f"  not compiled into the model: partition {left.number} of {left.ep} "
                f"({left.reason})"
            )
        return "\n".join(map(escape, lines))

    @property
    def headline(self) -> str:
        """How much runs on which EP, and what it costs to have several, in a line."""
        text = plural(len(self.nodes), "node") + _on_what(self)
        if len(self.partitions) > 1:
            text += f"; {len(self.partitions)} partitions"
        if self.copies:
            text += f"; {copies_in_words(self.copies)} in each run"
        return escape(text)

    def _notes(self) -> dict[int, list[str]]:
        """By partition the commonest of what its EP says of nodes."""
        counts: defaultdict[int, Counter[tuple[str, str, str]]] = defaultdict(Counter)
        for node in self.nodes:
            if node.note:
                counts[node.partition][node.op_type, node.tier, node.note] += 1
        return {
            number: [
                f"{op_type}×{count}{f', {tier}' if tier else ''}: {note}"
                for (op_type, tier, note), count in said.most_common(_MOST_NOTES)
            ]
            for number, said in counts.items()
        }


def _partition(part: PartitionPlacement) -> dict[str, Any]:
    found = part.specialisations
    return part._asdict() | {
        "specialisations": None if found is None else found._asdict()
    }


def _on_what(explanation: Explanation) -> str:
    counts = Counter(node.ep for node in explanation.nodes)
    return ": " + ", ".join(f"{n} on {ep}" for ep, n in counts.most_common())


def _reason(reason: Reason) -> dict[str, str]:
    return {"code": str(reason.code), "detail": reason.detail}


def _reasons(passed: Sequence[PassedOver]) -> list[dict[str, Any]]:
    return [{"ep": item.ep, **_reason(item.reason)} for item in passed]
