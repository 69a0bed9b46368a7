"""The model's graph made ready for partitioning, whichever EPs will run it.

Each pass is one file and can be switched off by name; the main graph and all bodies
of control flow are rewritten in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.errors import OptionError
from onnxplug.graph import Graph, Model, Node
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare.attributes import check_attributes
from onnxplug.prepare.budget import Budget, Limits
from onnxplug.prepare.report import PassRecord, Report, Skipped
from onnxplug.shapes.stated import has_sizes
from onnxplug.suggest import did_you_mean

if TYPE_CHECKING:
    from onnxplug.prepare.fold import Evaluate

__all__ = [
    "PASSES",
    "Budget",
    "Skipped",
    "Limits",
    "PassRecord",
    "Report",
    "expand_nodes",
    "infer_types",
    "prepare",
    "why_not_expanded",
]


class Task(Record):
    """What a pass is given.

    Attributes:
        model: rewritten in place.
        evaluate: computes nodes of constants; ``None`` when nothing can.
        sizes_changed: sizes became known that may tell others.
        budget: what is left to spend.
    """

    model: Model
    evaluate: Evaluate | None
    sizes_changed: bool
    budget: Budget


# Each pass is imported when there is something for it to do: a small model that states
# its types is ready to run before half of them would be read.


def _inline(task: Task) -> list[str]:
    if not task.model.functions:
        return []
    from onnxplug.prepare.inline import inline_functions

    return inline_functions(task.model, task.budget)


def _constants(task: Task) -> list[str]:
    if not any(node.op_type == "Constant" for node in _nodes(task)):
        return []
    from onnxplug.prepare.constants import lift_constants

    return lift_constants(task.model.graph)


def _rewrite(task: Task) -> list[str]:
    if not any(node.domain for node in _nodes(task)):
        return []
    from onnxplug.prepare.rewrite import rewrite

    return rewrite(task.model.graph, task.budget)


def _infer(task: Task) -> list[str]:
    if not task.sizes_changed and all(
        has_sizes(graph.types.get(name), made_up=True)
        for graph in all_graphs(task.model.graph)
        for node in graph.nodes
        for name in node.outputs
        if name
    ):
        from onnxplug.prepare.agreement import check_agreement

        check_agreement(task.model.graph)
        return []
    return infer_types(task.model.graph, every_size=task.sizes_changed)


def _fold(task: Task) -> list[str]:
    if not any(
        node.op_type == "CastLike"
        or node.op_type in having("shape_only")
        or all(
            name is None or (node.graph and node.graph.weight(name))
            for name in node.inputs
        )
        for node in _nodes(task)
    ):
        task.budget.skipped.clear()
        return []
    from onnxplug.prepare.fold import fold

    return fold(task.model.graph, task.evaluate, task.budget)


def _branches(task: Task) -> list[str]:
    if not any(node.op_type == "If" for node in _nodes(task)):
        return []
    from onnxplug.prepare.branches import take_branches

    return take_branches(task.model.graph, task.budget)


def _duplicates(task: Task) -> list[str]:
    if sum(1 for _ in _nodes(task)) < 2:
        return []
    from onnxplug.prepare.duplicates import merge_duplicates

    return merge_duplicates(task.model.graph)


def _eliminate(task: Task) -> list[str]:
    from onnxplug.prepare.eliminate import eliminate

    return eliminate(task.model.graph)


def _nodes(task: Task) -> Iterable[Node]:
    return (node for graph in all_graphs(task.model.graph) for node in graph.nodes)


Pass: TypeAlias = Callable[[Task], list[str]]

PASSES: Final[Mapping[str, Pass]] = {
    "inline": _inline,
    "constants": _constants,
    "rewrite": _rewrite,
    "infer": _infer,
    "fold": _fold,
    "branches": _branches,
    "duplicates": _duplicates,
    "eliminate": _eliminate,
}
"""The passes by name, in the order in which they run."""

_FIRST_TO_READ_NODES: Final = "constants"
"""The pass before which nodes are checked; those of functions are there then."""

_MAX_ROUNDS: Final = 8
"""A round can make room for another; real models need two or three."""


def prepare(
    model: Model,
    *,
    evaluate: Evaluate | None,
    disabled: Collection[str] = (),
    budget: Budget | None = None,
) -> Report:
    """Rewrite *model* in place until the passes find nothing more to do.

    Args:
        model: as loaded, or prepared before: a second time changes nothing.
        evaluate: computes a node whose inputs are all constants; with ``None`` only
            what follows from shapes is folded.
        disabled: names of :data:`PASSES` to leave out, or of ONNX Runtime's optimizers
            that do the same; those that do what no pass does are left out anyway.
        budget: what may be spent; by default as much as one session may.

    Raises:
        OptionError: a name in *disabled* does not exist.
        InvalidModel: the model's types or functions contradict themselves, or a node
            has attributes or constants with which it cannot run.
        UnsupportedModel: a function needs another opset than the model has, or its
            calls become too many nodes.
    """
    budget = budget or Budget()
    disabled = _own_names(disabled)
    records: list[PassRecord] = []
    sizes_changed = False
    for round in range(1, _MAX_ROUNDS + 1):
        rewritten = False
        for name, run in PASSES.items():
            if name == _FIRST_TO_READ_NODES and round == 1:
                check_attributes(model.graph)
                _check_bodies(model.graph)
            if name in disabled:
                continue
            if name == "infer" and round > 1 and not sizes_changed:
                continue
            budget.check()
            changed = run(Task(model, evaluate, sizes_changed, budget))
            left = tuple(budget.skipped) if name == "fold" else ()
            records.append(PassRecord(name, round, tuple(changed), left))
            if name == "infer":
                sizes_changed = False
            elif name in ("fold", "branches"):
                sizes_changed = sizes_changed or bool(changed)
            rewritten = rewritten or (bool(changed) and name != "infer")
        if not rewritten:
            break
    return Report(
        passes=tuple(records),
        disabled=tuple(name for name in PASSES if name in disabled),
    )


def _check_bodies(graph: Graph) -> None:
    if any(node.subgraphs for node in graph.nodes):
        from onnxplug.prepare.bodies import check_bodies

        check_bodies(graph)


def infer_types(graph: Graph, *, every_size: bool = False) -> list[str]:
    """Complete what is known of values; see :mod:`onnxplug.prepare.infer`."""
    from onnxplug.prepare.infer import infer_types

    return infer_types(graph, every_size=every_size)


def expand_nodes(
    graph: Graph, nodes: Iterable[Node], budget: Budget | None = None
) -> list[Node]:
    """Replace nodes by function bodies; see :mod:`onnxplug.prepare.expand`."""
    from onnxplug.prepare.expand import expand_nodes

    return expand_nodes(graph, nodes, budget)


def why_not_expanded(graph: Graph, node: Node) -> str | None:
    """Why there is no function body; see :mod:`onnxplug.prepare.expand`."""
    from onnxplug.prepare.expand import why_not_expanded

    return why_not_expanded(graph, node)


def _own_names(disabled: Collection[str]) -> set[str]:
    """The passes that are meant by *disabled*."""
    own = {name for name in disabled if name in PASSES}
    for name in disabled:
        if name in own:
            continue
        from onnxplug import foreign  # which few programs name

        if name not in foreign.PASSES:
            near = did_you_mean(name, [*PASSES, *foreign.PASSES])
            raise OptionError(
                f"there is no pass {name!r} to switch off{near}; "
                f"the passes are {', '.join(PASSES)}"
            )
        meant = foreign.PASSES[name]
        own |= {meant} if meant else set()
    return own
