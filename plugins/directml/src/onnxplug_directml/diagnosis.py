"""What ``onnxplug doctor`` says of Windows, of DirectML, and of adapters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_CREATE_DEVICE_FLAGS, DML_FEATURE_LEVEL
from onnxplug_directml.com.errors import ComError
from onnxplug_directml.com.libraries import UPDATE, Libraries
from onnxplug_directml.device.adapters import Adapter, find_adapters, opened
from onnxplug_directml.device.features import level_name, level_of
from onnxplug_directml.installation import find_directml, problem, system_name
from onnxplug_directml.lowering.target import LEAST_LEVEL

_ELSEWHERE: Final = "use an EP for this system: `onnxplug eps` lists those installed"
_DRIVER: Final = "install or update the adapter's driver from its maker"


def findings() -> Iterator[ep.Finding]:
    """The system, the DirectML.dll that is used, and each adapter; makes a device on
    each adapter of hardware, and releases it."""
    reason = problem()
    if reason:
        yield ep.Finding(level=ep.Level.ERROR, message=reason, remedy=_ELSEWHERE)
        return
    yield ep.Finding(level=ep.Level.OK, message=system_name())
    try:
        found = find_directml()
    except RuntimeError as error:
        yield ep.Finding(level=ep.Level.ERROR, message=str(error), remedy=UPDATE)
        return
    yield ep.Finding(level=ep.Level.OK, message=f"{found}, {found.origin}")
    libraries = Libraries(str(found.path))
    try:
        adapters = find_adapters(libraries)
    except (RuntimeError, ComError) as error:
        yield ep.Finding(
            level=ep.Level.ERROR,
            message=f"Windows does not list its adapters: {error}",
            remedy=_DRIVER,
        )
        return
    yield from _of_adapters(libraries, adapters)


def _of_adapters(
    libraries: Libraries, adapters: Sequence[Adapter]
) -> Iterator[ep.Finding]:
    if all(adapter.is_software for adapter in adapters):
        yield ep.Finding(
            level=ep.Level.ERROR,
            message="Windows has no adapter of hardware for Direct3D 12",
            remedy=_DRIVER,
        )
    for adapter, name in zip(adapters, _names(adapters), strict=True):
        if not adapter.is_software:
            yield _of_adapter(libraries, adapter, name)


def _names(adapters: Sequence[Adapter]) -> Iterator[str]:
    """Adapters as the options that choose them have it."""
    npus = 0
    for number, adapter in enumerate(adapters):
        if adapter.kind is ep.DeviceType.NPU:
            yield f"{adapter} (device_filter npu, device_id {npus})"
            npus += 1
        elif adapter.in_dxgi:
            yield f"{adapter} (device_id {number})"
        else:
            yield f"{adapter} ({adapter.kind}, for sessions on this device)"


def _of_adapter(libraries: Libraries, adapter: Adapter, name: str) -> ep.Finding:
    remedy = _DRIVER
    try:
        with contextlib.ExitStack() as ends:
            native = ends.enter_context(opened(libraries, adapter))
            device = ends.enter_context(
                libraries.D3D12CreateDevice(native, adapter.level)
            )
            remedy = UPDATE
            directml = ends.enter_context(
                libraries.DMLCreateDevice1(
                    device, DML_CREATE_DEVICE_FLAGS.NONE, DML_FEATURE_LEVEL.LEVEL_1_0
                )
            )
            level = level_of(directml)
    except (ComError, RuntimeError, LookupError) as error:
        return ep.Finding(
            level=ep.Level.WARNING,
            message=f"{name} cannot be used: {error}",
            remedy=remedy,
        )
    message = f"{name}: feature level {level_name(level)}"
    if level < LEAST_LEVEL:
        return ep.Finding(
            level=ep.Level.WARNING,
            message=f"{message}, and the EP needs {level_name(LEAST_LEVEL)}",
            remedy=UPDATE,
        )
    return ep.Finding(level=ep.Level.OK, message=message)
