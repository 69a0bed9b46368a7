"""Gives nodes the form that the EPs that get them prefer.

The order: nodes are assigned; those that their EPs would rather have as function
bodies become these; quantised weights become constants for EPs that do not keep them;
EPs rewrite what they get; convolutions and their kin get the layout that EPs want.
After each of these nodes are assigned again.  What is changed is taken back where some
node would be left without an EP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.nodes import describe
from onnxplug.ep import Preferences
from onnxplug.errors import ModelError, UnassignedNode
from onnxplug.graph import Graph, Node
from onnxplug.guard import blaming
from onnxplug.operators import dequantizes, is_control_flow
from onnxplug.partition.assign import Assignment, Candidate, claimed
from onnxplug.partition.changes import Changes
from onnxplug.partition.report import (
    ComputedOnce,
    Expanded,
    Explanation,
    LaidOut,
    Rewritten,
)

if TYPE_CHECKING:
    from onnxplug.prepare.channels_last import Converted
    from onnxplug.prepare.dequantize import Keeps

_DEEPEST: Final = 16
"""How often EPs are asked whether they would rather have what came of bodies as bodies
again; functions can be made of each other."""

_MOST_TIMES: Final = 4
"""How often nodes are assigned anew since weights became constants."""


def settle_weights(
    graph: Graph,
    candidates: Sequence[Candidate],
    explanation: Explanation,
    changes: Changes,
) -> None:
    """Make constants of quantised weights of the main graph, unless an EP keeps them.

    That is what is done first when the graph is compiled for these EPs.
    """
    if not any(_preferences(each).keeps_qdq for each in candidates):
        _dequantize(graph, explanation, changes, "")


def _dequantize(
    graph: Graph, explanation: Explanation, changes: Changes, where: str, *keeps: Keeps
) -> bool:
    """Whether there was something to do."""
    if not any(map(dequantizes, graph.nodes)):
        return False
    from onnxplug.prepare.dequantize import dequantize

    before = graph.nodes
    settled = dequantize(graph, changes.evaluator, *keeps)
    explanation.computed_once += [
        ComputedOnce(where, describe(each.node), each.is_kept) for each in settled
    ]
    return bool(settled) or graph.nodes != before


class Preferred:
    """Assigns the nodes of one graph, in the form that their EPs prefer.

    Args:
        assign: assigns nodes until each has an EP; raises ``UnassignedNode``.
        where: the graph, for reports.
    """

    def __init__(
        self,
        graph: Graph,
        candidates: Sequence[Candidate],
        explanation: Explanation,
        changes: Changes,
        assign: Callable[[], Assignment],
        where: str,
    ) -> None:
        self._graph = graph
        self._candidates = candidates
        self._explanation = explanation
        self._changes = changes
        self._assign = assign
        self._where = where
        said = [*enumerate(map(_preferences, candidates))]
        self._expanding = {
            at: each.expands for at, each in said if each.expands is not None
        }
        self._keeping = {at: each.keeps_qdq for at, each in said if each.keeps_qdq}
        self._rewriting = [at for at, each in said if each.rewrite is not None]
        self._channels_last = [at for at, each in said if each.layout == "NHWC"]
        self._left: set[Node] = set()
        # of what was rewritten or laid out
        self._restore: Callable[[], None] | None = None
        self._laid: set[Node] = set()

    def assigned(self) -> Assignment:
        """The nodes, assigned.

        Raises:
            UnassignedNode: no EP takes some node.
            EpError: an EP failed.
        """
        if not self._keeping:  # whoever gets them
            self._dequantized(None)
        try:
            assignment = self._assign()
        except (UnassignedNode, ModelError) as error:
            if not self.undo(f"otherwise {error}"):
                raise
            assignment = self._assign()
        if self._laid and not self._laid.issubset(self._graph.nodes):
            # it is ONNX's operator again, which may be the EP's or not
            self.undo("some of these nodes were given back")
            assignment = self._assign()
        if self._expanding:
            assignment = self._expanded(assignment)
        assignment = self._with_weights_settled(assignment)
        while self._rewriting:
            assignment = self._rewritten(self._rewriting.pop(0), assignment)
        while self._channels_last:
            assignment = self._laid_out(self._channels_last.pop(0), assignment)
        return assignment

    def undo(self, why: str) -> bool:
        """Take back rewrites and layouts, if there are any; whether there are."""
        if self._restore is None:
            return False
        explanation = self._explanation
        rewritten, laid_out = list(explanation.rewritten), list(explanation.laid_out)
        self._restore()
        self._restore, self._laid = None, set()
        explanation.rewritten += [
            each if each.undone else each._replace(undone=why)
            for each in rewritten[len(explanation.rewritten) :]
        ]
        explanation.laid_out += [
            laid if laid.undone else laid._replace(undone=why)
            for laid in laid_out[len(explanation.laid_out) :]
        ]
        return True

    # quantised weights

    def _with_weights_settled(self, assignment: Assignment) -> Assignment:
        """Make constants of quantised weights for all EPs that do not keep them."""
        for _ in range(_MOST_TIMES):
            if not self._dequantized(assignment if self._keeping else None):
                break
            # who gets what may depend on what is a constant
            assignment = self._assign()
        return assignment

    def _dequantized(self, assignment: Assignment | None) -> bool:
        """Whether there was something to do.

        Args:
            assignment: who runs what; ``None`` if that does not matter.
        """

        def keeps(reader: Node, node: Node) -> bool:
            assert assignment is not None
            owner = assignment.owner[reader.index]
            if owner not in self._keeping or owner != assignment.owner[node.index]:
                return False
            keeping = self._keeping[owner]
            if not callable(keeping):
                return keeping
            with blaming(self._candidates[owner].name, "keeps_qdq"):
                return keeping(self._graph, reader, node)

        return _dequantize(
            self._graph,
            self._explanation,
            self._changes,
            self._where,
            *((keeps,) if assignment is not None else ()),
        )

    # function bodies

    def _expanded(self, assignment: Assignment) -> Assignment:
        """Replace nodes that their EPs would rather have as function bodies."""
        for _ in range(_DEEPEST):
            wanted = self._wanted(assignment)
            if not wanted:
                break
            found = self._try_expanding(wanted)
            assignment = self._expanded_by_kind(wanted) if found is None else found
        return assignment

    def _wanted(self, assignment: Assignment) -> dict[Node, str]:
        """The nodes that are to be replaced, with the EP that wants it."""
        found: dict[Node, str] = {}
        for position, expands in self._expanding.items():
            name = self._candidates[position].name
            with blaming(name, "expands"):
                found.update(
                    (node, name)
                    for node, owner in zip(
                        self._graph.nodes, assignment.owner, strict=True
                    )
                    if owner == position
                    and node not in self._left
                    and not is_control_flow(node)
                    and expands(self._graph, node)
                )
        return found

    def _expanded_by_kind(self, wanted: Mapping[Node, str]) -> Assignment:
        """Expand nodes of each operator and element types by themselves.

        Some of *wanted* have bodies of which no EP runs some node.
        """
        kinds: dict[object, dict[Node, str]] = {}
        for node, name in wanted.items():
            kinds.setdefault(_kind(self._graph, node), {})[node] = name
        for kind in kinds.values():
            there = set(self._graph.nodes)  # the passes may have found some of no use
            kind = {node: name for node, name in kind.items() if node in there}
            if kind and self._try_expanding(kind) is None:
                self._left.update(kind)
        return self._assign()

    def _try_expanding(self, wanted: Mapping[Node, str]) -> Assignment | None:
        """Assign with *wanted* replaced; ``None``, and all as before, if that fails.

        Those that have no body are not asked about again.
        """
        restore = self._checkpoint()
        try:
            self._changes.expand(self._graph, list(wanted))
            left = set(self._graph.nodes)
            self._explanation.expanded += [
                Expanded(self._where, describe(node), (), name)
                for node, name in wanted.items()
                if node not in left
            ]
            assignment = self._assign()
        except (UnassignedNode, ModelError):
            restore()
            return None
        self._left.update(left.intersection(wanted))
        return assignment

    # rewrites

    def _rewritten(self, position: int, assignment: Assignment) -> Assignment:
        """Let an EP rewrite the nodes that it gets.

        Raises:
            EpError: it failed; all is as before.
        """
        from onnxplug.partition.rewriting import rewrite

        graph, candidate = self._graph, self._candidates[position]
        nodes = _owned(graph, assignment, position)
        if not nodes:
            return assignment
        restore, before = self._checkpoint(), set(graph.nodes)
        said: Sequence[str] = ()
        try:
            said = rewrite(candidate, graph, nodes, self._changes.budget)
            if not said:
                return assignment
            found = self._assign()
            undone = _unclaimed(graph, before, found, position)
        except (UnassignedNode, ModelError) as error:
            undone = str(error)
        except BaseException:
            restore()
            raise
        if undone:
            restore()
        elif self._restore is None:
            self._restore = restore
        self._explanation.rewritten.append(
            Rewritten(self._where, candidate.name, tuple(said), undone)
        )
        return self._assign() if undone else found

    # layouts

    def _laid_out(self, position: int, assignment: Assignment) -> Assignment:
        """Give an EP its nodes with channels last, as far as it takes them so.

        Raises:
            EpError: it failed; all is as before.
        """
        from onnxplug.prepare.channels_last import convert, revert
        from onnxplug.prepare.transposes import sink

        graph, candidate = self._graph, self._candidates[position]
        restore, undone, count = self._checkpoint(), "", 0
        kept: list[Converted] = []
        try:
            converted = convert(graph, _owned(graph, assignment, position))
            if not converted:
                return assignment
            taken = claimed(graph, candidate)
            revert(graph, [each for each in converted if each.node not in taken])
            kept = [each for each in converted if each.node in taken]
            ours = [node for each in kept for node in (each.before, each.after)]
            count = sink(graph, ours)
            found = self._assign()
            owned = set(_owned(graph, found, position))
            undone = next(
                (
                    f"it does not claim {describe(each.node)} after all"
                    for each in kept
                    if each.node not in owned
                ),
                "",
            )
        except (UnassignedNode, ModelError) as error:
            undone = str(error)
        except BaseException:
            restore()
            raise
        if undone or not kept:
            restore()
        else:
            self._restore = self._restore or restore
            self._laid.update(each.node for each in kept)
        self._explanation.laid_out.append(
            LaidOut(self._where, candidate.name, "NHWC", len(kept), count, undone)
        )
        return found if kept and not undone else self._assign()

    def _checkpoint(self) -> Callable[[], None]:
        restore = self._changes.checkpoint()
        expanded = len(self._explanation.expanded)
        settled = len(self._explanation.computed_once)
        rewritten = len(self._explanation.rewritten)
        laid_out = len(self._explanation.laid_out)

        def restore_all() -> None:
            restore()
            del self._explanation.expanded[expanded:]
            del self._explanation.computed_once[settled:]
            del self._explanation.rewritten[rewritten:]
            del self._explanation.laid_out[laid_out:]

        return restore_all


def _owned(graph: Graph, assignment: Assignment, position: int) -> list[Node]:
    """The nodes that the EP at *position* gets."""
    return [
        node
        for node, owner in zip(graph.nodes, assignment.owner, strict=True)
        if owner == position
    ]


def _unclaimed(
    graph: Graph, before: Set[Node], assignment: Assignment, position: int
) -> str:
    """Which new node is not with the EP at *position*, in words; empty if all are."""
    for node, owner in zip(graph.nodes, assignment.owner, strict=True):
        if node not in before and owner != position:
            reasons = assignment.passed_over[node.index]
            why = f" ({'; '.join(map(str, reasons))})" if reasons else ""
            return f"it does not claim {describe(node)}, which is new{why}"
    return ""


def _preferences(candidate: Candidate) -> Preferences:
    """What an EP prefers of all nodes.

    Raises:
        EpError: it says nothing of that kind.
    """
    with blaming(candidate.name, "preferences"):
        found = candidate.provider.preferences
        if not isinstance(found, Preferences):
            raise TypeError(f"it is {found!r}; expected an onnxplug.ep.Preferences")
    return found


def _kind(graph: Graph, node: Node) -> object:
    dtypes = tuple(name and graph.value(name).dtype for name in node.inputs)
    return node.domain, node.op_type, dtypes
