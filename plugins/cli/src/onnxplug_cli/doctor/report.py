"""All that the doctor finds: versions, settings, hardware, plugins, what is missing."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onnxplug import __version__
from onnxplug.authoring import cache
from onnxplug.ep import SPI_VERSION, DeviceType, HardwareDevice, raise_interruption
from onnxplug.errors import OptionError
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRecord, PluginState, registry
from onnxplug.plugins.domains import Supplier
from onnxplug.plugins.settings import AUTOLOAD, BLOCK, PLUGINS, STRICT, VERIFY
from onnxplug.selection.devices import merge_hardware
from onnxplug.selection.known import (
    KNOWN,
    KnownEp,
    canonical,
    remedy,
    runs_on,
    this_platform,
)
from onnxplug_cli.doctor.checkup import Checkup, examine
from onnxplug_cli.doctor.domains import DomainCheckup, conflicts, examine_domain
from onnxplug_cli.doctor.isolate import (
    examine_domain_isolated,
    examine_isolated,
    try_library_isolated,
)
from onnxplug_cli.failure import UsageError
from onnxplug_cli.library import register_libraries
from onnxplug_cli.progress import Progress

_NEEDED: Final = ("numpy", "onnx")
"""Packages without which nothing runs."""

_VARIABLES: Final = (
    AUTOLOAD,
    BLOCK,
    PLUGINS,
    STRICT,
    VERIFY,
    cache.DIRECTORY,
    cache.SIZE,
)

_NVIDIA: Final = 0x10DE
_INTEL: Final = 0x8086

_DRIVES: Final[Mapping[str, Mapping[DeviceType, int]]] = {
    "CUDAExecutionProvider": {DeviceType.GPU: _NVIDIA},
    "OpenVINOExecutionProvider": {DeviceType.GPU: _INTEL, DeviceType.NPU: _INTEL},
    "CoreMLExecutionProvider": {DeviceType.GPU: 0, DeviceType.NPU: 0},
    "DmlExecutionProvider": {DeviceType.GPU: 0, DeviceType.NPU: 0},
    "CPUExecutionProvider": {DeviceType.CPU: 0},
}
"""What to suggest for which hardware: kinds of devices, and their maker; 0: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A device that no EP drives which works here.

    Attributes:
        ep: one that would; empty when onnxplug knows of none.
        distribution: what supplies it.
        remedy: what to do.
    """

    device: HardwareDevice
    ep: str = ""
    distribution: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the doctor found.

    Attributes:
        python: its version; *executable* says which one it is.
        packages: versions of what onnxplug needs; an empty one cannot be imported.
        settings: environment variables of onnxplug that are set.
        hints: what may be wrong with them; no problems in themselves.
        isolated: each plugin was checked in a process of its own.
        problems: one line each; none when all is well.
    """

    onnxplug: str
    spi: str
    python: str
    executable: str
    platform: str
    packages: Mapping[str, str]
    settings: Mapping[str, str]
    hints: Sequence[str]
    hardware: Sequence[HardwareDevice]
    plugins: Sequence[Checkup]
    domains: Sequence[DomainCheckup]
    missing: Sequence[Missing]
    isolated: bool
    problems: Sequence[str]


def examine_all(
    timeout: float | None,
    libraries: Sequence[str] = (),
    options: Sequence[tuple[str, str, str]] = (),
) -> Report:
    """Check everything; with a *timeout*, each plugin in a process of its own.

    Args:
        options: of EPs, for what they compute: the EP, the key and the value.
        libraries: those to register for this command.  Such a process registers them,
            too; one that does not survive it is not registered here.

    Raises:
        UsageError: an option is of an EP that is not installed.
    """
    lost = _lost_libraries(libraries, timeout)
    libraries = [each for each in libraries if each not in lost]
    register_libraries(libraries)
    packages, problems = _packages()
    settings = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("ONNXPLUG_")
    }
    try:
        records = registry.records()
        suppliers = registry.domains.all_suppliers()
    except OptionError as error:
        records, suppliers = [], []
        problems.append(str(error))
    given = _by_ep(options, records)
    plugins = [*_plugins(records, timeout, libraries, given), *lost.values()]
    domains = _domains(suppliers, timeout)
    problems += [f"{one.ep}: {one.problem}" for one in plugins if one.problem]
    if not any(one.works for one in plugins) and not problems:
        problems.append(
            "no EP is installed that works; onnxplug-cpu supplies the CPU's"
        )
    problems += [each.problem for each in domains if each.problem]
    problems += conflicts(domains)
    probed = [device for one in plugins for device in one.probed]
    hardware = merge_hardware(discover(), probed)
    return Report(
        onnxplug=__version__,
        spi=".".join(map(str, SPI_VERSION)),
        python=platform.python_version(),
        executable=sys.executable,
        platform=platform.platform(),
        packages=packages,
        settings=settings,
        hints=_hints(settings),
        hardware=hardware,
        plugins=plugins,
        domains=domains,
        missing=_missing(hardware, plugins),
        isolated=timeout is not None,
        problems=problems,
    )


def _packages() -> tuple[dict[str, str], list[str]]:
    versions: dict[str, str] = {}
    problems = []
    for name in _NEEDED:
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        # a package that is broken may raise anything
        except Exception as error:  # noqa: BLE001
            raise_interruption(error)
            versions[name] = ""
            problems.append(f"{name} cannot be imported: {error}")
    return versions, problems


def _lost_libraries(
    libraries: Sequence[str], timeout: float | None
) -> dict[str, Checkup]:
    """Those that end the process which registers them, and how."""
    if timeout is None:
        return {}
    tried = {each: try_library_isolated(each, timeout) for each in libraries}
    return {each: checkup for each, checkup in tried.items() if checkup is not None}


def _by_ep(
    options: Sequence[tuple[str, str, str]], records: Sequence[PluginRecord]
) -> dict[str, dict[str, str]]:
    installed = {record.name for record in records}
    found: dict[str, dict[str, str]] = {}
    for ep, key, value in options:
        name = canonical(ep, registry)
        if name not in installed:
            raise UsageError(
                f"--ep-option {ep}.{key} is for {ep}, which is not installed; "
                f"installed are {', '.join(sorted(installed)) or 'none'}"
            )
        found.setdefault(name, {})[key] = value
    return found


def _plugins(
    records: Sequence[PluginRecord],
    timeout: float | None,
    libraries: Sequence[str],
    options: Mapping[str, Mapping[str, str]],
) -> Sequence[Checkup]:
    plugins = []
    with Progress("") as progress:
        for record in records:
            progress.text = f"checking {record.name} …"
            given = options.get(record.name, {})
            # another process knows only of what is installed, or registered there
            alone = record.state is PluginState.FOUND and record.suppliers
            registered = record.state is PluginState.READY and record.handles
            if timeout is not None and (alone or (libraries and registered)):
                plugins.append(examine_isolated(record, timeout, libraries, given))
                continue
            # what a plugin prints is no result of ours
            with contextlib.redirect_stdout(sys.stderr):
                *_, last = examine(record, registry, given)
            plugins.append(last)
    return plugins


def _domains(
    suppliers: Sequence[Supplier], timeout: float | None
) -> Sequence[DomainCheckup]:
    domains = []
    with Progress("") as progress:
        for supplier in suppliers:
            progress.text = f"checking {supplier} …"
            if timeout is not None and supplier.state is PluginState.FOUND:
                domains.append(examine_domain_isolated(supplier, timeout))
                continue
            # what a plugin prints is no result of ours
            with contextlib.redirect_stdout(sys.stderr):
                domains.append(examine_domain(supplier))
    return domains


def _hints(settings: Mapping[str, str]) -> list[str]:
    hints = []
    for name in settings:
        near = difflib.get_close_matches(name, _VARIABLES, n=1, cutoff=0.8)
        if near and name not in _VARIABLES:
            hints.append(f"{name} has no meaning; did you mean {near[0]}?")
    return hints


def _missing(
    hardware: Sequence[HardwareDevice], plugins: Sequence[Checkup]
) -> list[Missing]:
    driven = [each.device for one in plugins if one.works for each in one.devices]
    known = {one.ep: one for one in plugins}
    return [
        _what_would_drive(device, known) for device in hardware if device not in driven
    ]


def _what_would_drive(
    device: HardwareDevice, plugins: Mapping[str, Checkup]
) -> Missing:
    for one in plugins.values():
        for refused in one.refused:
            if refused.device == device and refused.remedy:
                todo = f"{one.ep} refuses it: {refused.reason}; {refused.remedy}"
                distribution = one.distribution
                return Missing(
                    device=device, ep=one.ep, distribution=distribution, remedy=todo
                )
    ep = next((ep for ep in KNOWN if _may_drive(ep, device)), None)
    if ep is None:
        return Missing(device=device, remedy="no distribution of onnxplug drives it")
    if ep.name in plugins:
        state = plugins[ep.name].state
        todo = f"{ep.name} would drive it; it is installed and {state}, see above"
    else:
        todo = remedy(ep.name, [one.ep for one in plugins.values() if one.works])
        if not ep.distribution:
            todo = f"{ep.name} would drive it; {todo}"
    return Missing(device=device, ep=ep.name, distribution=ep.distribution, remedy=todo)


def _may_drive(ep: KnownEp, device: HardwareDevice) -> bool:
    maker = _DRIVES.get(ep.name, {}).get(device.type)
    return maker in (0, device.vendor_id) and runs_on(ep, *this_platform())
