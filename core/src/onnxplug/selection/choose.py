"""Creates the EPs that a session asks for, and reports what became of the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from onnxplug.authoring.record import Record
from onnxplug.ep import (
    HOST,
    EpDevice,
    EpFactory,
    ExecutionProvider,
    HardwareDevice,
    MemoryLocation,
    OptionValue,
    Reason,
    RefusalCode,
)
from onnxplug.errors import (
    EpError,
    OnnxplugError,
    OptionError,
    OutOfMemory,
    PluginBlocked,
    PluginError,
    PluginIncompatible,
    PluginNotFound,
)
from onnxplug.guard import FAILURES, ep_failure, ignoring_failures
from onnxplug.interruption import raise_interruption
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins.declared import check_abilities
from onnxplug.plugins.versions import removed_from, warn_deprecated
from onnxplug.selection.devices import faults, hardware_for, judged_devices
from onnxplug.selection.entries import entries_by_ep, entries_of
from onnxplug.selection.options import by_name, parse_options
from onnxplug.selection.order import CPU
from onnxplug.selection.request import Origin, ProviderRequest
from onnxplug.strictness import STRICT, Strictness
from onnxplug.warn import warn_user
from onnxplug.weights import SharedWeights, of_host

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from onnxplug import ep
    from onnxplug.graph import Graph, Node
    from onnxplug.plugins.contexts import OwnedContext

WHY: Final = {
    Origin.LIST: "was asked for",
    Origin.POLICY: "was chosen by the policy",
    Origin.GLOBAL: "is a default provider",
    Origin.IMPLIED: "is the last resort",
}
"""Who asked for an EP, in the words of messages that begin with its name."""


class SessionContext:
    """A session as a factory sees it; see :class:`onnxplug.ep.SessionContext`."""

    def __init__(
        self,
        model_path: str | None,
        intra_op_num_threads: int,
        config: Mapping[str, str],
        registry: PluginRegistry,
        model_info: Callable[[], ep.ModelInfo] | None = None,
        strictness: Strictness = STRICT,
    ) -> None:
        self._model_path = model_path
        self.strictness = strictness
        self._model_info = model_info
        self.intra_op_num_threads = intra_op_num_threads
        self.config = config
        self._registry = registry
        self.entries: Mapping[str, OptionValue] = {}
        self._used: dict[MemoryLocation, OwnedContext] = {}

    def context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
        """The context of *location*, made by the EP that owns its space."""
        return self._use(location).context

    def _use(self, location: MemoryLocation) -> OwnedContext:
        owned = self._used.get(location)
        if owned is None:
            owned = self._used[location] = self._registry.contexts.at(location)
        return owned

    def close(self) -> None:
        """Let go of the contexts that the EP has asked for; it is closed."""
        self._used.clear()

    @property
    def model_path(self) -> Path | None:
        """Where the model was loaded from; ``None`` when from memory."""
        from pathlib import Path  # which few EPs ask for

        return None if self._model_path is None else Path(self._model_path)

    @property
    def model_info(self) -> ep.ModelInfo:
        """What the model says of itself; nothing, where there is none."""
        if self._model_info is not None:
            return self._model_info()
        from onnxplug.ep import ModelInfo

        return ModelInfo()

    def for_ep(self, entries: Mapping[str, OptionValue]) -> SessionContext:
        """The session as an EP sees it to whom *entries* are said."""
        own = copy.copy(self)
        own.entries = entries
        own._used = {}
        return own

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node, xp: Any
    ) -> Callable[..., Any] | Reason | None:
        """The function that whoever supplies the operator of *node* has for it."""
        from onnxplug import domains  # which few models need

        found = domains.find(cast("Graph", graph), cast("Node", node))
        if found is None or found.operator.kernel is None:
            return None
        made: Callable[..., Any] | Reason
        try:
            made = found.ask("kernel", found.operator.kernel, graph, node, xp)
        except PluginError as error:  # no failure of the EP that asks
            return Reason(RefusalCode.OTHER, str(error))
        return made

    def weights(self, location: MemoryLocation) -> SharedWeights:
        """The store of *location*."""
        if location == HOST:
            return of_host
        return self._use(location).weights

    @property
    def logger(self) -> logging.Logger:
        """The session's logger."""
        import logging

        return logging.getLogger("onnxplug.session")


Veto: TypeAlias = "Callable[[ep.Graph, ep.Node], Reason | None]"
"""Why the host does not give an EP a node of a graph, whatever the EP claims."""


def allow_all(graph: ep.Graph, node: ep.Node) -> None:
    """The veto of nothing."""


class ChosenEp(Record):
    """An EP of a session.

    Attributes:
        request: what the user asked for; ``None`` for the implied CPU EP.
        devices: what the EP was created on.
        options: every option of the EP, typed.
        rank: its place among the requests; the implied CPU EP's is after all.
        veto: which nodes it is not to have whatever it claims.
        entries: every config entry of the EP, typed.
        context: the session as the EP sees it, with what it has asked for.
    """

    request: ProviderRequest | None
    factory: EpFactory
    devices: tuple[EpDevice, ...]
    options: Mapping[str, Any]
    provider: ExecutionProvider
    rank: int = 0
    veto: Veto = allow_all
    entries: Mapping[str, OptionValue] = MappingProxyType({})
    context: SessionContext | None = None

    @property
    def name(self) -> str:
        """The EP's name."""
        return self.factory.name

    def close(self) -> None:
        """Close the EP, and let go of the contexts that it has asked for."""
        try:
            self.provider.close()
        finally:
            if self.context is not None:
                self.context.close()

    @property
    def compiled_in(self) -> dict[str, OptionValue]:
        """The options and config entries that what it compiles depends on."""
        factory = self.factory
        values: dict[str, OptionValue] = {}
        for declared, given in (
            (factory.options, self.options),
            (factory.config_entries, self.entries),
        ):
            values |= {k: v for k, v in given.items() if declared[k].compiled_in}
        return values

    @property
    def device(self) -> str:
        """The devices in words."""
        return kinds_of(self.devices)


def kinds_of(devices: Sequence[EpDevice]) -> str:
    """The kinds of devices, each once, in words."""
    return ", ".join(dict.fromkeys(str(pair.device.type) for pair in devices))


class FailedEp(Record):
    """An EP that was asked for and cannot be used.

    Attributes:
        rank: its place among the requests.
    """

    request: ProviderRequest
    error: OnnxplugError
    rank: int = 0


class EpMaker:
    """Creates EPs for one session.

    Raises:
        OptionError: a config entry of an EP is not valid.
    """

    def __init__(
        self,
        registry: PluginRegistry,
        hardware: Sequence[HardwareDevice],
        context: SessionContext,
    ) -> None:
        self._registry = registry
        self._hardware = hardware
        self._context = context
        self._written = entries_by_ep(context.config, registry, context.strictness)

    def factory(self, name: str) -> EpFactory:
        """The factory of an EP, by any of its names.

        Raises:
            PluginError: there is none that can be used.
        """
        try:
            return self._registry.factory(name)
        except PluginNotFound:
            # what an EP is that is not there is seldom asked
            from onnxplug.selection.available import find_factory

            return find_factory(name, self._registry)

    def make(self, request: ProviderRequest, rank: int) -> ChosenEp:
        """The EP of *request*; see :func:`create_ep`.

        Raises:
            PluginError: there is none that can be used.
        """
        factory = self.factory(request.name)
        found = hardware_for(self._registry, factory.name, self._hardware)
        return create_ep(request, factory, found, self._context, self._written, rank)


def choose(
    requests: Sequence[ProviderRequest],
    registry: PluginRegistry,
    hardware: Sequence[HardwareDevice],
    context: SessionContext,
    *,
    cpu_fallback: bool,
) -> tuple[list[ChosenEp], list[FailedEp]]:
    """Create the EPs of *requests* in order, the CPU EP last if it is not among them.

    One that fails is done without, with a warning, if another that was named works:
    see :func:`do_without`.

    Raises:
        OnnxplugError: a request that says ``error_on_failure`` failed, or all did;
            or an option or a config entry of an EP is not valid.
    """
    maker = EpMaker(registry, hardware, context)
    chosen: list[ChosenEp] = []
    failed: list[FailedEp] = []
    try:
        for rank, request in enumerate(requests):
            try:
                factory = maker.factory(request.name)
                if factory.name not in [ep.name for ep in chosen]:
                    chosen.append(maker.make(request, rank))
            except OptionError:
                raise
            except OnnxplugError as error:
                failed.append(FailedEp(request, error, rank))
                if request.error_on_failure:
                    raise
        do_without_failed(failed, chosen)
        if cpu_fallback and not _has_cpu(chosen, failed):
            _add_cpu(chosen, failed, maker, len(requests))
    except BaseException:
        close(chosen)
        raise
    return chosen, failed


def do_without(failure: FailedEp, chosen: Sequence[ChosenEp]) -> None:
    """Warn that an EP is not used although it was named, or raise its error.

    The warning names the EP that stands in: the next of *chosen* that was named, if
    there is one after it.

    Args:
        chosen: the EPs that work, the failed one not among them.

    Raises:
        OnnxplugError: nothing else that was named works, or the request says
            ``error_on_failure``.
    """
    named = [ep for ep in chosen if ep.request is not None]
    if failure.request.error_on_failure or not named:
        raise failure.error
    later = [ep.name for ep in named if ep.rank > failure.rank]
    warn_failed(failure, later[0] if later else "")


def warn_failed(failure: FailedEp, instead: str) -> None:
    """Warn that an EP is not used; empty *instead*: no other stands in for it."""
    request = failure.request
    outcome = f"{instead} is used instead" if instead else "the session does without it"
    warn_user(
        f"{request.name} {WHY[request.origin]} and is not used; {outcome}.  "
        f"{failure.error}",
        cause=failure.error,
    )


def warn_if_broken(failure: FailedEp) -> None:
    """Warn that the implied CPU EP is not used, unless not to have it is a choice."""
    if not isinstance(failure.error, PluginNotFound | PluginBlocked):
        warn_failed(failure, "")


def close(chosen: Sequence[ChosenEp]) -> None:
    """Close EPs of a session that is not to be, whatever they raise."""
    for ep in chosen:
        # what went wrong before matters more
        with ignoring_failures():
            ep.close()


def do_without_failed(failed: Sequence[FailedEp], chosen: Sequence[ChosenEp]) -> None:
    """As :func:`do_without` for each; if nothing works, one error has all failures."""
    if failed and not chosen:
        for other in failed[1:]:
            failed[0].error.add_note(f"Nor can {other.request.name}: {other.error}")
    for failure in failed:
        do_without(failure, chosen)


def create_ep(
    request: ProviderRequest,
    factory: EpFactory,
    hardware: Sequence[HardwareDevice],
    context: SessionContext,
    written: Mapping[str, Mapping[str, str]],
    rank: int = 0,
) -> ChosenEp:
    """An EP for one session.

    Args:
        factory: of the EP that is requested.
        hardware: what it is created on if the request names no devices.
        written: config entries by EP and name, as they were written.

    Raises:
        OptionError: an option is not valid.
        OutOfMemory: there is not enough of it.
        EpError: the EP has no device, or failed.
        OnnxplugError: whatever else of onnxplug's the EP raised, as it is.
    """
    # a wrong option is the user's error, whatever the EP can do
    strictness = context.strictness
    options = parse_options(
        factory.name, factory.options, request.options, strictness=strictness
    )
    set_by_entries, entries = entries_of(
        factory, written.get(factory.name, {}), strictness
    )
    devices = request.devices or _devices(factory, hardware)
    suggested = _suggested_options(factory, devices, set_by_entries)
    if suggested:
        options = parse_options(
            factory.name,
            factory.options,
            request.options,
            suggested,
            strictness=strictness,
        )
    own = context.for_ep(entries)
    try:
        provider = _created(factory, devices, options, own)
    except FAILURES as error:
        own.close()  # the error refers to this frame
        raise_interruption(error)
        failure = _failure(factory, error)
        if failure is error:
            raise
        raise failure from error
    return ChosenEp(
        request,
        factory,
        devices,
        options,
        provider,
        rank,
        entries=entries,
        context=own,
    )


def _created(
    factory: EpFactory,
    devices: Sequence[EpDevice],
    options: Mapping[str, Any],
    context: SessionContext,
) -> ExecutionProvider:
    """What *factory* creates, if it is one."""
    provider = factory.create(devices, options, context)
    if not isinstance(provider, ExecutionProvider):
        raise TypeError(
            f"create() returned {provider!r}; expected an ExecutionProvider"
        )
    try:
        gone = removed_from(provider, "ExecutionProvider")
        if gone:
            raise ep_failure(factory.name, "create", PluginIncompatible(gone))
        warn_deprecated(provider, "ExecutionProvider")
        check_abilities(provider, "ExecutionProvider", factory.name)
    except BaseException:
        with ignoring_failures():
            provider.close()
        raise
    return provider


def _failure(factory: EpFactory, error: BaseException) -> OnnxplugError:
    """The error for what *factory* raised when it created an EP.

    One of onnxplug's is raised as it is, with the EP's name in its text, and an
    ``OptionError`` without it: that is the user's, as it is where options are parsed.
    """
    name = factory.name
    if isinstance(error, OptionError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory.of(error, f"{name}, in create,", ep=name)
    if isinstance(error, OnnxplugError) and not isinstance(error, EpError):
        text = str(error)
        if name not in text:
            text = f"{name} failed in create: {text}"
        error.args = (text + _diagnosis(factory, text),)
        return error
    text = str(ep_failure(name, "create", error))
    text += _diagnosis(factory, text)
    return EpError(text, ep=name, stage="create")


def _devices(
    factory: EpFactory, hardware: Sequence[HardwareDevice]
) -> tuple[EpDevice, ...]:
    """The pairs of an EP, at least one.

    Raises:
        EpError: there is none; the text says why.
    """
    pairs, refused = judged_devices(factory, hardware)
    if not pairs:
        from onnxplug.selection.available import no_device

        text = "; ".join(no_device(factory, hardware, refused))
        raise EpError(text, ep=factory.name, stage="devices")
    return pairs


def _suggested_options(
    factory: EpFactory, devices: Sequence[EpDevice], written: Mapping[str, str]
) -> dict[str, Any]:
    """Options of the devices, the first one's winning; config entries beat them."""
    suggested: dict[str, Any] = {}
    for device in reversed(devices):
        suggested |= by_name(factory.name, factory.options, device.default_options)
    return suggested | by_name(factory.name, factory.options, written)


def _diagnosis(factory: EpFactory, told: str) -> str:
    """What the EP says of its own failure, and what to do about it.

    Args:
        told: what is said of it before, which is not repeated.
    """
    text = ""
    for fault in faults(factory):
        new = [each for each in (fault.message, fault.remedy) if each not in told]
        text += "\n" + "; ".join(new) if new else ""
    return text


def _has_cpu(chosen: Sequence[ChosenEp], failed: Sequence[FailedEp]) -> bool:
    names = [ep.name for ep in chosen]
    names += [failure.request.name for failure in failed]
    names += [getattr(failure.error, "ep", "") for failure in failed]
    names += [getattr(failure.error, "plugin", "") for failure in failed]
    return CPU in names


def _add_cpu(
    chosen: list[ChosenEp],
    failed: list[FailedEp],
    maker: EpMaker,
    rank: int,
) -> None:
    """Add the CPU EP, which nobody named, to *chosen*; without it to *failed*."""
    request = ProviderRequest(CPU, origin=Origin.IMPLIED)
    try:
        ep = maker.make(request, rank)
    except OptionError:
        raise
    except OnnxplugError as error:
        # the EPs asked for may take every node; if not, the error names it then
        if chosen:
            failed.append(FailedEp(request, error, rank))
            warn_if_broken(failed[-1])
            return
        if isinstance(error, PluginNotFound):
            raise PluginNotFound(
                "no EP was asked for, and the CPU EP, which is the default, is not "
                "installed; install the distribution onnxplug-cpu",
                plugin=CPU,
            ) from error
        raise
    chosen.append(ep._replace(request=None))
