"""What an EP says of itself to what runs its partitions."""

from __future__ import annotations

from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.target import GpuTarget


class Backend(Record):
    """An EP in one session, as far as its partitions are concerned.

    Attributes:
        api: what runs kernels, in refusals: ``WebGPU``.
        distribution: the EP's, which layouts of shared weights are named by.
        remedy: what users do for the next EP to take a node, as a clause.
        target: what is recorded, and how.
        mode: what becomes of memory that nobody uses any more; see
            :meth:`~.device.Device.memory`.
    """

    api: str
    distribution: str
    remedy: str
    target: GpuTarget
    mode: str = ""
