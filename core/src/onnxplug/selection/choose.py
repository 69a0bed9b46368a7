"""Creates the EPs that a session asks for, and tells what became of the others."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onnxplug.ep import EpDevice, EpFactory, ExecutionProvider, HardwareDevice
from onnxplug.errors import EpError, EpWarning, OnnxplugError, PluginNotFound
from onnxplug.plugins import PluginRegistry
from onnxplug.selection.options import parse_options
from onnxplug.selection.request import ProviderRequest

if TYPE_CHECKING:
    import logging
    from pathlib import Path

CPU: Final = "CPUExecutionProvider"
"""The EP that runs what no other EP takes."""


class SessionContext:
    """A session as a factory sees it; see :class:`onnxplug.ep.SessionContext`."""

    def __init__(
        self,
        model_path: Path | None,
        intra_op_num_threads: int,
        config: Mapping[str, str],
    ) -> None:
        self.model_path = model_path
        self.intra_op_num_threads = intra_op_num_threads
        self.config = config

    @property
    def logger(self) -> logging.Logger:
        """The session's logger."""
        import logging

        return logging.getLogger("onnxplug.session")


class ChosenEp(NamedTuple):
    """An EP of a session.

    Attributes:
        request: what the user asked for; ``None`` for the implied CPU EP.
        devices: what the EP was created on.
        options: every option of the EP, typed.
    """

    request: ProviderRequest | None
    factory: EpFactory
    devices: tuple[EpDevice, ...]
    options: Mapping[str, Any]
    provider: ExecutionProvider

    @property
    def name(self) -> str:
        """The EP's name."""
        return self.factory.name

    @property
    def device(self) -> str:
        """The devices in words."""
        kinds = dict.fromkeys(str(device.device.type) for device in self.devices)
        return ", ".join(kinds)


class FailedEp(NamedTuple):
    """An EP that was asked for and cannot be used."""

    request: ProviderRequest
    error: OnnxplugError


def choose(
    requests: Sequence[ProviderRequest],
    registry: PluginRegistry,
    hardware: Sequence[HardwareDevice],
    context: SessionContext,
    *,
    cpu_fallback: bool,
) -> tuple[list[ChosenEp], list[FailedEp]]:
    """Create the EPs of *requests* in order, the CPU EP last if it is not among them.

    Raises:
        OnnxplugError: a request that says ``error_on_failure`` failed, or all did;
            or an option is not valid.
    """
    chosen: list[ChosenEp] = []
    failed: list[FailedEp] = []
    for request in requests:
        try:
            ep = _create(request, registry, hardware, context)
        except (EpError, PluginNotFound, RuntimeError) as error:
            if not isinstance(error, OnnxplugError) or request.error_on_failure:
                raise
            failed.append(FailedEp(request, error))
            continue
        if ep.name not in [other.name for other in chosen]:
            chosen.append(ep)
    if failed and not chosen:
        raise failed[0].error
    for failure in failed:
        warn_failed(failure, chosen[0].name)
    if cpu_fallback and CPU not in [ep.name for ep in chosen]:
        chosen.extend(_implied_cpu(registry, hardware, context, needed=not chosen))
    return chosen, failed


def warn_failed(failure: FailedEp, instead: str) -> None:
    """Warn that an EP is not used although it was asked for."""
    warnings.warn(
        f"{failure.request.name} was asked for and is not used; {instead} is used "
        f"instead.  {failure.error}",
        EpWarning,
        stacklevel=2,
    )


def _create(
    request: ProviderRequest,
    registry: PluginRegistry,
    hardware: Sequence[HardwareDevice],
    context: SessionContext,
) -> ChosenEp:
    factory = registry.factory(request.name)
    options = parse_options(factory.name, factory.options, request.options)
    devices = devices_of(factory, hardware)
    if not devices:
        kinds = ", ".join(sorted({str(device.type) for device in hardware}))
        raise EpError(
            f"{factory.name} drives none of this machine's devices ({kinds})",
            ep=factory.name,
            stage="devices",
        )
    defaults = devices[0].default_options
    if defaults:
        options = parse_options(
            factory.name, factory.options, {**defaults, **request.options}
        )
    try:
        provider = factory.create(devices, options, context)
    # a plugin may raise anything; it is reported as the EP's failure
    except Exception as error:
        raise _failure(factory, "create", error) from error
    return ChosenEp(request, factory, devices, options, provider)


def devices_of(
    factory: EpFactory, hardware: Sequence[HardwareDevice]
) -> tuple[EpDevice, ...]:
    """The pairs of an EP and the hardware that it can drive.

    Raises:
        EpError: the factory raised.
    """
    try:
        return tuple(factory.supported_devices(hardware))
    # a plugin may raise anything; it is reported as the EP's failure
    except Exception as error:
        raise _failure(factory, "devices", error) from error


def _failure(factory: EpFactory, stage: str, error: Exception) -> EpError:
    return EpError(
        f"{factory.name} failed in {stage}: {type(error).__name__}: {error}",
        ep=factory.name,
        stage=stage,
    )


def _implied_cpu(
    registry: PluginRegistry,
    hardware: Sequence[HardwareDevice],
    context: SessionContext,
    *,
    needed: bool,
) -> list[ChosenEp]:
    try:
        ep = _create(ProviderRequest(CPU), registry, hardware, context)
    except PluginNotFound as error:
        if not needed:
            # the EPs asked for may take every node; if not, the error names it then
            return []
        raise PluginNotFound(
            "no EP was asked for, and the CPU EP, which is the default, is not "
            "installed; install the distribution onnxplug-cpu",
            plugin=CPU,
        ) from error
    return [
        ChosenEp(None, ep.factory, ep.devices, ep.options, ep.provider),
    ]
