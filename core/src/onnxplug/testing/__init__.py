"""EPs to test with: what the authors of EPs, and onnxplug itself, check against.

:mod:`~onnxplug.testing.toy` is the SPI at its smallest;
:mod:`~onnxplug.testing.simulated` is an accelerator without the hardware.  Neither is
an entry point: register them by hand.
"""

from onnxplug.testing.simulated import (
    Copy,
    DeviceArray,
    Knobs,
    SimulatedAllocator,
    SimulatedDataTransfer,
    SimulatedExecutionProvider,
    SimulatedFactory,
    SimulatedFailure,
    SimulatedPlugin,
    SimulatedStream,
    Stage,
)
from onnxplug.testing.toy import ToyExecutionProvider, ToyFactory

__all__ = [
    "Copy",
    "DeviceArray",
    "Knobs",
    "SimulatedAllocator",
    "SimulatedDataTransfer",
    "SimulatedExecutionProvider",
    "SimulatedFactory",
    "SimulatedFailure",
    "SimulatedPlugin",
    "SimulatedStream",
    "Stage",
    "ToyExecutionProvider",
    "ToyFactory",
]
