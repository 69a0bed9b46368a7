"""Asks EPs what their compiled partitions depend on, and whether one fits."""

from __future__ import annotations

from typing import Final

from onnxplug.ep import Compatibility, EpDevice, EpFactory
from onnxplug.guard import FAILURES, ep_failure

_LARGEST_INFO: Final = 1 << 20


def compatibility_info(factory: EpFactory, device: EpDevice) -> str:
    """What partitions that *factory*'s EP compiles for *device* depend on.

    Raises:
        EpError: the EP failed to say.
    """
    try:
        info = factory.compatibility_info(device)
        if not isinstance(info, str) or len(info) > _LARGEST_INFO:
            raise TypeError(f"it returned {info!r:.200}; expected a short text")
        info.encode()
    except FAILURES as error:
        raise ep_failure(factory.name, "compatibility_info", error) from error
    return info


def check_compatibility(
    factory: EpFactory, device: EpDevice, info: str
) -> tuple[Compatibility, str]:
    """Whether what *info* is of can be restored on *device*, and why not.

    Raises:
        EpError: the EP failed to say.
    """
    try:
        verdict, reason = factory.check(device, info)
        if not isinstance(verdict, Compatibility) or not isinstance(reason, str):
            raise TypeError(
                f"it returned {verdict!r} and {reason!r}; expected a Compatibility and "
                "a text"
            )
    except FAILURES as error:
        raise ep_failure(factory.name, "check", error) from error
    return verdict, reason or "the EP does not say why"
