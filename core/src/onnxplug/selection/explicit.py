"""Checks pairs of EP and device that a user picked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.ep import EpDevice, HardwareDevice
from onnxplug.errors import OptionError
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins import registry as registry_of_process
from onnxplug.selection.devices import hardware_for, judged_devices
from onnxplug.selection.options import parse_options
from onnxplug.strictness import Strictness


def check_devices(
    ep_devices: Sequence[EpDevice],
    options: Mapping[str, Any],
    registry: PluginRegistry | None,
    hardware: Sequence[HardwareDevice] | None,
    strictness: Strictness,
) -> tuple[tuple[EpDevice, ...], str]:
    """The pairs, each once, and the name of their EP; see ``for_devices``.

    Raises:
        OptionError: they cannot be one request, or an option is not valid.
    """
    pairs = _pairs(ep_devices)
    names = list(dict.fromkeys(pair.ep_name for pair in pairs))
    if len(names) > 1:
        raise OptionError(
            "All OrtEpDevice values in ep_devices must have the same execution "
            f"provider.  Given are devices of {', '.join(names)}; add each EP's "
            "devices by a call of its own."
        )
    if registry is None:
        registry = registry_of_process
    if hardware is None:
        hardware = discover()
    (name,) = names
    factory = registry.factory(name)
    offered, refused = judged_devices(factory, hardware_for(registry, name, hardware))
    for pair in pairs:
        # facts about a pair, such as free memory, may change; the hardware does not
        if not any(pair.device == known.device for known in offered):
            for each in refused:
                if each.device == pair.device:
                    todo = f"; {each.remedy}" if each.remedy else ""
                    raise OptionError(f"{pair} cannot be used: {each.reason}{todo}")
            raise OptionError(
                f"{pair} is no device of this machine; {name} drives "
                f"{', '.join(map(str, offered)) or 'none'}"
            )
    parse_options(factory.name, factory.options, options, strictness=strictness)
    return pairs, name


def _pairs(ep_devices: Any) -> tuple[EpDevice, ...]:
    if isinstance(ep_devices, EpDevice):
        ep_devices = [ep_devices]
    pairs = list(ep_devices or ())
    if not pairs:
        raise OptionError(
            "Must provide one or more OrtEpDevice instances.  "
            "onnxplug.get_ep_devices() lists those of this machine."
        )
    for pair in pairs:
        if not isinstance(pair, EpDevice):
            raise OptionError(
                f"ep_devices holds {pair!r}; expected what get_ep_devices() gives"
            )
    unique: list[EpDevice] = []
    for pair in pairs:
        if pair not in unique:
            unique.append(pair)
    return tuple(unique)
