"""Which devices the CPU EP drives, and how it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxplug import ep
from onnxplug_cpu import __version__


class CpuFactory(ep.EpFactory):
    """Drives the processor; takes every ONNX operator on host memory."""

    spi_version = (0, 1)
    name = "CPUExecutionProvider"
    vendor = "onnxplug"
    version = __version__

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        """One pair: this EP and the processor."""
        return [
            ep.EpDevice(
                ep_name=self.name,
                device=device,
                ep_vendor=self.vendor,
                metadata={"version": self.version},
            )
            for device in devices
            if device.type is ep.DeviceType.CPU
        ][:1]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session."""
        from onnxplug_cpu.provider import CpuProvider

        return CpuProvider(threads=session.intra_op_num_threads)

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether numpy, which computes everything, can be imported."""
        try:
            import numpy as np
        except ImportError as error:
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=f"numpy cannot be imported: {error}",
                remedy="reinstall numpy in this environment",
            )
        else:
            yield ep.Finding(
                level=ep.Level.OK, message=f"numpy {np.__version__} computes"
            )
