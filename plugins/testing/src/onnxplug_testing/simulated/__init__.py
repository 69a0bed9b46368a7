"""An accelerator without the hardware: memory, streams and an EP of its own.

It shows how an EP with a device is written, one file per role, and it makes the host's
mistakes visible on any machine:

- a forgotten copy is a ``TypeError``, since numpy cannot read a :class:`DeviceArray`;
- a forgotten synchronisation is a wrong number, since work on a stream is done as late
  as it may be, in an order that breaks every order not asked for, and memory is
  poisoned before it is written and once its array is dropped;
- two runs at once, a host array dropped before its copy is done, a stream closed before
  its work is done, and releasing things in the wrong order raise.

:class:`Knobs` says what it claims and where it fails::

    plugin = SimulatedPlugin(Knobs(ops=frozenset({"MatMul"}), device_count=2))
    onnxplug.register_ep_library("simulated", plugin)
"""

from onnxplug_testing.simulated.factory import SimulatedFactory, SimulatedPlugin
from onnxplug_testing.simulated.knobs import Knobs, SimulatedFailure, Stage
from onnxplug_testing.simulated.memory import (
    Copy,
    DeviceArray,
    SimulatedAllocator,
    SimulatedDataTransfer,
)
from onnxplug_testing.simulated.provider import (
    SimulatedExecutionProvider,
    SimulatedPartition,
)
from onnxplug_testing.simulated.streams import Schedule, SimulatedStream

__all__ = [
    "Copy",
    "DeviceArray",
    "Knobs",
    "Schedule",
    "SimulatedAllocator",
    "SimulatedDataTransfer",
    "SimulatedExecutionProvider",
    "SimulatedFactory",
    "SimulatedFailure",
    "SimulatedPartition",
    "SimulatedPlugin",
    "SimulatedStream",
    "Stage",
]
