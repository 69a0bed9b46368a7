"""Which EPs a session uses, and with which options."""

from onnxplug.selection.choose import CPU, ChosenEp, FailedEp, SessionContext, choose
from onnxplug.selection.options import parse_options
from onnxplug.selection.request import ProviderRequest, normalise, provider

__all__ = [
    "CPU",
    "ChosenEp",
    "FailedEp",
    "ProviderRequest",
    "SessionContext",
    "choose",
    "normalise",
    "parse_options",
    "provider",
]
