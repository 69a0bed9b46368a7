"""Which devices the CUDA EP drives, and what may be missing for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from onnxplug import ep
from onnxplug_cuda import __version__
from onnxplug_cuda.installation import find_engine, installed_libraries, problem
from onnxplug_cuda.options import OPTIONS, read_settings
from onnxplug_cuda.spaces import SPACE, CudaSpaces, choose

NVIDIA: Final = 0x10DE
"""The maker's PCI vendor id."""


class CudaVerification(ep.Verification):
    """Has GPUs checked before they are used."""

    compile_seconds = 30.0

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of kernels."""
        from onnxplug_compiler.gpu.probes import probes

        return probes(wide=True)


class CudaFactory(ep.EpFactory):
    """Drives GPUs of NVIDIA by CUDA.

    Listing devices loads no driver, nor CuPy.
    """

    spi_version = (1, 0)
    name = "CUDAExecutionProvider"
    vendor = "onnxplug"
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.GPU: "NVIDIA's H200, on Linux"
    }

    verification: ep.Verification | None = CudaVerification()

    memory_spaces: CudaSpaces

    def __init__(self) -> None:
        self.memory_spaces = CudaSpaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """GPUs of NVIDIA.

        Which of them CUDA counts as which is told by the driver, so a pair suggests
        ``device_id`` -1, its own.
        """
        engine, wrong = find_engine(), problem()
        for device in devices:
            if device.type is not ep.DeviceType.GPU or device.vendor_id != NVIDIA:
                continue
            if wrong:
                yield ep.RefusedDevice(
                    device=device, reason=wrong.reason, remedy=wrong.remedy
                )
                continue
            assert engine is not None
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata={
                    "version": self.version,
                    "engine_version": engine.version,
                    "cuda_major": str(engine.major),
                },
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
            OptionError: options contradict each other, or there is no GPU of that
                number.
            LookupError: CUDA does not see the device.
            RuntimeError: CuPy or the driver is missing, or they do not fit.
            DeviceLost: CUDA does nothing more in this process, after a fault.
        """
        settings = read_settings(options)
        cupy = self.memory_spaces.import_cupy()
        ordinal = choose(cupy, devices, int(options["device_id"]))
        from onnxplug_cuda.context import CudaContext
        from onnxplug_cuda.engines.opening import open_engines
        from onnxplug_cuda.provider import CudaProvider

        location = ep.MemoryLocation(SPACE, ordinal)
        context = session.context(location)
        if not isinstance(context, CudaContext):
            raise RuntimeError(
                f"the memory {location} is open by another EP; close the sessions and "
                "values that use it, and make this session then"
            )
        context.device.ensure()
        open_engines(context.device, session.logger)
        return CudaProvider(context, session.weights(location), settings)

    def diagnose(self) -> Iterable[ep.Finding]:
        """What of CUDA is there, and what is missing."""
        from onnxplug_cuda.diagnosis import findings

        return findings()

    def preload(
        self, libraries: Collection[str], directory: Path | None
    ) -> Iterable[ep.Finding]:
        """CUDA's, and cuDNN, as CuPy and the EP will find them."""
        from onnxplug_cuda.diagnosis import preloaded

        return preloaded(libraries, directory)

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The versions of CuPy, which says the CUDA that it is for, and of NVIDIA's
        libraries that are installed as distributions."""
        engine = find_engine()
        found = {} if engine is None else {engine.distribution: engine.version}
        return found | installed_libraries()
