"""Who wins when EPs are asked for in several places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HardwareDevice
from onnxplug.errors import OptionError
from onnxplug.plugins import PluginRegistry
from onnxplug.selection.order import CPU, order_devices
from onnxplug.selection.request import (
    ProviderEntry,
    ProviderRequest,
    normalise,
    warn_of_duplicate,
)
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.ep import ModelInfo, SelectionPolicy
    from onnxplug.selection.policy import OrtExecutionProviderDevicePolicy
    from onnxplug.selection.policy_choice import PolicyChoice


def resolve(
    providers: str | Sequence[ProviderEntry] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    session_requests: Sequence[ProviderRequest] = (),
    policy: str | OrtExecutionProviderDevicePolicy | SelectionPolicy | None = None,
    defaults: Sequence[ProviderRequest] = (),
    *,
    registry: PluginRegistry,
    model_info: Callable[[], ModelInfo],
    hardware: Sequence[HardwareDevice] | None = None,
    cpu_fallback: bool = True,
    cpu_stands_in: bool = False,
) -> list[ProviderRequest] | PolicyChoice:
    """The EPs that a session is to have, best first.

    ============== ============== ========= ========== ==============================
    ``providers=`` SessionOptions policy    globals    the session's EPs
    ============== ============== ========= ========== ==============================
    given          any            any       any        the list, then the globals;
                                                       one warning if it overrules
    nothing        added          any       any        those added, then the globals;
                                                       one warning if they overrule
    nothing        nothing        set       any        what the policy chooses
    nothing        nothing        none      set        the globals
    nothing        nothing        none      nothing    nothing here
    ============== ============== ========= ========== ==============================

    ``choose`` adds the CPU EP as the last, wherever it is not named and
    *cpu_fallback* is true.  An EP named twice counts where it is named first.

    Args:
        session_requests: added by ``SessionOptions.add_provider…``.
        defaults: set by ``set_default_providers``.
        model_info: called only for a policy.
        hardware: what a policy chooses from; this machine's when left out.
        cpu_fallback: ``session.disable_cpu_ep_fallback`` is not set.
        cpu_stands_in: after others the CPU EP counts as named, so that a session may
            do without all of them; not where there is no *cpu_fallback*.

    Raises:
        OptionError: what was written is of no known form, or contradicts itself.
        EpError: the policy failed, or chose what cannot be used.
    """
    own = normalise(providers, provider_options)
    if own:
        _warn_of_overruled("passed to InferenceSession", session_requests, policy)
    else:
        own = list(session_requests)
        if own:
            _warn_of_overruled("added to SessionOptions", (), policy)
    if not own and policy is not None:
        return _chosen_by_policy(policy, registry, model_info, hardware, cpu_fallback)
    if len(own) + len(defaults) > 1:
        own, defaults = _each_once(own, defaults, registry)
    if not cpu_fallback:
        defaults = _without_cpu(own, defaults, registry)
    elif cpu_stands_in and own:
        return _with_cpu([*own, *defaults], registry)
    return [*own, *defaults]


def _warn_of_overruled(
    winner: str, session_requests: Sequence[ProviderRequest], policy: object
) -> None:
    overruled = []
    if session_requests:
        names = ", ".join(request.name for request in session_requests)
        overruled.append(f"providers ({names})")
    if policy is not None:
        overruled.append("a selection policy")
    if overruled:
        warn_user(
            f"the session was already configured with {' and '.join(overruled)}; "
            f"only the providers {winner} are used"
        )


def _each_once(
    own: Sequence[ProviderRequest],
    defaults: Sequence[ProviderRequest],
    registry: PluginRegistry,
) -> tuple[list[ProviderRequest], list[ProviderRequest]]:
    from onnxplug.selection.known import canonical

    first: dict[str, ProviderRequest] = {}
    for request in own:
        name = canonical(request.name, registry)
        if name in first:
            warn_of_duplicate(request.name)
        first.setdefault(name, request)
    left: dict[str, ProviderRequest] = {}
    for request in defaults:
        name = canonical(request.name, registry)
        if name not in first:
            left.setdefault(name, request)
    return list(first.values()), list(left.values())


def _with_cpu(
    requests: list[ProviderRequest], registry: PluginRegistry
) -> list[ProviderRequest]:
    """*requests*, the CPU EP's among them."""
    from onnxplug.selection.known import canonical

    if any(canonical(request.name, registry) == CPU for request in requests):
        return requests
    return [*requests, ProviderRequest(CPU)]


def _without_cpu(
    own: Sequence[ProviderRequest],
    defaults: Sequence[ProviderRequest],
    registry: PluginRegistry,
) -> list[ProviderRequest]:
    """The *defaults* of a session that must not fall back to the CPU."""
    from onnxplug.selection.known import canonical

    forbids = "session.disable_cpu_ep_fallback is set"
    for request in own:
        if canonical(request.name, registry) == CPU:
            raise OptionError(
                "Conflicting session configuration: explicitly added the CPU EP to "
                f"the session, but {forbids}.  Leave one of the two out."
            )
    left = [request for request in defaults if canonical(request.name, registry) != CPU]
    if not own and not left:
        raise OptionError(
            "Conflicting session configuration: no EP was asked for, which means the "
            f"CPU EP, but {forbids}.  Name an EP."
        )
    return left


def _chosen_by_policy(
    policy: str | OrtExecutionProviderDevicePolicy | SelectionPolicy,
    registry: PluginRegistry,
    model_info: Callable[[], ModelInfo],
    hardware: Sequence[HardwareDevice] | None,
    cpu_fallback: bool,
) -> PolicyChoice:
    # most sessions have no policy
    from onnxplug.selection.enumerate import enumerate_devices
    from onnxplug.selection.policy import find_policy
    from onnxplug.selection.policy_choice import PolicyChoice

    found = enumerate_devices(registry, hardware)  # loads plugins, and their policies
    name, function = find_policy(policy, registry)
    offered = [pair for pair in found.devices if not pair.by_name_only]
    ordered = order_devices(offered, found.vendor_ids)
    return PolicyChoice(
        name, function, ordered, model_info(), cpu_fallback=cpu_fallback
    )
