"""Which devices the CoreML EP drives, and what may be missing for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from onnxplug import ep
from onnxplug_coreml import __version__
from onnxplug_coreml.diagnosis import findings
from onnxplug_coreml.formats import (
    engine_version,
    lack_for,
    preferred_formats,
    usable_formats,
)
from onnxplug_coreml.machine import this_machine
from onnxplug_coreml.options import OPTIONS, read_settings

_APPLE = 0x106B


class CoreMLVerification(ep.Verification):
    """Has Macs checked, of which the makers have none."""

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of operators; none where it was tested."""
        if not this_machine().is_mac:
            return []
        from onnxplug_coreml.probes import probes

        return probes(device)


class CoreMLFactory(ep.EpFactory):
    """Drives what a Mac computes with: its processor, its GPU, its Neural Engine.

    Elsewhere there is Core AI's runtime for processors, with which models can be tried.
    Listing devices imports no engine.
    """

    spi_version = (1, 0)
    name = "CoreMLExecutionProvider"
    vendor = "Apple"
    vendor_id = _APPLE
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "x86-64 processors, on Linux, by Core AI's runtime"
    }
    verification = CoreMLVerification()

    def __init__(self) -> None:
        self._chip = ""

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """All of a Mac's; elsewhere the processor, for those who name the EP."""
        machine = this_machine()
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                self._chip = device.metadata.get("Description", "")
            formats = usable_formats(machine, device.type)
            if not formats:
                lack = lack_for(preferred_formats(machine)[0], machine, device.type)
                assert lack is not None
                yield ep.RefusedDevice(
                    device=device, reason=lack.reason, remedy=lack.remedy
                )
                continue
            engine, version = engine_version(formats[0])
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata={
                    "version": self.version,
                    "engine": engine,
                    "engine_version": version,
                    "model_formats": ",".join(formats),
                },
                default_options={"ModelFormat": formats[0]},
                by_name_only=not machine.is_mac,
            )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: options contradict each other, or do not fit the device.
            RuntimeError: the engine of the format cannot be used here.
        """
        machine = this_machine()
        settings = read_settings(devices, options, preferred_formats(machine)[0])
        for pair in devices:
            lack = lack_for(settings.model_format, machine, pair.device.type)
            if lack is not None:
                raise ep.OptionError(
                    f"option 'ModelFormat' is {settings.model_format}, which cannot "
                    f"be used here: {lack}"
                )
        from onnxplug_coreml.provider import CoreMLProvider

        return CoreMLProvider(settings, machine, session.logger)

    def diagnose(self) -> Iterable[ep.Finding]:
        """The Mac, and which engines can be used."""
        return findings(this_machine(), self._chip)

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """All that can be lowered for an engine."""
        from onnxplug_coreml.operators import operators

        return operators()

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """Those of both engines, and of the system, which compiles models."""
        machine = this_machine()
        versions = dict(map(engine_version, preferred_formats(machine)))
        if machine.is_mac:
            versions["macOS"] = machine.release
        return {name: version for name, version in versions.items() if version}
