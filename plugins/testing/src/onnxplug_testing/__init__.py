"""EPs to test with: what the authors of EPs, and onnxplug itself, check against.

:mod:`~onnxplug_testing.toy` is the SPI at its smallest;
:mod:`~onnxplug_testing.simulated` is an accelerator without the hardware.  Neither is
an entry point: register them by hand.
"""

from onnxplug_testing.simulated import (
    Copy,
    DeviceArray,
    Knobs,
    OwnType,
    PinnedAllocator,
    SimulatedAllocator,
    SimulatedContext,
    SimulatedDataTransfer,
    SimulatedEvent,
    SimulatedExecutionProvider,
    SimulatedFactory,
    SimulatedFailure,
    SimulatedGraph,
    SimulatedPartition,
    SimulatedPlugin,
    SimulatedStream,
    Stage,
)
from onnxplug_testing.toy import ToyExecutionProvider, ToyFactory

__all__ = [
    "Copy",
    "DeviceArray",
    "Knobs",
    "OwnType",
    "PinnedAllocator",
    "SimulatedAllocator",
    "SimulatedContext",
    "SimulatedDataTransfer",
    "SimulatedEvent",
    "SimulatedExecutionProvider",
    "SimulatedFactory",
    "SimulatedFailure",
    "SimulatedGraph",
    "SimulatedPartition",
    "SimulatedPlugin",
    "SimulatedStream",
    "Stage",
    "ToyExecutionProvider",
    "ToyFactory",
]
__version__ = "0.1.0"
