"""Opens a session's model: loads it, chooses its EPs, and builds it for them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug.compile.build import build_model
from onnxplug.compile.load import load
from onnxplug.entries import CALIBRATE
from onnxplug.errors import OnnxplugError, OptionWarning
from onnxplug.guard import close_after
from onnxplug.hardware import discover
from onnxplug.interruption import raise_interruption
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins import registry as registry_of_process
from onnxplug.run.profiling import Profile, stage
from onnxplug.selection.choose import EpMaker, SessionContext, choose, close
from onnxplug.selection.defaults import defaults
from onnxplug.selection.resolve import resolve
from onnxplug.session.model_info import ModelMetadata
from onnxplug.shapes.symbols import forget, forget_all, stated_as
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.authoring.files import Identity
    from onnxplug.compile.ep_context.contexts import Contexts
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import MemoryLocation, ModelInfo, ValueType
    from onnxplug.graph import Graph, Model
    from onnxplug.options import SessionOptions
    from onnxplug.partition.report import Explanation
    from onnxplug.run.device import Device
    from onnxplug.selection import ChosenEp
    from onnxplug.selection.policy_choice import PolicyChoice
    from onnxplug.selection.request import ProviderRequest
    from onnxplug.session.request import SessionRequest


class OpenedModel(Record):
    """A model that is ready to run, and what a session reports of it.

    Attributes:
        resolved: the EPs to have for the same session again.
        files: those of the model.
        registry: where the EPs were looked up.
        declared: the types of inputs and outputs that the graph has with fewer names.
    """

    built: BuiltModel
    metadata: ModelMetadata
    resolved: Sequence[ProviderRequest]
    files: Mapping[str, Identity]
    registry: PluginRegistry
    declared: Mapping[str, ValueType | None]

    def attach(self, session: object) -> None:
        """Let the registry know that *session* uses the model's EPs."""
        for ep in self.built.chosen:
            self.registry.attach(ep.name, session)

    @property
    def eps(self) -> set[str]:
        """The names of the model's EPs."""
        return {ep.name for ep in self.built.chosen}

    def detach(self, session: object, but: Collection[str] = ()) -> None:
        """Undo :meth:`attach`, *but* of those that the session uses for another."""
        for name in self.eps - {*but}:
            self.registry.detach(name, session)


def open_model(
    request: SessionRequest,
    extra_outputs: Sequence[str],
    resolved: Sequence[ProviderRequest] | None,
    profile: Profile | None,
    finish: Callable[[BuiltModel, Model], object] | None = None,
) -> OpenedModel:
    """Open the model of *request*; the caller closes it.

    Args:
        finish: called with what was built before anything runs, in place of writing a
            compiled model that the options ask for.
        extra_outputs: names of values to be outputs, too, in a variant of a session.
        resolved: the EPs if they are resolved already.

    Raises:
        OnnxplugError: see ``InferenceSession``.
        BaseException: what a signal handler raised meanwhile.
    """
    try:
        return _opened(request, extra_outputs, resolved, profile, finish)
    except OnnxplugError as error:
        # also what came of an error of a file's that was a handler's
        raise_interruption(error)
        raise


def _opened(
    request: SessionRequest,
    extra_outputs: Sequence[str],
    resolved: Sequence[ProviderRequest] | None,
    profile: Profile | None,
    finish: Callable[[BuiltModel, Model], object] | None,
) -> OpenedModel:
    registry = request.registry or registry_of_process
    kind = "array" if isinstance(request.source, memoryview) else "uri"
    with stage(profile, f"model_loading_{kind}"):
        model, contexts = load(
            request.source, request.options, extra_outputs, request.files
        )
    options = request.options
    compiles = options.config["ep.context_enable"] == "1" and request.files is None
    functions = model.functions.values()
    if compiles or finish is not None or options.optimized_model_filepath:
        # what is written is run elsewhere, where nothing is made anew
        declared = forget_all(model.graph, functions)
    else:
        declared = forget(model.graph, request.belied, functions)
    with stage(profile, "session_initialization"):
        model.graph.plugins = registry
        model.graph.domains = options.domains
        model.graph.entries = options.config
        metadata = ModelMetadata(model)
        eps = _resolve(request, registry, model) if resolved is None else resolved
        built = _build(request, registry, model, contexts, eps, profile)
        try:
            with stated_as(declared, built.graph):
                if options.optimized_model_filepath and not extra_outputs:
                    _write_prepared(built.graph, model, options)
                if finish is not None:
                    finish(built, model)
                elif compiles:
                    _write_compiled(built, model, options)
            _log_placement(options, built.explanation)
        except BaseException as error:
            close_after(error, built.close)
            raise
    if not isinstance(eps, Sequence):  # what a policy chose, rather than the policy
        eps = [ep.request for ep in built.chosen if ep.request is not None]
    return OpenedModel(built, metadata, eps, model.files, registry, declared)


def _resolve(
    request: SessionRequest, registry: PluginRegistry, model: Model
) -> list[ProviderRequest] | PolicyChoice:
    options = request.options
    found = resolve(
        request.providers,
        request.provider_options,
        options.requests,
        options.policy if request.policy is None else request.policy,
        defaults.take(),
        registry=registry,
        model_info=functools.partial(_model_info, model),
        cpu_fallback=request.cpu_fallback,
        cpu_stands_in=request.cpu_stands_in,
    )
    if options.config[CALIBRATE] == "1" and (
        isinstance(found, list) or not found.is_measured
    ):
        warn_user(
            f"session config entry {CALIBRATE!r} has no effect, as the EPs are not "
            "chosen by the policy max_performance",
            OptionWarning,
        )
    return found


def _build(
    request: SessionRequest,
    registry: PluginRegistry,
    model: Model,
    contexts: Contexts | None,
    resolved: Sequence[ProviderRequest] | PolicyChoice,
    profile: Profile | None,
) -> BuiltModel:
    options = request.options
    context = SessionContext(
        model.path,
        options.threads,
        options.config,
        registry,
        functools.partial(_model_info, model),
        options.strictness,
    )
    disabled = {*options.disabled_passes, *request.disabled}
    device_at = functools.partial(_device_at, registry)
    policy = how = ""
    if not isinstance(resolved, Sequence):
        policy = resolved.name
        if resolved.is_measured and contexts is not None:
            how = "the static rule, as the model has partitions that are compiled"
        elif resolved.is_measured:
            from onnxplug.calibration.use import calibrated  # which few sessions need

            plan, how = calibrated(request, registry, model.graph, resolved)
            resolved = resolved if plan is None else plan
    if not isinstance(resolved, Sequence):
        from onnxplug.partition.policy_selection import (
            PolicyEps,  # most sessions have no policy
        )

        maker = EpMaker(registry, discover(), context)
        eps = PolicyEps(resolved, functools.partial(_make, maker, registry, options))
        built = build_model(
            model,
            eps.chosen,
            eps.failed,
            options,
            disabled,
            device_at,
            profile,
            by_policy=eps,
            contexts=contexts,
        )
        built.explanation.calibration = how
        return built
    with stage(profile, "create EPs"):
        chosen, failed = choose(
            resolved,
            registry,
            discover(),
            context,
            cpu_fallback=request.cpu_fallback,
        )
    if registry.settings.verify and any(map(_has_probes, chosen)):
        with stage(profile, "verify EPs"):
            chosen = _verified(chosen, registry, options)
    if any(each.kept_from for each in resolved):
        from onnxplug.calibration.plan import keep

        chosen = keep(chosen, model.graph)
    built = build_model(
        model,
        chosen,
        failed,
        options,
        disabled,
        device_at,
        profile,
        contexts=contexts,
    )
    built.explanation.policy, built.explanation.calibration = policy, how
    return built


def _device_at(registry: PluginRegistry, location: MemoryLocation) -> Device:
    from onnxplug.run.device import device_at  # few sessions have one

    return device_at(location, registry)


def _has_probes(ep: ChosenEp) -> bool:
    """Whether what *ep* computes can be checked on its devices."""
    return ep.factory.verification is not None


def _verified(
    chosen: Sequence[ChosenEp], registry: PluginRegistry, options: SessionOptions
) -> list[ChosenEp]:
    """*chosen*, with vetoes of what they compute wrong; on failure they are closed."""
    from onnxplug.verify.check import verify  # which few EPs need

    try:
        return [
            verify(ep, registry, options) if _has_probes(ep) else ep for ep in chosen
        ]
    except BaseException:
        close(chosen)
        raise


def _make(
    maker: EpMaker,
    registry: PluginRegistry,
    options: SessionOptions,
    request: ProviderRequest,
    rank: int,
) -> ChosenEp:
    """The EP of *request*, verified; it may take long to create."""
    options.check_load()
    ep = maker.make(request, rank)
    if registry.settings.verify and _has_probes(ep):
        (ep,) = _verified([ep], registry, options)
    return ep


def _model_info(model: Model) -> ModelInfo:
    from onnxplug.selection import model_info

    return model_info(model)


def _write_prepared(graph: Graph, model: Model, options: SessionOptions) -> None:
    from onnxplug.session.prepared_model import write_prepared  # seldom asked for

    write_prepared(graph, model, options)


def _write_compiled(
    built: BuiltModel,
    model: Model,
    options: SessionOptions,
) -> None:
    from onnxplug.session.compiled_model import write_as_asked  # seldom asked for

    write_as_asked(built, model, options)


def _log_placement(options: SessionOptions, explanation: Explanation) -> None:
    """Log where nodes run, at the level that *options* ask for."""
    severity = options.log_severity_level
    if severity < 0 and "logging" not in sys.modules:
        return  # nobody can be listening
    import logging

    name = "onnxplug.session" + (f".{options.logid}" if options.logid else "")
    if severity >= 0:
        from onnxplug.log import show_from

        logger = show_from(name, min(severity, 4))
    else:
        logger = logging.getLogger(name)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", explanation.headline)
    if logger.isEnabledFor(logging.DEBUG):
        explanation.refresh()
        logger.debug("placement:\n%s", explanation)
