"""What users write to choose EPs, brought into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug.errors import OptionError
from onnxplug.strictness import STRICT, Strictness
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, HardwareDevice
    from onnxplug.plugins import PluginRegistry


class Origin(StrEnum):
    """Who asked for an EP."""

    LIST = "list"
    """``providers=[…]``, or what was added to ``SessionOptions``."""
    POLICY = "policy"
    GLOBAL = "global"
    """``set_default_providers``."""
    IMPLIED = "implied"
    """Nobody: the CPU EP is the last resort."""


Span: TypeAlias = tuple[int, int]
"""The first of some nodes that follow each other in a graph, and what is behind the
last."""


class ProviderRequest(Record):
    """One EP that a user asks for.

    Attributes:
        name: as the user wrote it.
        options: as the user wrote them.
        error_on_failure: any failure of the EP is an error, even if a later one works.
        devices: what to create the EP on; empty: all devices that it drives.
        origin: who asked.
        kept_from: nodes of the loaded model's graph that it is not to have.
    """

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    error_on_failure: bool = False
    devices: tuple[EpDevice, ...] = ()
    origin: Origin = Origin.LIST
    kept_from: tuple[Span, ...] = ()


def provider(
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    error_on_failure: bool = False,
) -> ProviderRequest:
    """The long form of an entry in ``providers=[…]``."""
    return ProviderRequest(name, _options(name, options or {}), error_on_failure)


def for_devices(
    ep_devices: Sequence[EpDevice],
    options: Mapping[str, Any] | None = None,
    *,
    registry: PluginRegistry | None = None,
    hardware: Sequence[HardwareDevice] | None = None,
    error_on_failure: bool = True,
    strictness: Strictness = STRICT,
) -> ProviderRequest:
    """The request for one EP on chosen devices, checked at once.

    Args:
        ep_devices: pairs of one EP, as ``get_ep_devices`` gives them.
        registry, hardware: those of this process and machine when left out.
        strictness: is told of options without effect.

    Raises:
        OptionError: there is no pair, they are of several EPs, this machine does not
            have one of them, or an option is not valid.
        PluginError: the EP's plugin is gone.
        EpError: the EP cannot list its devices.
    """
    # only a caller who already has pairs needs any of this
    from onnxplug.selection.explicit import check_devices

    given = _options("ep_devices", {} if options is None else options)
    pairs, name = check_devices(ep_devices, given, registry, hardware, strictness)
    return ProviderRequest(name, given, error_on_failure, pairs)


ProviderEntry: TypeAlias = str | tuple[str, Mapping[str, Any]] | ProviderRequest


def normalise(
    providers: str | Sequence[ProviderEntry] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> list[ProviderRequest]:
    """The requests in order; one of a name that came before is dropped with a warning.

    Raises:
        OptionError: an entry is of no known form, or the two lists do not fit.
    """
    entries = _entries(providers)
    requests = [_request(entry) for entry in entries]
    if provider_options is not None:
        requests = _with_options(entries, requests, provider_options)
    unique: dict[str, ProviderRequest] = {}
    for request in requests:
        if request.name in unique:
            warn_of_duplicate(request.name)
        unique.setdefault(request.name, request)
    return list(unique.values())


def warn_of_duplicate(name: str) -> None:
    """Warn that an EP was named before."""
    warn_user(f"Duplicate provider {name!r} encountered, ignoring.")


def _entries(providers: Any) -> list[Any]:
    if providers is None:
        return []
    if isinstance(providers, str | ProviderRequest):
        return [providers]
    if isinstance(providers, Mapping | Set | bytes):
        raise OptionError(
            f"providers is a {type(providers).__name__}; expected a list, best first, "
            "of names, (name, options) pairs, or onnxplug.provider(…)"
        )
    try:
        return list(providers)
    except TypeError:
        raise OptionError(
            f"providers is {providers!r}; expected a name, or a list, best first"
        ) from None


def _request(entry: Any) -> ProviderRequest:
    match entry:
        case ProviderRequest():
            return entry
        case str():
            return ProviderRequest(_name(entry))
        case (str(name), Mapping() as options):
            return ProviderRequest(_name(name), _options(name, options))
    raise OptionError(
        f"a provider is given as {entry!r}; expected a name, a (name, options) pair, "
        "or onnxplug.provider(…)"
    )


def _with_options(
    entries: Sequence[Any],
    requests: Sequence[ProviderRequest],
    provider_options: Sequence[Mapping[str, Any]],
) -> list[ProviderRequest]:
    if isinstance(provider_options, Mapping | str) or not isinstance(
        provider_options, Sequence
    ):
        raise OptionError(
            f"provider_options is {provider_options!r}; expected a list with one "
            "mapping for each provider"
        )
    if len(provider_options) != len(requests):
        raise OptionError(
            f"there are {len(requests)} providers and {len(provider_options)} "
            "provider_options; give one mapping for each provider"
        )
    if not all(isinstance(entry, str) for entry in entries):
        raise OptionError(
            "options are given both in providers and in provider_options; "
            "give them in one of the two"
        )
    return [
        ProviderRequest(request.name, _options(request.name, options))
        for request, options in zip(requests, provider_options, strict=True)
    ]


def _name(name: str) -> str:
    if not name.strip():
        raise OptionError(
            f"a provider is given as {name!r}; expected the name of an EP"
        )
    return name


def _options(name: str, options: Any) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise OptionError(
            f"the options of {name} are {options!r}; expected a mapping of names to "
            "values"
        )
    for key in options:
        if not isinstance(key, str):
            raise OptionError(
                f"{name} is given an option named {key!r}; expected a string"
            )
    return dict(options)
