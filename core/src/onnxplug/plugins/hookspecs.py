"""The hooks that a plugin implements, all but the first optional."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pluggy

from onnxplug.ep import EpFactory, HardwareDevice, Host, SelectionPolicy

hookspec = pluggy.HookspecMarker("onnxplug")


@hookspec(firstresult=True)
def onnxplug_ep_factories(host: Host) -> Iterable[EpFactory]:  # type: ignore[empty-body]
    """The library's factories, one per EP.

    Called once, when the first of the library's EPs is needed.  The name of each entry
    point of the library is that of one of the factories.
    """


@hookspec(firstresult=True)
def onnxplug_probe_hardware(host: Host) -> Iterable[HardwareDevice]:  # type: ignore[empty-body]
    """(optional) Devices that the host cannot find by itself; loads no driver."""


@hookspec(firstresult=True)
def onnxplug_selection_policies() -> Mapping[str, SelectionPolicy]:  # type: ignore[empty-body]
    """(optional) Selection policies by name."""
