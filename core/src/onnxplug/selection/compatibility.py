"""What is kept of EPs and devices depends on, and whether it is of use here."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.authoring.compilers import SameCompiler
from onnxplug.ep import Compatibility, CompatibilityCheck, EpDevice, EpFactory
from onnxplug.guard import FAILURES, ep_failure

_LARGEST_INFO: Final = 1 << 20

_VOLATILE: Final = ("LUID",)
"""Facts of devices that are others after each start of the system."""


def compatibility_info(factory: EpFactory, device: EpDevice) -> str:
    """What partitions that *factory*'s EP compiles for *device* depend on.

    Raises:
        EpError: the EP failed to say.
    """
    try:
        info = _check_of(factory).compatibility_info(device)
        if not isinstance(info, str) or len(info) > _LARGEST_INFO:
            raise TypeError(f"it returned {info!r:.200}; expected a short text")
        info.encode()
    except FAILURES as error:
        raise ep_failure(factory.name, "compatibility_info", error) from error
    return info


def _check_of(factory: EpFactory) -> CompatibilityCheck:
    return factory.compatibility or SameCompiler(factory)


def check_compatibility(
    factory: EpFactory, device: EpDevice, info: str
) -> tuple[Compatibility, str]:
    """Whether what *info* is of can be restored on *device*, and why not.

    Raises:
        EpError: the EP failed to say.
    """
    try:
        verdict, reason = _check_of(factory).check(device, info)
        if not isinstance(verdict, Compatibility) or not isinstance(reason, str):
            raise TypeError(
                f"it returned {verdict!r} and {reason!r}; expected a Compatibility and "
                "a text"
            )
    except FAILURES as error:
        raise ep_failure(factory.name, "check", error) from error
    return verdict, reason or "the EP does not say why"


def lasting_facts(pair: EpDevice) -> dict[str, Any]:
    """What is known of *pair* as plain data, to be compared with later processes'."""
    device = pair.device
    return {
        "device": [str(device.type), device.vendor_id, device.device_id],
        "vendor": device.vendor,
        "metadata": {k: v for k, v in device.metadata.items() if k not in _VOLATILE},
        "pair": dict(pair.metadata),
    }
