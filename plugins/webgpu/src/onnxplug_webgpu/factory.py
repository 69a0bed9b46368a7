"""Which devices the WebGPU EP drives, and what may be missing for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_webgpu import __version__
from onnxplug_webgpu.adapters import (
    INSTALL,
    NO_ADAPTER,
    Adapter,
    choose,
    find_adapters,
    import_wgpu,
    installed_version,
    software_drivers,
)
from onnxplug_webgpu.options import OPTIONS

if TYPE_CHECKING:
    from onnxplug_compiler.gpu.execution.context import GpuContext
    from onnxplug_webgpu.device import Device

SPACE: Final = "webgpu"
"""The name of the memories."""


class WebGpuSpaces(ep.MemorySpaces):
    """The memories of adapters, by their places in the list of them."""

    owned = frozenset({SPACE})

    def __init__(self) -> None:
        self._adapters: list[Adapter] | None = None
        self._devices: dict[int, Device] = {}
        self._lock = new_rlock()

    def adapters(self) -> list[Adapter]:
        """Those that there are, looked for once.

        Raises:
            RuntimeError: wgpu is missing, or too old.
        """
        with self._lock:
            if not self._adapters:
                self._adapters = find_adapters(import_wgpu())
            return self._adapters

    def create_context(self, location: ep.MemoryLocation) -> GpuContext:
        """The memory of an adapter's device, which is there as long as the process: a
        driver makes another slowly, and wgpu lets go of one late.

        Raises:
            LookupError: there is no such adapter.
            RuntimeError: wgpu is missing or too old, or the driver gives no device.
        """
        adapters = self.adapters()
        if location.ordinal >= len(adapters):
            raise LookupError(
                f"there is no adapter {location.ordinal}; found "
                f"{'; '.join(map(str, adapters)) or 'none'}; {NO_ADAPTER}"
            )
        from onnxplug_compiler.gpu.execution.context import GpuContext
        from onnxplug_webgpu.backend import BACKEND
        from onnxplug_webgpu.device import Device

        number = location.ordinal
        with self._lock:
            if number not in self._devices:
                self._devices[number] = Device(import_wgpu(), adapters[number])
            return GpuContext(self._devices[number], location, BACKEND)


class WebGpuVerification(ep.Verification):
    """Has drivers checked that are not those of tests."""

    compile_seconds = 20.0

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of kernels; none where there are drivers of software,
        which tests are for."""
        if device.device.type is ep.DeviceType.CPU and software_drivers():
            return []
        from onnxplug_compiler.gpu.probes import probes

        return probes()


class WebGpuFactory(ep.EpFactory):
    """Drives GPUs by WebGPU.

    Listing devices loads no driver, nor wgpu.
    """

    spi_version = (1, 0)
    name = "WebGpuExecutionProvider"
    vendor = "onnxplug"
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "Mesa's software Vulkan on x86-64 processors, on Linux",
        ep.DeviceType.GPU: "NVIDIA's H200 by Vulkan, on Linux",
    }
    verification = WebGpuVerification()

    def __init__(self) -> None:
        self.memory_spaces = self._spaces = WebGpuSpaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """GPUs; and the processor for whoever names the EP, as an adapter may be of
        software, or not be among the devices that the system lists."""
        version, problem = installed_version()
        software = [path.name for path in software_drivers()]
        for device in devices:
            is_processor = device.type is ep.DeviceType.CPU
            if not is_processor and device.type is not ep.DeviceType.GPU:
                continue
            if problem:
                yield ep.RefusedDevice(device=device, reason=problem, remedy=INSTALL)
                continue
            metadata = {"version": self.version, "engine_version": version}
            if is_processor:
                metadata["adapter"] = (
                    f"software, by {', '.join(software)}"
                    if software
                    else "whichever wgpu finds"
                )
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata=metadata,
                by_name_only=is_processor,
            )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: there is no adapter of that number.
            LookupError: wgpu does not find the device.
            RuntimeError: wgpu is missing or too old, or finds no adapter.
        """
        adapters = self._spaces.adapters()
        if not adapters:
            raise RuntimeError(f"wgpu finds no adapter; {NO_ADAPTER}")
        number = int(options["deviceId"])
        try:
            adapter = choose(
                adapters,
                [pair.device for pair in devices],
                number,
                str(options["powerPreference"]),
            )
        except LookupError as error:
            if number >= 0:
                raise ep.OptionError(
                    f"option 'deviceId' is {number}: {error}"
                ) from error
            raise
        if adapter.is_software:
            session.logger.warning(
                "%s runs on %s, which computes on the processor and is slower than the "
                "CPU EP; it is for tests",
                self.name,
                adapter,
            )
        from onnxplug_compiler.gpu.execution.context import GpuContext
        from onnxplug_webgpu.device import Device
        from onnxplug_webgpu.provider import WebGpuProvider
        from onnxplug_webgpu.settings import settings_of
        from onnxplug_webgpu.tuning import chosen_shapes

        location = ep.MemoryLocation(SPACE, adapters.index(adapter))
        context = session.context(location)
        assert isinstance(context, GpuContext)
        device = context.device
        assert isinstance(device, Device)
        device.ensure()
        weights = session.weights(location)
        shapes = chosen_shapes(str(options["autotune"]), device, session.logger)
        return WebGpuProvider(context, weights, settings_of(options, shapes))

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether wgpu is there, which adapters it finds, and what others lack."""
        _, problem = installed_version()
        if problem:
            yield ep.Finding(level=ep.Level.ERROR, message=problem, remedy=INSTALL)
            return
        try:
            adapters = self._spaces.adapters()
        # a driver that is broken raises what it likes; it is what is asked for here
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=f"wgpu finds no adapters: {type(error).__name__}: {error}",
                remedy=NO_ADAPTER,
            )
            return
        from onnxplug_webgpu.diagnosis import findings

        yield from findings(import_wgpu(), adapters)

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The version of wgpu."""
        version, _ = installed_version()
        return {"wgpu": version} if version else {}
