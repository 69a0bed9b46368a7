"""Which EPs a session uses, and with which options.

Names are imported when they are first asked for; functions that are named as their
module are had from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxplug.selection.available import Availability
    from onnxplug.selection.choose import (
        ChosenEp,
        FailedEp,
        SessionContext,
        do_without,
    )
    from onnxplug.selection.defaults import (
        get_default_providers,
        set_default_providers,
    )
    from onnxplug.selection.delegate import adapt_delegate
    from onnxplug.selection.enumerate import ep_devices
    from onnxplug.selection.options import parse_options
    from onnxplug.selection.order import CPU, order_devices
    from onnxplug.selection.policy import (
        OrtExecutionProviderDevicePolicy,
        model_info,
    )
    from onnxplug.selection.request import (
        Origin,
        ProviderRequest,
        for_devices,
        normalise,
        provider,
    )

_HOME: Final = {
    "available": ("Availability",),
    "choose": ("ChosenEp", "FailedEp", "SessionContext", "do_without"),
    "defaults": ("get_default_providers", "set_default_providers"),
    "delegate": ("adapt_delegate",),
    "enumerate": ("ep_devices",),
    "options": ("parse_options",),
    "order": ("CPU", "order_devices"),
    "policy": ("OrtExecutionProviderDevicePolicy", "model_info"),
    "request": ("Origin", "ProviderRequest", "for_devices", "normalise", "provider"),
}
"""Module of this package to the names that it lends to it."""

__all__ = [
    "CPU",
    "Availability",
    "ChosenEp",
    "FailedEp",
    "Origin",
    "OrtExecutionProviderDevicePolicy",
    "ProviderRequest",
    "SessionContext",
    "adapt_delegate",
    "do_without",
    "ep_devices",
    "for_devices",
    "get_default_providers",
    "model_info",
    "normalise",
    "order_devices",
    "parse_options",
    "provider",
    "set_default_providers",
]


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOME.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
