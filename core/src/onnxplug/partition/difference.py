"""What is otherwise in one plan than in another one: by the EPs that were named, their
versions, or the shapes of inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug.errors import InvalidArgument
from onnxplug.escape import escape
from onnxplug.partition.specialisations import plural

_MOST: Final = 20
"""Groups of nodes in a summary."""


class Moved(Record):
    """A node that is in both plans, and on another EP.

    Attributes:
        graph, node, op_type: as in :class:`NodePlacement`.
        before, after: the EPs that run it.
        reason: why the EP from before does not run it any more, as it says; empty if it
            was not asked.
    """

    graph: str
    node: str
    op_type: str
    before: str
    after: str
    reason: str


class PlanDifference(Record):
    """What is otherwise in a plan than in the one before.

    Attributes:
        moved: nodes on another EP.
        gone, new: nodes that only one of both has, in words with the way to them, such
            as what is computed ahead where shapes are known.
        retyped: how many nodes make values of other types or shapes.
        retiered: how many nodes run in another tier of the same EP.
        partitions, copies: how many, before and after.
        copied_bytes: in each run, as far as known, before and after.
    """

    moved: tuple[Moved, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    retyped: int
    retiered: int
    partitions: tuple[int, int]
    copies: tuple[int, int]
    copied_bytes: tuple[int, int]

    def __bool__(self) -> bool:
        """Whether anything is otherwise."""
        changed = self.moved or self.gone or self.new or self.retyped or self.retiered
        counts = (self.partitions, self.copies, self.copied_bytes)
        return bool(changed) or any(before != after for before, after in counts)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return self._asdict() | {"moved": [each._asdict() for each in self.moved]}

    def __str__(self) -> str:
        """For people; each is in one line, whatever names are in it."""
        if not self:
            return "no difference"
        lines = []
        for noun, (before, after) in (
            ("partitions", self.partitions),
            ("copies", self.copies),
            ("bytes copied in each run", self.copied_bytes),
        ):
            if before != after:
                lines.append(f"{noun}: {before} → {after}")
        groups = Counter(
            (each.op_type, each.before, each.after, each.reason) for each in self.moved
        )
        for (op_type, origin, target, reason), count in groups.most_common(_MOST):
            why = f" ({reason})" if reason else ""
            lines.append(f"{op_type}×{count}: {origin} → {target}{why}")
        if rest := groups.most_common()[_MOST:]:
            lines.append(f"and {plural(sum(n for _, n in rest), 'other node')} moved")
        for what, nodes in (("gone", self.gone), ("new", self.new)):
            if nodes:
                more = ", …" if len(nodes) > _NAMED else ""
                lines.append(
                    f"{what}: {plural(len(nodes), 'node')} "
                    f"({', '.join(nodes[:_NAMED])}{more})"
                )
        if self.retyped:
            lines.append(f"{plural(self.retyped, 'node')} of other types or shapes")
        if self.retiered:
            lines.append(f"{plural(self.retiered, 'node')} in another tier")
        return "\n".join(map(escape, lines))


_NAMED: Final = 5
"""Nodes that are gone, or new, in a summary."""


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> PlanDifference:
    """What is otherwise in the plan *after* than in that *before*.

    Nodes are the same that have the same graph, operator and name, or first output
    where they have none.

    Args:
        before, after: what ``Explanation.to_dict()`` gives, or gave to a file of JSON.

    Raises:
        InvalidArgument: one of them is something else.
    """
    earlier, later = _nodes(before, "before"), _nodes(after, "after")
    both = [key for key in later if key in earlier]
    moved = tuple(
        Moved(
            later[key]["graph"],
            later[key]["node"],
            later[key]["op_type"],
            earlier[key]["ep"],
            later[key]["ep"],
            _reason(later[key]["passed_over"], earlier[key]["ep"]),
        )
        for key in both
        if earlier[key]["ep"] != later[key]["ep"]
    )
    return PlanDifference(
        moved,
        tuple(_in_words(earlier[key]) for key in earlier if key not in later),
        tuple(_in_words(later[key]) for key in later if key not in earlier),
        sum(list(earlier[k]["types"]) != list(later[k]["types"]) for k in both),
        sum(
            earlier[k]["ep"] == later[k]["ep"]
            and earlier[k]["tier"] != later[k]["tier"]
            for k in both
        ),
        (len(before["partitions"]), len(after["partitions"])),
        (len(before["copies"]), len(after["copies"])),
        (_copied(before), _copied(after)),
    )


_KEYS: Final = ("graph", "node", "op_type", "ep", "types", "tier", "passed_over")


def _nodes(
    plan: Mapping[str, Any], which: str
) -> dict[tuple[str, str, int], Mapping[str, Any]]:
    """The nodes of *plan*; of those of one name, by which of them it is, too."""
    try:
        found: dict[tuple[str, str, int], Mapping[str, Any]] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for node in plan["nodes"]:
            key = node["graph"], node["node"]
            found[*key, counts[key]] = {name: node[name] for name in _KEYS}
            counts[key] += 1
        for each in (*plan["partitions"], *plan["copies"]):
            each["graph"]
        _copied(plan)
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidArgument(
            f"the plan {which} is not what explain() has as a dict: "
            f"{type(error).__name__}: {error}.  Save it with this version, by "
            "`onnxplug explain MODEL --json`, without --why"
        ) from error
    return found


def _copied(plan: Mapping[str, Any]) -> int:
    return sum(copy["nbytes"] or 0 for copy in plan["copies"])


def _reason(passed_over: Sequence[Mapping[str, str]], ep: str) -> str:
    for passed in passed_over:
        if passed["ep"] == ep:
            detail = passed["detail"]
            return f"{passed['code']}: {detail}" if detail else passed["code"]
    return ""


def _in_words(node: Mapping[str, Any]) -> str:
    return f"{node['node']} in {node['graph']}" if node["graph"] else str(node["node"])
