"""Which devices the DirectML EP drives, and what may be missing for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from onnxplug import ep
from onnxplug_directml import __version__
from onnxplug_directml.installation import find_directml, problem
from onnxplug_directml.options import OPTIONS, Settings, read_settings
from onnxplug_directml.spaces import SPACE, DmlSpaces

if TYPE_CHECKING:
    from onnxplug_directml.device.context import DmlContext

MICROSOFT: Final = 0x1414
"""The maker's PCI vendor id."""

SOFTWARE: Final = "ONNXPLUG_DIRECTML_SOFTWARE"
"""The environment variable by which tests get an adapter that computes on the
processor."""

_KINDS: Final = frozenset({ep.DeviceType.GPU, ep.DeviceType.NPU})


class DmlVerification(ep.Verification):
    """Has adapters checked before they are used, of which the makers have none."""

    compile_seconds = 30.0

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of operators."""
        from onnxplug_directml.probes import probes

        return probes(device)


class DmlFactory(ep.EpFactory):
    """Drives GPUs and NPUs by DirectML.

    Listing devices loads no library of Windows.
    """

    spi_version = (1, 0)
    name = "DmlExecutionProvider"
    vendor = "Microsoft"
    vendor_id = MICROSOFT
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {}
    verification: ep.Verification | None = DmlVerification()

    memory_spaces: DmlSpaces

    def __init__(self) -> None:
        self.memory_spaces = DmlSpaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """GPUs and NPUs; adapters of software are none of them, unless the environment
        asks for one, which is then a pair with the processor, for who names the EP.

        Which of them DXGI counts as which is told when one is used, so a pair suggests
        ``device_id`` -1, its own, and looks for its own kind.
        """
        reason, metadata = problem(), {"version": self.version}
        if not reason:
            try:
                metadata["engine_version"] = find_directml().version
            except RuntimeError as error:
                reason = str(error)
        for device in devices:
            if device.type not in _KINDS:
                if not reason and os.environ.get(SOFTWARE) == "1":
                    yield from self._software(device, metadata)
                continue
            if reason:
                yield ep.RefusedDevice(device=device, reason=reason)
                continue
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata=metadata,
                default_options={
                    "device_id": "-1",
                    "device_filter": str(device.type.value),
                },
            )

    def _software(
        self, processor: ep.HardwareDevice, metadata: Mapping[str, str]
    ) -> Iterable[ep.EpDevice]:
        """The first adapter of software that DXGI lists."""
        listed = [each for each in self.memory_spaces.adapters("") if each.in_dxgi]
        for number, adapter in enumerate(listed):
            if adapter.is_software:
                yield ep.EpDevice(
                    ep_name=self.name,
                    ep_vendor=self.vendor,
                    device=processor,
                    metadata={**metadata, "adapter": adapter.name},
                    default_options={"device_id": str(number)},
                    by_name_only=True,
                )
                return

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: none of the devices is an adapter that options ask for, or
                there is no such DirectML.dll, or another one is used in this process
                already.
            RuntimeError: DirectML is missing, or too old for the EP.
        """
        settings = read_settings(options)
        place = self._chosen(devices, settings)
        context = self._context(place, session)
        from onnxplug_directml.graph_files import GraphFiles
        from onnxplug_directml.provider import DmlProvider

        device = context.device
        if settings.spins:
            device.spins = True
        if device.adapter.is_software:
            session.logger.warning(
                "%s runs on %s, which computes on the processor and is slower than the "
                "CPU EP; it is for tests",
                self.name,
                device,
            )
        files = GraphFiles(session.model_path) if settings.writes_graphs else None
        return DmlProvider(
            context, settings, session.logger, files, session.find_kernel
        )

    def _chosen(self, devices: Sequence[ep.EpDevice], settings: Settings) -> int:
        """The place of the adapter among all."""
        from onnxplug_directml.device.adapters import choose

        adapters = self.memory_spaces.adapters(settings.dll_path)
        hardware = [pair.device for pair in devices]
        number = settings.number
        try:
            return choose(
                adapters, hardware, number, settings.kinds, settings.preference
            )
        except LookupError as error:
            if number >= 0:
                raise ep.OptionError(
                    f"option 'device_id' is {number}: {error}"
                ) from error
            raise ep.OptionError(
                f"options 'device_filter' and 'performance_preference': {error}"
            ) from error

    def _context(self, place: int, session: ep.SessionContext) -> DmlContext:
        from onnxplug_directml.device.context import DmlContext
        from onnxplug_directml.device.features import level_name
        from onnxplug_directml.lowering.target import LEAST_LEVEL

        context = session.context(ep.MemoryLocation(SPACE, place))
        assert isinstance(context, DmlContext)
        level = context.device.target.level
        if level < LEAST_LEVEL:
            raise RuntimeError(
                f"DirectML has feature level {level_name(level)} on {context.device}, "
                f"and the EP needs {level_name(LEAST_LEVEL)}; bring a newer "
                "DirectML.dll beside the program, or name one with the option "
                "'dll_path'"
            )
        return context

    def diagnose(self) -> Iterable[ep.Finding]:
        """Windows, the DirectML.dll, and the adapters."""
        from onnxplug_directml.diagnosis import findings

        return findings()

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """All that can be lowered."""
        from onnxplug_directml.operators import operators

        return operators()

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The version of the DirectML.dll that is taken without ``dll_path``."""
        try:
            version = "" if problem() else find_directml().version
        except RuntimeError:
            return {}
        return {"DirectML": version} if version else {}
