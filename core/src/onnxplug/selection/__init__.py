"""Which EPs a session uses, and with which options.

What a session without a policy does not need is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnxplug.selection.choose import (
    ChosenEp,
    FailedEp,
    SessionContext,
    choose,
    do_without,
)
from onnxplug.selection.defaults import (
    defaults,
    get_default_providers,
    set_default_providers,
)
from onnxplug.selection.options import parse_options
from onnxplug.selection.order import CPU, order_devices
from onnxplug.selection.request import (
    Origin,
    ProviderRequest,
    for_devices,
    normalise,
    provider,
)
from onnxplug.selection.resolve import resolve

if TYPE_CHECKING:
    from onnxplug.selection.available import Availability
    from onnxplug.selection.delegate import adapt_delegate
    from onnxplug.selection.enumerate import ep_devices
    from onnxplug.selection.policy import (
        OrtExecutionProviderDevicePolicy,
        model_info,
    )

_HOME: Final = {
    "Availability": "onnxplug.selection.available",
    "OrtExecutionProviderDevicePolicy": "onnxplug.selection.policy",
    "adapt_delegate": "onnxplug.selection.delegate",
    "ep_devices": "onnxplug.selection.enumerate",
    "model_info": "onnxplug.selection.policy",
}

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
    "choose",
    "defaults",
    "do_without",
    "ep_devices",
    "for_devices",
    "get_default_providers",
    "model_info",
    "normalise",
    "order_devices",
    "parse_options",
    "provider",
    "resolve",
    "set_default_providers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
