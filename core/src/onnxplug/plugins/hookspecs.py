"""The hooks that a plugin implements: the first, the last, or both, and what it likes
of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pluggy

from onnxplug.ep import Domain, EpFactory, HardwareDevice, Host, SelectionPolicy

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


@hookspec(firstresult=True)
def onnxplug_domains(host: Host) -> Iterable[Domain]:  # type: ignore[empty-body]
    """The domains whose operators the library supplies.

    Called once, when a model first uses an operator of one of them.  The name of each
    entry point of the library in the group ``onnxplug.domains`` is that of a domain.
    """
