"""From a loaded model and the EPs chosen for it to something that can be executed.

The stages in order: prepare, compile, plan, report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.entries import PAD, buckets
from onnxplug.errors import EpError, LoadCancelled, OutOfMemory
from onnxplug.graph import Graph, Model, Node
from onnxplug.graph.scopes import outermost
from onnxplug.guard import close_after, close_all
from onnxplug.options import SessionOptions
from onnxplug.prepare import Budget, Report, expand_nodes, infer_types, prepare
from onnxplug.run.compile import CompiledGraph, compile_graph
from onnxplug.run.evaluate import evaluator
from onnxplug.run.memory import Memory
from onnxplug.run.model import BuiltModel, closers
from onnxplug.run.outcomes import report_outcomes
from onnxplug.run.partition import Candidate
from onnxplug.run.partition.report import Expanded, Explanation
from onnxplug.run.profiling import Profile, stage
from onnxplug.run.results import checks_always
from onnxplug.selection import ChosenEp, FailedEp, do_without
from onnxplug.selection.choose import close

if TYPE_CHECKING:
    from onnxplug.ep import MemoryLocation
    from onnxplug.run.device import Device


def build_model(
    model: Model,
    chosen: list[ChosenEp],
    failed: list[FailedEp],
    options: SessionOptions,
    disabled: Collection[str],
    device_at: Callable[[MemoryLocation], Device],
    profile: Profile | None = None,
) -> BuiltModel:
    """Build *model*, whose graph is rewritten; on failure the EPs are closed.

    Args:
        chosen: the EPs, best first; those that fail are removed.
        failed: the EPs that failed before; those that fail now are added.
        disabled: names of passes to leave out.
        device_at: gives the device at a memory location that an EP works in.

    Raises:
        ModelError: the model contradicts itself.
        UnassignedNode: no EP runs some node.
        EpError: an EP failed, and nothing else that was named can do its work.
        LoadCancelled, OutOfMemory: *options* say so, or there is too little memory.
    """
    builder = _Builder(model, chosen, failed, options, disabled, device_at, profile)
    try:
        return builder.build()
    except MemoryError as error:
        close_after(error, builder.close)
        raise OutOfMemory.of(error, "making the session") from error
    except BaseException as error:
        close_after(error, builder.close)
        raise


USER_STREAM: Final = "user_compute_stream"
"""The EP option for the native handle of a stream that the user made; 0: none."""


class _Builder:
    def __init__(
        self,
        model: Model,
        chosen: list[ChosenEp],
        failed: list[FailedEp],
        options: SessionOptions,
        disabled: Collection[str],
        device_at: Callable[[MemoryLocation], Device],
        profile: Profile | None,
    ) -> None:
        self._model = model
        self._chosen = chosen
        self._failed = failed
        self._options = options
        self._disabled = disabled
        self._device_at = device_at
        self._profile = profile
        self._budget = Budget(check=options.check_load)
        self._reports: list[Report] = []
        self._compiled: CompiledGraph | None = None
        self._explanation = Explanation()

    def build(self) -> BuiltModel:
        with stage(self._profile, "prepare"):
            self._prepare(self._options.free_dimensions)
        self._check_buckets()
        with stage(self._profile, "compile"):
            self._compiled = self._compile()
        memory = Memory(self._device_at, _user_streams(self._chosen))
        for ep in self._chosen:
            memory.device(ep.provider.location)
        with stage(self._profile, "plan"):
            built = BuiltModel(
                self._chosen,
                self._compiled,
                memory,
                self._explanation,
                checks_always=checks_always(self._options.config),
            )
        self._report()
        return built

    def close(self) -> None:
        close_all(closers(self._chosen, self._compiled))

    def _prepare(self, free_dimensions: Mapping[str, int] | None = None) -> None:
        report = prepare(
            self._model,
            evaluate=evaluator([_candidate(ep) for ep in self._chosen]),
            disabled=self._disabled,
            free_dimensions=free_dimensions,
            budget=self._budget,
        )
        self._reports.append(report)

    def _check_buckets(self) -> None:
        named = buckets(self._options.config[PAD])
        if named:
            from onnxplug.run.padding import check_names  # which few sessions need

            graph = self._model.graph
            types = [graph.value(name).type for name in graph.inputs]
            check_names(types, named)

    def _compile(self) -> CompiledGraph:
        """Compile, doing without EPs that fail where that is allowed."""
        expanded: list[Expanded] = []
        while True:
            self._explanation = Explanation()
            self._explanation.expanded = expanded  # the graph has been rewritten so
            try:
                return compile_graph(
                    self._model.graph,
                    [_candidate(ep) for ep in self._chosen],
                    self._explanation,
                    expand=self._expand,
                    profile=self._profile,
                    options=self._options,
                )
            except LoadCancelled:
                self._options.check_load()  # which says how to go on
                raise
            except EpError as error:
                self._options.check_load()
                self._do_without(error)

    def _expand(self, graph: Graph, nodes: Sequence[Node]) -> bool:
        """Replace *nodes* by function bodies, and prepare the graph with these."""
        if not expand_nodes(graph, nodes, self._budget):
            return False
        if graph.parent is None:
            self._prepare()
        else:  # what is around a body is compiled already
            infer_types(outermost(graph))
        return True

    def _do_without(self, error: EpError) -> None:
        """Drop the EP that failed, if the user named another that can do its work."""
        ep = next(ep for ep in self._chosen if ep.name == error.ep)
        if ep.request is None:  # the implied CPU EP, for which nobody stands in
            raise error
        failure = FailedEp(ep.request, error, ep.rank)
        self._chosen.remove(ep)
        close([ep])
        do_without(failure, self._chosen)
        self._failed.append(failure)

    def _report(self) -> None:
        explanation, reports = self._explanation, self._reports
        explanation.refresh()
        report_outcomes(explanation, self._chosen, self._failed)
        explanation.passes = {
            name: [what for report in reports for what in report.changed(name)]
            for name in reports[0].counts
        }
        explanation.not_folded = list(reports[-1].left("fold"))


def _user_streams(chosen: Sequence[ChosenEp]) -> dict[MemoryLocation, int]:
    """The streams that the user made, by the locations of the EPs that have them."""
    handles = ((ep.provider.location, ep.options.get(USER_STREAM)) for ep in chosen)
    return {location: int(handle) for location, handle in handles if handle}


def _candidate(ep: ChosenEp) -> Candidate:
    return Candidate(ep.name, ep.device, ep.provider, ep.devices[0].metadata, ep.veto)
