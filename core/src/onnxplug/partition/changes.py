"""How a model's graphs are changed while EPs are asked for them, and changed back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxplug.graph import Graph, Model, Node
from onnxplug.graph.scopes import outermost
from onnxplug.graph.snapshot import Snapshot
from onnxplug.prepare import Budget, Report, expand_nodes, infer_types

if TYPE_CHECKING:
    from onnxplug.partition.evaluate import Evaluator


class Changes:
    """Changes to the graphs of one model.

    Args:
        prepare: runs the passes over the model.
        evaluator: what computes nodes of constants now, if something does.

    Attributes:
        budget: what may be spent.
        reports: of each time that the model was prepared.
    """

    def __init__(
        self,
        model: Model,
        budget: Budget,
        prepare: Callable[[], Report],
        evaluator: Callable[[], Evaluator | None],
    ) -> None:
        self._model = model
        self._prepare = prepare
        self.budget = budget
        self.evaluator = evaluator
        self.reports: list[Report] = []

    def prepare(self) -> None:
        """Run the passes over the model."""
        self.reports.append(self._prepare())

    def expand(self, graph: Graph, nodes: Sequence[Node]) -> bool:
        """Replace *nodes* by function bodies, and prepare the graph with these.

        Returns:
            Whether any was replaced.
        """
        if not expand_nodes(graph, nodes, self.budget):
            return False
        if graph.parent is None:
            self.prepare()
        else:  # what is around a body is compiled already
            infer_types(outermost(graph))
        return True

    def checkpoint(self) -> Callable[[], None]:
        """What makes the model be again as it is now."""
        snapshot = Snapshot(self._model.graph)
        restore_budget = self.budget.checkpoint()
        count = len(self.reports)

        def restore() -> None:
            snapshot.restore()
            restore_budget()
            del self.reports[count:]

        return restore
