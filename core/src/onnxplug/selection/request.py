"""What users write to choose EPs, brought into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from onnxplug.errors import OptionError


class ProviderRequest(NamedTuple):
    """One EP that a user asks for.

    Attributes:
        name: as the user wrote it.
        options: as the user wrote them.
        error_on_failure: any failure of the EP is an error, even if a later one works.
    """

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    error_on_failure: bool = False


def provider(
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    error_on_failure: bool = False,
) -> ProviderRequest:
    """The long form of an entry in ``providers=[…]``."""
    return ProviderRequest(name, dict(options or {}), error_on_failure)


ProviderEntry: TypeAlias = str | tuple[str, Mapping[str, Any]] | ProviderRequest


def normalise(
    providers: str | Sequence[ProviderEntry] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> list[ProviderRequest]:
    """The requests in order; those after the first of the same name are dropped.

    Raises:
        OptionError: an entry is of no known form, or the two lists do not fit.
    """
    if providers is None:
        entries: Sequence[Any] = ()
    elif isinstance(providers, str | ProviderRequest):
        entries = (providers,)
    else:
        entries = list(providers)
    requests = [_request(entry) for entry in entries]
    if provider_options is not None:
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
        requests = [
            ProviderRequest(request.name, dict(options))
            for request, options in zip(requests, provider_options, strict=True)
        ]
    unique: dict[str, ProviderRequest] = {}
    for request in requests:
        unique.setdefault(request.name, request)
    return list(unique.values())


def _request(entry: Any) -> ProviderRequest:
    match entry:
        case ProviderRequest():
            return entry
        case str():
            return ProviderRequest(entry)
        case (str(name), Mapping() as options):
            return ProviderRequest(name, dict(options))
    raise OptionError(
        f"a provider is given as {entry!r}; expected a name, a (name, options) pair, "
        "or onnxplug.provider(…)"
    )
