"""From a loaded model and the EPs chosen for it to something that can be executed.

The stages in order: prepare, compile, plan, report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.compile.compile_graph import compile_graph
from onnxplug.compile.graph_request import GraphRequest
from onnxplug.compile.model import BuiltModel, closers
from onnxplug.entries import PAD, PLACE, REQUIRE, SERVE, buckets
from onnxplug.errors import EpError, LoadCancelled, OptionWarning, OutOfMemory
from onnxplug.graph import Model
from onnxplug.guard import close_after, close_all
from onnxplug.options import SessionOptions
from onnxplug.partition import Candidate
from onnxplug.partition.changes import Changes
from onnxplug.partition.evaluate import Evaluator, evaluator
from onnxplug.partition.outcomes import report_outcomes
from onnxplug.partition.preferences import settle_weights
from onnxplug.partition.report import Explanation
from onnxplug.prepare import Budget, Report, prepare
from onnxplug.run.compiled import CompiledGraph
from onnxplug.run.memory import Memory
from onnxplug.run.profiling import Profile, stage
from onnxplug.run.results import checks_always
from onnxplug.selection import ChosenEp, FailedEp, do_without
from onnxplug.selection.choose import close
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.compile.ep_context.contexts import Contexts
    from onnxplug.compile.ep_context.restore import Restorer
    from onnxplug.ep import MemoryLocation
    from onnxplug.partition.pins import Pins
    from onnxplug.partition.policy_selection import PolicyEps
    from onnxplug.run.device import Device


def build_model(
    model: Model,
    chosen: list[ChosenEp],
    failed: list[FailedEp],
    options: SessionOptions,
    disabled: Collection[str],
    device_at: Callable[[MemoryLocation], Device],
    profile: Profile | None = None,
    by_policy: PolicyEps | None = None,
    contexts: Contexts | None = None,
) -> BuiltModel:
    """Build *model*, whose graph is rewritten; on failure the EPs are closed.

    Args:
        chosen: the EPs, best first; those that fail are removed.
        failed: the EPs that failed before; those that fail now are added.
        by_policy: creates them, *chosen* and *failed* being its own.
        disabled: names of passes to leave out.
        device_at: gives the device at a memory location that an EP works in.
        contexts: what the model has compiled already.

    Raises:
        ModelError: the model contradicts itself, or what it has compiled is damaged or
            of no use here.
        ModelRequiresCompilation: an EP has to compile, which *options* forbid.
        UnassignedNode: no EP runs some node.
        EpError: an EP failed, and nothing else that was named can do its work.
        LoadCancelled, OutOfMemory: *options* say so, or there is too little memory.
    """
    builder = _Builder(
        model,
        chosen,
        failed,
        options,
        disabled,
        device_at,
        profile,
        by_policy,
        contexts,
    )
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
        by_policy: PolicyEps | None,
        contexts: Contexts | None,
    ) -> None:
        self._model = model
        self._chosen = chosen
        self._failed = failed
        self._options = options
        self._device_at = device_at
        self._profile = profile
        self._by_policy = by_policy
        self._contexts = contexts
        self._restorer: Restorer | None = None
        self._changes = _changes(model, chosen, options, disabled)
        self._pins = _pins(model, options)
        self._compiled: CompiledGraph | None = None
        self._explanation = Explanation()

    def build(self) -> BuiltModel:
        if self._by_policy is not None:
            with stage(self._profile, "create EPs"):
                self._by_policy.start()
        with stage(self._profile, "prepare"):
            self._changes.prepare()
        if self._pins is not None:
            self._pins.check(self._model.graph)
        self._check_buckets()
        self._restorer = self._make_restorer()
        if self._by_policy is not None:
            if self._restorer is not None:
                self._by_policy.amend = self._restorer.claims
            self._by_policy.pins = self._pins
            with stage(self._profile, "choose EPs"):
                self._by_policy.choose(self._model.graph, self._settle_weights)
        with stage(self._profile, "compile"):
            self._compiled = self._compile()
        self._warn_of_entries_without_effect()
        checks = checks_always(self._options.config)
        memory = Memory(
            self._device_at, _user_streams(self._chosen), checks_always=checks
        )
        for ep in self._chosen:
            memory.device(ep.provider.location)
        with stage(self._profile, "plan"):
            built = BuiltModel(
                self._chosen,
                self._compiled,
                memory,
                self._explanation,
                checks_always=checks,
            )
        self._report()
        return built

    def close(self) -> None:
        close_all(closers(self._chosen, self._compiled))

    def _check_buckets(self) -> None:
        named = buckets(self._options.config[PAD])
        if named:
            from onnxplug.specialise.padding import (
                check_names,  # which few sessions need
            )

            graph = self._model.graph
            types = [graph.value(name).type for name in graph.inputs]
            check_names(types, named)

    def _warn_of_entries_without_effect(self) -> None:
        config = self._options.config
        specialisers = [
            found
            for ep in self._chosen
            if (found := ep.provider.specialiser) is not None
        ]
        if config[SERVE] == "1" and not specialisers:
            warn_user(
                f"session config entry {SERVE!r} has no effect, as no EP of the "
                "session compiles by input shapes",
                OptionWarning,
            )
        if config[PAD] and not any(each.pads for each in specialisers):
            warn_user(
                f"session config entry {PAD!r} has no effect, as no EP of the session "
                "compiles by input shapes and lets them be padded",
                OptionWarning,
            )

    def _compile(self) -> CompiledGraph:
        """Compile, doing without EPs that fail where that is allowed."""
        policy = self._by_policy
        while True:
            # what says how the graph has been rewritten stays true
            self._explanation = self._explanation.of_changes()
            if self._pins is not None:
                self._pins.check_eps(self._chosen, self._failed)
            try:
                return compile_graph(
                    GraphRequest(
                        self._model.graph,
                        [self._with_cache(ep) for ep in self._chosen],
                        self._explanation,
                        self._changes,
                        self._options,
                        profile=self._profile,
                        answers=policy.answers if policy is not None else None,
                        restorer=self._restorer,
                        pins=self._pins,
                        by_estimates=policy is not None and policy.policy.is_measured,
                    )
                )
            except LoadCancelled:
                self._options.check_load()  # which says how to go on
                raise
            except EpError as error:
                self._options.check_load()
                self._do_without(error)

    def _settle_weights(self, candidates: Sequence[Candidate]) -> None:
        settle_weights(self._model.graph, candidates, self._explanation, self._changes)

    def _with_cache(self, ep: ChosenEp) -> Candidate:
        serialiser = ep.provider.serialiser
        if serialiser is None or not serialiser.caches:
            return Candidate.of(ep, self._pins)
        from onnxplug.partition.cache import CompiledCache  # which few EPs ask for

        name = self._model.path or self._model.graph.name
        cache = CompiledCache(ep, serialiser, self._options.threads, name)
        return Candidate.of(ep, self._pins)._replace(cache=cache)

    def _make_restorer(self) -> Restorer | None:
        forbidden = self._options.config["session.disable_model_compile"] == "1"
        if self._contexts is None and not forbidden:
            return None
        from onnxplug.compile.ep_context.restore import Restorer

        return Restorer(self._contexts, self._chosen, self._options)

    def _do_without(self, error: EpError) -> None:
        """Drop the EP that failed, if another can do its work: one that the user named,
        or the next of the policy."""
        if self._by_policy is not None:
            self._by_policy.fail(error)
            self._by_policy.choose(self._model.graph, self._settle_weights)
            return
        ep = next(ep for ep in self._chosen if ep.name == error.ep)
        if ep.request is None:  # the implied CPU EP, for which nobody stands in
            raise error
        failure = FailedEp(ep.request, error, ep.rank)
        self._chosen.remove(ep)
        close([ep])
        do_without(failure, self._chosen)
        self._failed.append(failure)

    def _report(self) -> None:
        explanation, reports = self._explanation, self._changes.reports
        policy = self._by_policy
        others = policy.outcomes() if policy is not None else []
        explanation.policy = policy.policy.name if policy is not None else ""
        report_outcomes(explanation, self._chosen, self._failed, others)
        explanation.passes = {
            name: [what for report in reports for what in report.changed(name)]
            for name in reports[0].counts
        }
        if self._pins is not None:
            explanation.pinned = self._pins.report(self._model.graph)
        explanation.not_folded = list(reports[-1].skipped("fold"))


def _user_streams(chosen: Sequence[ChosenEp]) -> dict[MemoryLocation, int]:
    """The streams that the user made, by the locations of the EPs that have them."""
    handles = ((ep.provider.location, ep.options.get(USER_STREAM)) for ep in chosen)
    return {location: int(handle) for location, handle in handles if handle}


def _pins(model: Model, options: SessionOptions) -> Pins | None:
    if not (options.config[PLACE] or options.config[REQUIRE]):
        return None
    from onnxplug.partition.pins import Pins  # which few sessions have
    from onnxplug.selection.known import canonical

    registry = model.graph.plugins
    assert registry is not None
    return Pins(options.config, lambda name: canonical(name, registry), model)


def _changes(
    model: Model,
    chosen: Sequence[ChosenEp],
    options: SessionOptions,
    disabled: Collection[str],
) -> Changes:
    """What may change *model* for the EPs that are in *chosen* whenever it does."""
    budget = Budget(check=options.check_load)

    def prepared() -> Report:
        return prepare(
            model,
            evaluate=_evaluator(chosen),
            disabled=disabled,
            budget=budget,
        )

    return Changes(model, budget, prepared, lambda: _evaluator(chosen))


def _evaluator(chosen: Sequence[ChosenEp]) -> Evaluator | None:
    return evaluator([Candidate.of(ep) for ep in chosen])
