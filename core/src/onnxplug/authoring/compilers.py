"""What compiled partitions depend on, as text, and how two such texts differ."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from onnxplug.ep.compatibility import Compatibility, CompatibilityCheck
from onnxplug.ep.devices import EpDevice
from onnxplug.ep.factory import EpFactory

_FORMAT: Final = 1


class SameCompiler(CompatibilityCheck):
    """Has restored what the same compiler made: the same EP and engine, in the same
    versions, on the same system, for the same model of device.

    Args:
        factory: the EP's.
    """

    def __init__(self, factory: EpFactory) -> None:
        self._factory = factory

    def compatibility_info(self, device: EpDevice) -> str:
        """EP, engine, system and device, as JSON."""
        facts = {
            "format": _FORMAT,
            "ep": self._factory.name,
            "version": self._factory.version,
            "engine": dict(self._factory.engine_versions(device)),
            "system": platform.system(),
            "machine": platform.machine(),
            "device": _identity(device),
        }
        return json.dumps(facts, sort_keys=True)

    def portable(self, device: EpDevice) -> Collection[str]:
        """(optional) Facts, such as ``device description``, of which others just make
        it worth compiling anew.  Defaults to none."""
        return ()

    def check(self, device: EpDevice, info: str) -> tuple[Compatibility, str]:
        """Whatever differs makes it unsupported, but for what is :meth:`portable`."""
        own: dict[str, Any] = json.loads(self.compatibility_info(device))
        other = _read(info)
        if other is None:
            return (
                Compatibility.UNSUPPORTED,
                "what it says of its origin was not written by this EP, or was damaged",
            )
        if other.get("ep") != own["ep"]:
            return (
                Compatibility.NOT_APPLICABLE,
                f"it was compiled by {other.get('ep')}, not by {own['ep']}",
            )
        differences = dict(_differences(own, other))
        verdict = Compatibility.OPTIMAL
        if differences:
            verdict = Compatibility.RECOMPILE
        if not differences.keys() <= set(self.portable(device)):
            verdict = Compatibility.UNSUPPORTED
        return verdict, "; ".join(differences.values())


def _identity(device: EpDevice) -> dict[str, Any]:
    """What tells a model of device from others, and not one device of a model."""
    hardware = device.device
    return {
        "type": str(hardware.type),
        "vendor": hardware.vendor,
        "vendor_id": hardware.vendor_id,
        "device_id": hardware.device_id,
        "description": hardware.metadata.get("Description", ""),
    }


def _read(text: str) -> dict[str, Any] | None:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        return None
    return facts


def _differences(
    own: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The facts that are not the same, each with that in words."""
    for key in sorted({*own, *other}):
        here, there = own.get(key), other.get(key)
        if here == there:
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            for name in sorted({*here, *there}):
                if here.get(name) != there.get(name):
                    what = f"{key} {name}"
                    yield what, _difference(what, here.get(name), there.get(name))
        else:
            yield key, _difference(key, here, there)


def _difference(what: str, here: object, there: object) -> str:
    return f"it was compiled with {what} {_shown(there)}, and here it is {_shown(here)}"


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)[:200]
