"""The EPs of the whole process, which sessions use after their own.

Invariant: what is set affects sessions created later, never those that exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.authoring.locks import new_lock
from onnxplug.selection.request import (
    Origin,
    ProviderEntry,
    ProviderRequest,
    normalise,
)


class DefaultProviders:
    """EPs that sessions use after their own.  Every method may be called anywhere."""

    def __init__(self) -> None:
        self._requests: tuple[ProviderRequest, ...] = ()
        self._were_used = False
        self._lock = new_lock()

    def set(self, requests: Sequence[ProviderRequest]) -> None:
        """Use *requests* for the sessions created from now on."""
        with self._lock:
            self._requests = tuple(requests)
            sessions_exist = self._were_used
        if sessions_exist:
            import logging

            logging.getLogger("onnxplug.selection").info(
                "the default providers are now %s; sessions created before keep theirs",
                ", ".join(request.name for request in requests) or "none",
            )

    def get(self) -> tuple[ProviderRequest, ...]:
        """What was set last."""
        return self._requests

    @property
    def are_untouched(self) -> bool:
        """Whether there are none, and no session asked for them yet."""
        return not (self._requests or self._were_used)

    def take(self) -> tuple[ProviderRequest, ...]:
        """What was set last, for a session that is being created."""
        with self._lock:
            self._were_used = True
            return self._requests


defaults = DefaultProviders()
"""Those of this process."""


def set_default_providers(
    providers: str | Sequence[ProviderEntry] | None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Set the EPs that every session created later uses after its own.

    The forms are those of ``InferenceSession``; ``None`` or nothing in the list means
    none.  A name is looked up when a session is created.

    Raises:
        OptionError: an entry is of no known form, or the two lists do not fit.
    """
    defaults.set(
        [
            request._replace(origin=Origin.GLOBAL)
            for request in normalise(providers, provider_options)
        ]
    )


def get_default_providers() -> list[ProviderRequest]:
    """What ``set_default_providers`` set last, in its own long form."""
    return list(defaults.get())
