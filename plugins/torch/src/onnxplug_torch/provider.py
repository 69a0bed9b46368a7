"""The torch EP in one session."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug_torch.border import Border
from onnxplug_torch.capability import judge
from onnxplug_torch.context import TorchCapture
from onnxplug_torch.options import Settings
from onnxplug_torch.partition import TorchPartition
from onnxplug_torch.program import Constants, build, narrow_results


class TorchProvider(ep.ExecutionProvider):
    """Runs partitions as torch's operators on one device.

    Args:
        torch: the module.
        device: one of its devices.
        border: of the device's memory, which is the host's for torch's CPU.
        weights: where constants on the device are shared; ``None`` on the host, where
            they are used as they lie.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        border: Border,
        settings: Settings,
        weights: ep.WeightStore | None,
    ) -> None:
        self.location = border.location
        self.capture = TorchCapture() if settings.cuda_graphs else None
        self._torch = torch
        self._device = device
        self._border = border
        self._settings = settings
        self._constants = Constants(
            torch, device, weights, settings.narrow(torch), settings.channels_last
        )

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take what torch computes as ONNX says."""
        return ep.CapabilityReport.per_node(
            graph,
            lambda node: judge(self._torch, graph, node, self._device),
            keeps_constants=self.location != ep.HOST,
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """One callable of tensors.

        Raises:
            SessionRefused: runs are to be captured, and the partition waits for values.
        """
        program = build(self._torch, partition, self._device, self._constants)
        if self.capture is not None and (
            program.waits or "numbers" in program.input_forms + program.output_forms
        ):
            raise ep.SessionRefused(
                "shapes in the model depend on values, for which the host waits, so "
                "its runs cannot be captured; turn cuda_graphs off"
            )
        narrow = self._settings.narrow(self._torch)
        if narrow is not None:
            program = narrow_results(self._torch, program, partition, narrow)
        return TorchPartition(
            self._torch,
            partition,
            program,
            self._settings,
            self._border,
        )
