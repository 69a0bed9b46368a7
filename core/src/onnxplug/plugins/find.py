"""Finds the plugins of installed distributions; imports none of them."""

from __future__ import annotations

from typing import Final

from onnxplug.plugins.advertised import FoundPlugin, find_advertised
from onnxplug.plugins.installed import installed_distributions

GROUP: Final = "onnxplug.execution_providers"
"""The entry-point group: the name is the EP's name, the value a module with hooks."""

WHEELS: Final = "onnxruntime-ep-"
"""What the names of wheels begin with that have native EPs made for ONNX Runtime."""


def find_plugins(group: str) -> list[FoundPlugin]:
    """What is advertised in *group*, and native EPs with the EPs, sorted by name."""
    distributions = installed_distributions()
    found = find_advertised(group, distributions)
    if group == GROUP:
        wheels = [each for each in distributions or () if each.name.startswith(WHEELS)]
        if wheels:
            from onnxplug.plugins.wheels import find_in_wheels

            found += find_in_wheels(wheels)
    return sorted(found, key=lambda plugin: (plugin.name, plugin.module))
