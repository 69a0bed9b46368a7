"""Which devices the TensorRT EP drives, and what may be missing for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from onnxplug import ep
from onnxplug_tensorrt import __version__
from onnxplug_tensorrt.driver import CurrentContext, find_device, load_driver
from onnxplug_tensorrt.installation import (
    find_tensorrt,
    import_tensorrt,
    install,
    problem,
)
from onnxplug_tensorrt.options import OPTIONS
from onnxplug_tensorrt.settings import check, read_settings

NVIDIA: Final = 0x10DE
"""The maker's PCI vendor id."""

SPACE: Final = "cuda"
"""The memories that TensorRT works in, which the CUDA EP owns."""


class TensorrtVerification(ep.Verification):
    """Has GPUs checked before they are used."""

    compile_seconds = 120.0

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of operators."""
        from onnxplug_tensorrt.probes import probes

        return probes()


class TensorrtFactory(ep.EpFactory):
    """Drives GPUs of NVIDIA by TensorRT.

    Listing devices loads neither TensorRT nor a driver.
    """

    spi_version = (1, 0)
    name = "TensorrtExecutionProvider"
    vendor = "NVIDIA"
    vendor_id = NVIDIA
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {}
    verification: ep.Verification | None = TensorrtVerification()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """GPUs of NVIDIA.

        Which of them CUDA counts as which is told by the driver, so a pair suggests
        ``device_id`` -1, its own.
        """
        found, wrong = find_tensorrt(), problem()
        for device in devices:
            if device.type is not ep.DeviceType.GPU or device.vendor_id != NVIDIA:
                continue
            if wrong or found is None:
                assert wrong is not None
                yield ep.RefusedDevice(
                    device=device, reason=wrong.reason, remedy=wrong.remedy
                )
                continue
            metadata = {"version": self.version}
            if found.version:
                metadata["engine_version"] = found.version
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata=metadata,
                default_options={"device_id": "-1"},
            )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: options contradict each other, ask for what the installed
                TensorRT has not, or for a GPU that there is not.
            LookupError: CUDA does not see the device.
            RuntimeError: TensorRT, the driver, or the CUDA EP, which owns the GPU's
                memory, is missing, or they do not fit.
        """
        settings = read_settings(options)
        tensorrt = self.import_tensorrt()
        from onnxplug_tensorrt.library import Library
        from onnxplug_tensorrt.provider import TensorrtProvider

        driver = self.load_driver()
        ordinal = find_device(driver, devices, int(options["device_id"]))
        location = ep.MemoryLocation(SPACE, ordinal)
        try:
            context = session.context(location)
        except ep.OnnxplugError as error:
            raise RuntimeError(
                f"TensorRT works in the memory of {location}, which is not to be had: "
                f"{error}; {install()}"
            ) from error
        if not context.native_handle or context.dlpack_device is None:
            raise RuntimeError(
                f"the memory {context.location} belongs to an EP that does not tell "
                "its CUDA context; keep that EP out with ONNXPLUG_BLOCK, and install "
                "onnxplug-cuda"
            )
        library = Library(
            tensorrt,
            CurrentContext(context.native_handle, driver),
            session.logger,
            detailed=settings.build.detailed_log,
        )
        check(settings, tensorrt, library.facts)
        settings = settings.calibrated()
        library.load_plugins(settings.plugins)
        return TensorrtProvider(library, context, settings)

    def import_tensorrt(self) -> Any:
        """TensorRT's module; as :func:`~.installation.import_tensorrt`."""
        return import_tensorrt()

    def load_driver(self) -> Any:
        """CUDA's driver; as :func:`~.driver.load_driver`."""
        return load_driver()

    def diagnose(self) -> Iterable[ep.Finding]:
        """What of TensorRT is there, and what is missing."""
        from onnxplug_tensorrt.diagnosis import findings

        return findings(self.import_tensorrt)

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The version of TensorRT, if it is a distribution."""
        found = find_tensorrt()
        if found is None or not found.version:
            return {}
        return {found.distribution: found.version}
